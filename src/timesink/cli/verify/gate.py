"""`timesink gate`: is this change allowed in? `timesink gate baseline`: make, update and show stored baselines."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from timesink import __version__
from timesink.cli.options import Commands, PageOutput, read_traces
from timesink.cli.output import Sink, sink
from timesink.cli.verify import (
    GateOutput,
    Looks,
    RunSession,
    Sides,
    StepTimeOptions,
    WorkFacts,
    counters,
    one_command,
    share,
)
from timesink.errors import UsageError
from timesink.records import Record, replace
from timesink.verify import BrokenRecord

if TYPE_CHECKING:
    from timesink.verify.baseline import Baseline
    from timesink.verify.outcomes import GateResult


class GatedCounters(Record, kw_only=True):
    """Counters that are gated besides the step time."""

    metrics: Path | None = None
    metrics_before: Path | None = None
    capture: list[Path] | None = None
    capture_before: list[Path] | None = None
    share_tolerance: str = "2%"

    @property
    def are_two(self) -> bool:
        """Whether both sides are in files, so that nothing has to run."""
        return bool(self.metrics or self.capture) and bool(self.metrics_before or self.capture_before)

    @property
    def files(self) -> list[Path]:
        """Every file that is read."""
        named = [file for file in (self.metrics, self.metrics_before) if file is not None]
        return [*(self.capture or ()), *(self.capture_before or ()), *named]


class StoredBaseline(Record, kw_only=True):
    """The stored baseline that a program is held against."""

    suite: str = "default"
    root: Path = Path(".timesink")
    allow_env_diff: list[str] | None = None
    canary: float | None = None


class GateReports(GateOutput, kw_only=True):
    """Where the result of the gate goes, services for continuous integration included."""

    openmetrics: Path | None = None
    gitlab_codequality: Path | None = None

    def report(self, result: GateResult, sink: Sink) -> int:
        """Write every report; return the exit code."""
        return self.write(result, sink, open_metrics=self.openmetrics, code_quality=self.gitlab_codequality)


def gate(
    history: Path | None = None,
    *,
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
    --capture or --metrics and the same of before, and no program, only what they count is compared.

    Exits with 0: nothing over the gate; 1: slower, or over a limit; 2: wrong request; 3: inconclusive (with
    --strict); 4: the comparison is invalid (no baseline, another machine, other work, another result, no such number);
    5: a program failed.
    """
    target = writing.sink([*([history] if history else ()), *measured.files])
    source = times.source()
    if not sides.are_two and (looks.at_least or looks.statistic != "mean"):
        raise UsageError("--at-least and --statistic judge two sides", remedy="give --before and --after, or --toggle")
    if history is not None and (sides.are_two or sides.program):
        raise UsageError("--history: runs nothing", remedy="leave the commands out, or leave that out")
    new, tolerance = counters(measured.metrics, measured.capture), share(measured.share_tolerance)
    if measured.are_two and not (history or sides.are_two or sides.program):
        from timesink.verify.counters import gate_counters
        from timesink.verify.outcomes import GateResult

        old = counters(measured.metrics_before, measured.capture_before)
        result = GateResult(stored.suite, "counters", tuple(gate_counters(old, new, tolerance)))
    elif history is not None:
        from timesink.verify.changepoint import gate_history

        result = gate_history(history, stored.suite, share(looks.threshold))
    elif sides.are_two:
        from timesink.verify.counters import gate_counters
        from timesink.verify.gate import two_sides

        with session.launcher(sides.commands(), source) as launcher:
            result = two_sides(looks.plan(), launcher, stored.suite, session.tell)
        old = counters(measured.metrics_before, measured.capture_before)
        result = replace(result, rows=(*result.rows, *gate_counters(old, new, share_tolerance=tolerance)))
    else:
        from timesink.verify.gate import StoredGate

        program = one_command(sides.program)
        kept = StoredGate(stored.root, stored.suite, share(looks.threshold), tolerance, stored.canary)
        with session.launcher({"before": program, "after": program}, source) as launcher:
            workload = work.workload(program, times.facts)
            result = kept.run(
                program, workload, launcher, new, allowed=stored.allow_env_diff or (), progress=session.tell
            )
    return writing.report(result, target)


def limits(
    paths: list[Path] | None = None,
    baseline: list[Path] | None = None,
    limit: list[str] | None = None,
    suite: str = "",
    *,
    writing: GateReports,
) -> int:
    """Hold numbers of a trace or report to limits; nothing runs.

    Several PATHs are the ranks of one job. Exits as `timesink gate` does.
    """
    held = paths or []
    target = writing.sink([*held, *(baseline or ())])
    if not (held and limit):
        raise UsageError(
            "limits need a trace or report, and a trace or report needs limits",
            remedy="timesink gate --limits NEW --baseline OLD --limit 'dram_pct >= 0.95x'",
        )
    from timesink.verify.table_limits import gate_tables, parse_limit

    bounds = [parse_limit(text) for text in limit]
    old = read_traces(baseline) if baseline else None
    return writing.report(gate_tables(bounds, read_traces(held), old, suite), target)


app = Commands(help="Keep baselines: run summaries of the trunk, committed beside the code.")


class KeptCounters(Record, kw_only=True):
    """Counters that a baseline keeps besides the step time."""

    metrics: Path | None = None
    capture: list[Path] | None = None


class AddedRuns(Record, kw_only=True):
    """How many runs are added, to which baseline."""

    runs: int = 10
    fresh: bool = False
    suite: str = "default"
    root: Path = Path(".timesink")


@app.command("update")
def update(
    reason: str,
    program: list[str] | None = None,
    output: Path | None = None,
    *,
    added: AddedRuns,
    kept_counters: KeptCounters,
    times: StepTimeOptions,
    work: WorkFacts,
    session: RunSession,
) -> int:
    """Run the program, add its runs to the baseline of this environment, and show the difference."""
    from timesink.verify import baseline as baselines
    from timesink.verify.baseline import add_runs
    from timesink.verify.environment import environment

    if not reason.strip():
        raise UsageError("an update needs a reason", remedy="say why with --reason")
    if added.runs < 1:
        raise UsageError(f"{added.runs} runs add nothing", remedy="make at least 1, better 10")
    command = one_command(program)
    here = environment(command)
    workload = work.workload(command, times.facts)
    path = baselines.location(added.root, added.suite, here)
    old = stored(path, added.fresh)
    with session.launcher({"before": command, "after": command}, times.source()) as launcher:
        rows = []
        for number in range(1, added.runs + 2):
            row = launcher.launch("before", number)
            session.tell(f"run {number} of {added.runs + 1}: {row.mean_s * 1e3:.4g} ms per step")
            rows.append(row)
    now = datetime.now(UTC)
    blank = baselines.Baseline(added.suite, here.hard, workload, ())
    start = blank if old is None or added.fresh else replace(old, workload=workload)
    if old is not None and old.workload != workload and not added.fresh:
        raise UsageError("the baseline timed other work", remedy="start it anew with --replace")
    kept = replace(start, updates=old.updates if old else ())
    measured = counters(kept_counters.metrics, kept_counters.capture)
    update = baselines.Update(now.date().isoformat(), reason)
    new = add_runs(kept, baselines.summarise_runs(rows[1:], now), measured, update)
    before = baselines.text(old, __version__) if old else ""
    baselines.save(path, new, __version__)
    lines = difflib.unified_diff(
        before.splitlines(True), baselines.text(new, __version__).splitlines(True), str(path), str(path)
    )
    sink(None, output, True).write("".join(lines) or "nothing changed\n")
    return 0


def stored(path: Path, fresh: bool) -> Baseline | None:
    """The baseline there is. A damaged one stops an update, unless it is to be replaced anyway."""
    from timesink.verify.baseline import read

    if not path.is_file():
        return None
    try:
        return read(path)
    except BrokenRecord:
        if fresh:
            return None
        raise


@app.command("check")
def check(
    paths: list[Path],
    *,
    writing: PageOutput,
) -> int:
    """Check budgets and baselines before they are committed: every key, rule, limit and run.

    `.pre-commit-hooks.yaml` of timesink calls it.
    """
    from timesink.views.verify import kept_page

    target = writing.sink(paths)
    target.show(kept_page(paths))
    return 0


@app.command("show")
def show(suite: str = "default", root: Path = Path(".timesink"), *, writing: PageOutput) -> int:
    """List the stored baselines of a suite."""
    from timesink.verify import baseline as baselines
    from timesink.views.verify import baselines_page

    folder = root / "baselines" / suite
    writing.sink().show(
        baselines_page(folder, [(path, baselines.read(path)) for path in sorted(folder.glob("*.json"))])
    )
    return 0
