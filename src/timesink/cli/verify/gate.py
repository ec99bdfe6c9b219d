"""`timesink gate`: is this change allowed in?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink.cli.options import option
from timesink.cli.reading import read_traces
from timesink.cli.verify.runs import (
    CodeQuality,
    GateOutput,
    Looks,
    OpenMetrics,
    Root,
    RunSession,
    Sides,
    StepTimeOptions,
    Suite,
    WorkFacts,
    counters,
    one_command,
    share,
)
from timesink.errors import UsageError
from timesink.model.record import dataclass, replace

if TYPE_CHECKING:
    from timesink.cli.output import Sink
    from timesink.verify.experiment import ExperimentPlan
    from timesink.verify.outcomes import GateResult
    from timesink.verify.runs import Launcher


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCounters:
    """Counters that are gated besides the step time."""

    metrics: Annotated[
        Path | None, option("--metrics", "FILE", "Counters to gate, as JSON: {name: {value, unit, how, better}}.")
    ] = None
    metrics_before: Annotated[
        Path | None, option("--metrics-before", "FILE", "The same file from the unchanged program.")
    ] = None
    capture: Annotated[
        list[Path] | None,
        option(
            "--capture",
            "TRACE",
            "A profile of the changed program, or a log of its compiler (repeatable): shares and counts are gated.",
        ),
    ] = None
    capture_before: Annotated[
        list[Path] | None, option("--capture-before", "TRACE", "The same of the unchanged program.")
    ] = None
    share_tolerance: Annotated[str, option("--share-tolerance", "SHARE", "Shares may differ by this, in points.")] = (
        "2%"
    )

    @property
    def files(self) -> list[Path]:
        """Every file that is read."""
        named = [file for file in (self.metrics, self.metrics_before) if file is not None]
        return [*(self.capture or ()), *(self.capture_before or ()), *named]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBaseline:
    """The stored baseline that a program is held against."""

    suite: Suite = "default"
    root: Root = Path(".timesink")
    allow_env_diff: Annotated[
        list[str] | None, option("--allow-env-diff", "FACT", "This hard fact may differ from the baseline's.")
    ] = None
    canary: Annotated[
        float | None, option("--canary", "RATIO", "Time of a frozen reference program today over then.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingRuns:
    """Files that are judged as they are, without a program: a history, or numbers of tables held to limits."""

    history: Annotated[
        Path | None,
        option("--history", "FILE", 'Look for a lasting change in these run means (JSON lines with "mean").'),
    ] = None
    report: Annotated[
        list[Path] | None,
        option(
            "--report",
            "TRACE",
            "Hold numbers of this trace or report to the --limit given; runs nothing (repeatable: ranks).",
        ),
    ] = None
    baseline: Annotated[
        list[Path] | None, option("--baseline", "TRACE", "The trace or report that limits are relative to.")
    ] = None
    limit: Annotated[
        list[str] | None,
        option(
            "--limit",
            "LIMIT",
            "Such as 'dram_pct >= 0.95x', 'mean(kernels.mean_ns[name~gemm]) <= 3 us', "
            "'call_times.time_ratio[name=cudaLaunchKernel] +- 2 points'; repeatable.",
        ),
    ] = None

    @property
    def has_limits(self) -> bool:
        """Whether any option of the limits is given."""
        return bool(self.report or self.baseline or self.limit)

    @property
    def files(self) -> list[Path]:
        """Every file that is read."""
        return [*(self.report or ()), *(self.baseline or ()), *([self.history] if self.history else ())]

    def check_alone(self, sides: Sides) -> None:
        """`UsageError` where commands, or the other way to run nothing, are asked for besides."""
        asked = "--history" if self.history is not None else "--report, --baseline and --limit" * self.has_limits
        if asked and (sides.are_two or sides.program or (self.history is not None and self.has_limits)):
            raise UsageError(f"{asked}: runs nothing", remedy="leave the commands out, or leave that out")

    def held(self, suite: str) -> GateResult:
        """The limits' result. `UsageError` where the options name no limit, or nothing to hold to it."""
        from timesink.verify.table_limits import gate_tables, parse_limit

        if not (self.report and self.limit):
            raise UsageError(
                "a limit needs a report, and a report a limit",
                remedy="timesink gate --report NEW --baseline OLD --limit 'dram_pct >= 0.95x'",
            )
        limits = [parse_limit(text) for text in self.limit]
        old = read_traces(self.baseline) if self.baseline else None
        return gate_tables(limits, read_traces(self.report), old, suite)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReports(GateOutput):
    """Where the result of the gate goes, services for continuous integration included."""

    artefact: Annotated[str, option("--artefact", "URL", "Link to the full report, shown in every format.")] = ""
    openmetrics: OpenMetrics = None
    gitlab_codequality: CodeQuality = None

    def report(self, result: GateResult, sink: Sink) -> int:
        """Write every report; return the exit code."""
        linked = replace(result, artefact=self.artefact)
        return self.write(linked, sink, open_metrics=self.openmetrics, code_quality=self.gitlab_codequality)


def command(
    *,
    files: NothingRuns,
    sides: Sides,
    measured: GatedCounters,
    times: StepTimeOptions,
    looks: Looks,
    work: WorkFacts,
    session: RunSession,
    stored: StoredBaseline,
    writing: GateReports,
) -> int:
    """Fail where a change makes the program slower, and only then.

    With --before and --after (or --toggle) both builds run here, in turns: the best gate. With a program after -- it is
    held against the stored baseline of its suite. With --history a lasting change in the trunk is looked for. With
    --report numbers of a file's tables are held to limits, and nothing runs.

    Exits with 0: nothing over the gate; 1: slower, or over a limit; 2: wrong request; 3: nothing can be said (with
    --strict); 4: the comparison is invalid (no baseline, another machine, other work, another result, no such number);
    5: a program failed.
    """
    target = writing.sink([*files.files, *measured.files])
    source = times.source()
    if not sides.are_two and (looks.at_least or looks.statistic != "mean"):
        raise UsageError("--at-least and --statistic judge two sides", remedy="give --before and --after, or --toggle")
    files.check_alone(sides)
    if files.has_limits:
        return writing.report(files.held("" if stored.suite == "default" else stored.suite), target)
    new, tolerance = counters(measured.metrics, measured.capture), share(measured.share_tolerance)
    if files.history is not None:
        from timesink.verify.changepoint import gate_history

        result = gate_history(files.history, stored.suite, share(looks.threshold))
    elif sides.are_two:
        from timesink.verify.counters import gate_counters

        with session.launcher(sides.commands(), source) as launcher:
            result = two_sides(looks.plan(), launcher, stored.suite, session.tell)
        old = counters(measured.metrics_before, measured.capture_before)
        result = replace(result, rows=(*result.rows, *gate_counters(old, new, share_tolerance=tolerance)))
    else:
        from timesink.verify.gate import StoredGate

        gate = StoredGate(stored.root, stored.suite, share(looks.threshold), tolerance, stored.canary)
        program = one_command(sides.program)
        with session.launcher({"before": program, "after": program}, source) as launcher:
            workload = work.workload(program, times.facts)
            result = gate.run(
                program, workload, launcher, new, allowed=stored.allow_env_diff or (), progress=session.tell
            )
    return writing.report(result, target)


def two_sides(plan: ExperimentPlan, launcher: Launcher, suite: str, progress: Callable[[str], None]) -> GateResult:
    """Both builds, run here in turns."""
    from timesink.verify.experiment import to_result, verify

    result = to_result(verify(plan, launcher.launch, progress), suite)
    remark = launcher.watch.remark
    return replace(result, notes=(*result.notes, remark)) if remark else result
