"""`timesink gate`: is this change allowed in?

The gate against what is stored: baselines of a suite, or the trunk's history.

Where a gate's result goes: the report that was asked for, and files for continuous integration.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import options
from timesink.cli.output import Sink, sink, tell
from timesink.cli.reading import read_traces
from timesink.cli.verify import setup as given
from timesink.cli.verify.setup import facts, one_command, plan, session, share, step_source, two_commands
from timesink.errors import UsageError
from timesink.render.formats import Format
from timesink.verify.outcomes import GateResult, GateRow, RunRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from timesink.verify.counters import Counter
    from timesink.verify.outcomes import GateResult, GateRow
    from timesink.verify.runs import StepSource


def counters(metrics: Path | None, captures: Sequence[Path] | None) -> dict[str, Counter]:
    """Counters from a file of the user's and from a profile, compiler logs beside it included."""
    from timesink.verify.counters import captured_metrics, read_counters

    captured = captured_metrics(read_traces(captures)) if captures else {}
    return {**captured, **(read_counters(metrics) if metrics else {})}


def from_history(path: Path, suite: str, threshold_ratio: float) -> GateResult:
    """Whether the trunk changed for good; an alert that fails nothing."""
    from timesink.verify.changepoint import judge_history, read_history

    means = read_history(path)
    verdict, found = judge_history(means, threshold_ratio)
    before = means[-1] / verdict.effect.ratio if verdict.effect and means else None
    row = GateRow("step time (mean)", "s", before if found else None, means[-1] if found else None, verdict)
    return GateResult(suite, "trunk history", (row,), notes=(f"{len(means)} points in {path.name}",))


@dataclass(frozen=True, slots=True)
class StoredGate:
    """A program held against the baseline of its suite in this environment."""

    root: Path
    suite: str
    program: tuple[str, ...]
    source: StepSource
    threshold_ratio: float
    share_tolerance: float
    canary_ratio: float | None

    def run(
        self,
        measured: Mapping[str, Counter],
        config_files: Sequence[Path],
        fact_texts: Sequence[str],
        allowed: Sequence[str],
        timeout_s: float,
        keep: Path | None,
    ) -> GateResult:
        """Make the runs the baseline calls for and compare everything."""
        from timesink.verify import baseline as baselines
        from timesink.verify.counters import gate_counters
        from timesink.verify.environment import differences, environment, workload
        from timesink.verify.gate import gate_step_time
        from timesink.verify.limits import BASELINE_NEW_RUNS

        command = one_command(self.program)
        here = environment(command)
        work = workload(command, config_files, facts(fact_texts))
        stored = baselines.find(self.root, self.suite, here, work, allowed)
        known = stored.counters if isinstance(stored, baselines.Baseline) else {}
        differing = (
            differences(stored.environment, here.hard) if isinstance(stored, baselines.Baseline) else stored.differences
        )
        with session({"before": command, "after": command}, self.source, timeout_s, keep) as made:
            numbers = iter(range(2, 1000))

            def make_runs() -> list[RunRow]:
                rows = [made.launch("after", next(numbers)) for _ in range(int(BASELINE_NEW_RUNS.default))]
                for row in rows:
                    tell(f"run {row.number}: {row.mean_s * 1e3:.4g} ms per step")
                return rows

            if isinstance(stored, baselines.Baseline):
                made.launch("after", 1)  # warms disks and caches; not counted
            today = datetime.now(UTC).date()
            first, runs = gate_step_time(stored, make_runs, today, self.threshold_ratio, self.canary_ratio)
            notes = (made.watch.remark,) if made.watch.remark else ()
        rows = gate_counters(known, measured, share_tolerance=self.share_tolerance) if known or measured else []
        return GateResult(self.suite, "stored baseline", (first, *rows), differing, runs=runs, notes=notes)


@dataclass(frozen=True, slots=True)
class Files:
    """Reports to write besides the one on stdout."""

    junit: Path | None = None
    open_metrics: Path | None = None
    code_quality: Path | None = None
    comment: Path | None = None


def write(result: GateResult, sink: Sink, files: Files, *, strict: bool, exit_zero: bool) -> int:
    """Write everything; return the exit code. In GitHub Actions annotations and step summary come by themselves."""
    sink.show(result, strict=strict)
    for path, render in _renderers(strict, files):
        if path is not None:
            Sink(Format.TEXT, path, sink.width, False).write(render(result))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _github(result)
    return 0 if exit_zero else result.exit_code(strict=strict)


def _renderers(strict: bool, files: Files) -> list[tuple[Path | None, Callable[[GateResult], str]]]:
    from timesink.render.gate import ci, markdown

    return [
        (files.junit, lambda result: ci.render(result, strict=strict)),
        (files.open_metrics, ci.open_metrics),
        (files.code_quality, ci.code_quality),
        (files.comment, markdown.render),
    ]


def _github(result: GateResult) -> None:
    """Commands are read from either stream: stderr keeps stdout clean for the report."""
    from timesink.render.gate import ci

    sys.stderr.write(ci.workflow_commands(result))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(ci.summary(result))


Metrics = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="Counters to gate, as JSON: {name: {value, unit, how, better}}.",
        show_default=False,
    ),
]
MetricsBefore = Annotated[
    Path | None,
    typer.Option(
        "--metrics-before", metavar="FILE", help="The same file from the unchanged program.", show_default=False
    ),
]
Captured = Annotated[
    list[Path] | None,
    typer.Option(
        "--capture",
        metavar="TRACE",
        help="A profile of the changed program, or a log of its compiler (repeatable): shares and counts are gated.",
        show_default=False,
    ),
]
CapturedBefore = Annotated[
    list[Path] | None,
    typer.Option("--capture-before", metavar="TRACE", help="The same of the unchanged program.", show_default=False),
]
History = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help='Look for a lasting change in these run means (JSON lines with "mean").',
        show_default=False,
    ),
]
AllowDifference = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-env-diff", metavar="KEY", help="This hard fact may differ from the baseline's.", show_default=False
    ),
]
Canary = Annotated[
    float | None,
    typer.Option(
        "--canary", metavar="RATIO", help="Time of a frozen reference program today over then.", show_default=False
    ),
]
ShareTolerance = Annotated[
    str, typer.Option("--share-tolerance", metavar="SHARE", help="Shares may differ by this, in points.")
]
Artefact = Annotated[
    str, typer.Option("--artefact", metavar="URL", help="Link to the full report, shown in every format.")
]


def command(
    program: given.Program = None,
    before: given.Before = None,
    after: given.After = None,
    toggle: given.Toggle = None,
    history: History = None,
    metrics: Metrics = None,
    metrics_before: MetricsBefore = None,
    capture: Captured = None,
    capture_before: CapturedBefore = None,
    step_pattern: given.StepPattern = None,
    receipt_pattern: given.ReceiptPattern = None,
    steps_json: given.StepsJson = None,
    threshold: given.Threshold = "2%",
    pairs: given.Looks = "6,12,18",
    receipt_tolerance: given.Tolerance = "0",
    share_tolerance: ShareTolerance = "2%",
    config_file: given.ConfigFiles = None,
    fact: given.Facts = None,
    allow_env_diff: AllowDifference = None,
    canary: Canary = None,
    timeout: given.Timeout = 1800,
    keep: given.Keep = None,
    suite: given.Suite = "default",
    root: given.Root = Path(".timesink"),
    artefact: Artefact = "",
    form: given.Form = None,
    output: options.OutputFile = None,
    junit_xml: given.Junit = None,
    openmetrics: given.OpenMetrics = None,
    gitlab_codequality: given.CodeQuality = None,
    comment: given.Comment = None,
    strict: given.Strict = False,
    exit_zero: options.ExitZero = False,
    no_color: options.NoColor = False,
) -> int:
    """Fail where a change makes the program slower, and only then.

    With --before and --after (or --toggle) both builds run here, in turns: the best gate. With a program after -- it is
    held against the stored baseline of its suite. With --history a lasting change in the trunk is looked for.

    Exits with 0: nothing over the gate; 1: slower; 2: wrong request; 3: nothing can be said (with --strict); 4: the
    comparison is invalid (no baseline, another machine, other work, another result); 5: a program failed.
    """

    target = sink(form, output, no_color)
    files = Files(junit_xml, openmetrics, gitlab_codequality, comment)
    source = step_source(step_pattern, receipt_pattern, steps_json)
    measured = counters(metrics, capture)
    if history is not None:
        if before or after or toggle or program:
            raise UsageError("--history runs nothing", remedy="leave the commands out, or leave --history out")
        result = from_history(history, suite, share(threshold))
    elif before or after or toggle:
        from timesink.verify.counters import gate_counters
        from timesink.verify.experiment import to_result, verify

        with session(two_commands(before, after, toggle, program or ()), source, timeout, keep) as made:
            done = verify(plan(threshold, pairs, receipt_tolerance), made.launch, tell)
            absent = made.watch.remark
        stored = counters(metrics_before, capture_before)
        rows = gate_counters(stored, measured, share_tolerance=share(share_tolerance))
        result = _with(to_result(done, suite), rows, absent)
    else:
        gate = StoredGate(root, suite, tuple(program or ()), source, share(threshold), share(share_tolerance), canary)
        result = gate.run(measured, config_file or (), fact or (), allow_env_diff or (), timeout, keep)
    return write(replace(result, artefact=artefact), target, files, strict=strict, exit_zero=exit_zero)


def _with(result: GateResult, rows: Sequence[GateRow], absent: str) -> GateResult:
    return replace(result, rows=(*result.rows, *rows), notes=(*result.notes, *((absent,) if absent else ())))
