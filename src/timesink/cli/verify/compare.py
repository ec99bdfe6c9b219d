"""`timesink compare`: two captures, what moved and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli import asked
from timesink.cli.options import CODE_QUALITY, NO_CACHE, THRESHOLD, Stepping, of_run, read_traces
from timesink.cli.output import working
from timesink.cli.parameters import Argument, Option
from timesink.cli.verify import GateOutput
from timesink.errors import UsageError
from timesink.records import Record

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace
    from timesink.verify.calibration import RunDeviation

SIDE = "A capture, or a folder of the ranks of one job."


class Judgement(Record, kw_only=True):
    """What a difference is held against: how much runs of an unchanged program differ, and which facts may."""

    calibration: Annotated[
        Path | None,
        Option("--calibration", "FILE", "Run-to-run deviation from timesink gate calibrate.", must=asked.there),
    ] = None
    assume_run_sd: Annotated[
        str | None,
        Option("--assume-run-sd", "SHARE", "Assume this deviation; the verdict can fail no gate.", must=asked.share),
    ] = None
    threshold: Annotated[str, THRESHOLD] = "2%"
    allow_env_diff: Annotated[
        list[str] | None, Option("--allow-env-diff", "FACT", "This fact may differ, such as gpu.", rare=True)
    ] = None

    def deviation(self) -> RunDeviation | None:
        """As the options say, if they do."""
        if self.calibration and self.assume_run_sd:
            raise UsageError(
                "the deviation is measured or assumed", remedy="give --calibration or --assume-run-sd, not both"
            )
        from timesink.verify.calibration import RunDeviation, read

        if self.calibration is not None:
            return RunDeviation.measured(read(self.calibration))
        return RunDeviation.stated(asked.share(self.assume_run_sd)) if self.assume_run_sd is not None else None


def compare(
    before: Annotated[Path, Argument("BEFORE", "A capture, or a folder of the ranks of one job.")],
    after: Annotated[Path, Argument("AFTER", "A capture, or a folder of the ranks of one job.")],
    unprofiled: Annotated[
        list[float] | None,
        Option(
            "--unprofiled-step-ms",
            "MS",
            "The step without a profiler, to price CPU work against: of BEFORE, and again of AFTER [default: as "
            "`timesink capture` timed them].",
        ),
    ] = None,
    gitlab_codequality: Annotated[Path | None, CODE_QUALITY] = None,
    no_cache: Annotated[bool, NO_CACHE] = False,
    *,
    judged: Judgement,
    stepping: Stepping,
    writing: GateOutput,
) -> int:
    """Show what changed between two captures, and why.

    The parts of the step sum to its change, to the nanosecond. One capture per side is no basis for a verdict: without
    a calibration it is inconclusive, and `timesink verify` decides.
    """
    target = writing.sink((before, after))
    deviation = judged.deviation()
    known = (unprofiled[0], unprofiled[1]) if unprofiled and len(unprofiled) == 2 else (None, None)
    if unprofiled and None in known:
        raise UsageError(
            "each capture has a step time of its own",
            remedy="give --unprofiled-step-ms twice: of BEFORE, then of AFTER",
        )
    cache = not no_cache
    traces = (
        of_run(stepping.applied(read_traces([before], cache=cache)), known[0], [before]),
        of_run(stepping.applied(read_traces([after], cache=cache)), known[1], [after]),
    )
    with working("comparing"):
        from timesink.diagnosis.undiagnosable import check_comparable
        from timesink.verify.compare import compare_captures
        from timesink.verify.environment import capture_facts, trace_facts

        check_comparable(*traces)
        if judged.calibration is not None:
            check_calibration(judged.calibration, trace_facts(traces[0]).get("gpu", ""))
        result = compare_captures(
            traces,
            _diagnoses(traces),
            threshold_ratio=asked.share(judged.threshold),
            deviation=deviation,
            facts=capture_facts((before, after), traces),
            allowed=judged.allow_env_diff or (),
        )
    return writing.write(result, target, code_quality=gitlab_codequality)


def _diagnoses(traces: tuple[Trace, Trace]) -> tuple[Diagnosis, Diagnosis]:
    from timesink.diagnosis.engine import diagnose

    return diagnose(traces[0]), diagnose(traces[1])


def check_calibration(path: Path, gpu: str) -> None:
    """`UsageError` where the calibration was made on another GPU than the captures."""
    from timesink.verify.calibration import made_on

    there = made_on(path)
    if gpu and there and gpu != there:
        raise UsageError(
            f"{path} was made on {there}, the captures on {gpu}", remedy="calibrate on the GPU of the captures"
        )
