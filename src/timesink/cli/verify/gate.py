"""`timesink gate`: is this change allowed in? `timesink gate baseline`: make, update and show stored baselines."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink import __version__
from timesink.cli import asked
from timesink.cli.options import CODE_QUALITY, OPEN_METRICS, OUTPUT, PROGRAM, ROOT, SUITE, PageOutput, read_traces
from timesink.cli.output import Sink, sink
from timesink.cli.parameters import Argument, Commands, Option
from timesink.cli.verify import (
    GateOutput,
    Looks,
    RunSession,
    Sides,
    StepTimeOptions,
    WorkFacts,
    captured,
    counters,
    one_command,
)
from timesink.errors import UsageError
from timesink.records import Record, replace
from timesink.verify import BrokenRecord

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.verify.baseline import Baseline
    from timesink.verify.counters import Counter
    from timesink.verify.outcomes import GateResult


class GatedCounters(Record, kw_only=True):
    """Counters that are gated besides the step time."""

    metrics: Annotated[
        Path | None,
        Option(
            "--metrics",
            "FILE",
            "Counters to gate, as JSON: {name: {value, unit, how, better}}.",
            rare=True,
            must=asked.there,
        ),
    ] = None
    metrics_before: Annotated[
        Path | None,
        Option("--metrics-before", "FILE", "The same file from the unchanged program.", rare=True, must=asked.there),
    ] = None
    capture: Annotated[
        list[Path] | None,
        Option(
            "--capture",
            "TRACE",
            "A profile of the changed program, or a log of its compiler (repeatable): shares and counts are gated.",
            must=asked.there,
        ),
    ] = None
    capture_before: Annotated[
        list[Path] | None,
        Option("--capture-before", "TRACE", "The same of the unchanged program.", rare=True, must=asked.there),
    ] = None
    share_tolerance: Annotated[
        str, Option("--share-tolerance", "SHARE", "Shares may differ by this, in points.", rare=True, must=asked.share)
    ] = "2%"

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

    suite: Annotated[str, SUITE] = "default"
    root: Annotated[Path, ROOT] = Path(".timesink")
    allow_env_diff: Annotated[
        list[str] | None,
        Option("--allow-env-diff", "FACT", "This hard fact may differ from the baseline's.", rare=True),
    ] = None
    canary: Annotated[
        float | None, Option("--canary", "RATIO", "Time of a frozen reference program today over then.", rare=True)
    ] = None


class GateReports(GateOutput, kw_only=True):
    """Where the result of the gate goes, services for continuous integration included."""

    openmetrics: Annotated[Path | None, OPEN_METRICS] = None
    gitlab_codequality: Annotated[Path | None, CODE_QUALITY] = None

    def report(self, result: GateResult, sink: Sink) -> int:
        """Write every report; return the exit code."""
        return self.write(result, sink, open_metrics=self.openmetrics, code_quality=self.gitlab_codequality)


def gate(
    history: Annotated[
        Path | None,
        Option(
            "--history",
            "FILE",
            'Look for a lasting change in these run means (JSON lines with "mean").',
            must=asked.history,
        ),
    ] = None,
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
    if not sides.are_two and (looks.at_least or looks.statistic != "mean"):
        raise UsageError("--at-least and --statistic judge two sides", remedy="give --before and --after, or --toggle")
    if history is not None and (sides.are_two or sides.program):
        raise UsageError("--history: runs nothing", remedy="leave the commands out, or leave that out")
    commands = sides.commands() if sides.are_two else None
    program = None if commands or history or (measured.are_two and not sides.program) else one_command(sides.program)
    source = times.source()
    profile, tolerance = captured(measured.capture), asked.share(measured.share_tolerance)
    new = counters(measured.metrics, profile)
    if not (history or commands or program):
        result = _counts_alone(stored.suite, measured, new, profile, tolerance)
    elif history is not None:
        from timesink.verify.changepoint import gate_history

        result = gate_history(history, stored.suite, asked.share(looks.threshold))
    elif commands is not None:
        from timesink.verify.counters import gate_counters
        from timesink.verify.gate import two_sides
        from timesink.verify.limits import GATE_S

        with session.launcher(commands, source) as launcher:
            result = two_sides(looks.plan(GATE_S), launcher, stored.suite, session.tell)
        old = counters(measured.metrics_before, captured(measured.capture_before))
        result = replace(result, rows=(*result.rows, *gate_counters(old, new, share_tolerance=tolerance)))
    else:
        from timesink.verify.gate import StoredGate

        assert program is not None
        kept = StoredGate(stored.root, stored.suite, asked.share(looks.threshold), tolerance, stored.canary)
        with session.launcher({"before": program, "after": program}, source) as launcher:
            workload = work.workload(program, times.facts)
            result = kept.run(
                program, workload, launcher, new, allowed=stored.allow_env_diff or (), progress=session.tell
            )
    return writing.report(result, target)


def _counts_alone(
    suite: str, measured: GatedCounters, new: dict[str, Counter], profile: Trace | None, tolerance: float
) -> GateResult:
    """What two profiles, or two files of the user's, count; nothing runs."""
    from timesink.verify.counters import gate_counters, times_note
    from timesink.verify.outcomes import GateResult

    old = counters(measured.metrics_before, earlier := captured(measured.capture_before))
    told = times_note(earlier, profile) if earlier and profile else ()
    return GateResult(suite, "counters", tuple(gate_counters(old, new, tolerance)), notes=told)


def limits(
    paths: Annotated[
        list[Path] | None,
        Argument("PATH", "Traces or reports whose numbers are held to each --limit; several are the ranks of one job."),
    ] = None,
    baseline: Annotated[
        list[Path] | None,
        Option("--baseline", "TRACE", "The trace or report that limits are relative to.", must=asked.there),
    ] = None,
    limit: Annotated[
        list[str] | None,
        Option(
            "--limit",
            "LIMIT",
            "Such as 'dram_pct >= 0.95x', 'mean(kernels.mean_ns[name~gemm]) <= 3 us', "
            "'call_times.time_ratio[name=cudaLaunchKernel] +- 2 points'; repeatable.",
            must=asked.table_limit,
        ),
    ] = None,
    suite: Annotated[str, SUITE] = "",
    *,
    writing: GateReports,
) -> int:
    """Hold numbers of a trace or report to limits; nothing runs.

    Several PATHs are the ranks of one job. Exits as `timesink gate` does.
    """
    held = paths or []
    target = writing.sink([*held, *(baseline or ())])
    if not held:
        remedy = "timesink gate --limits TRACE --limit 'sum(kernels.count) <= 2700'"
        raise UsageError("no trace or report is named", remedy=remedy)
    if not limit:
        where = f"[tool.timesink.suites.{suite or 'default'}] in pyproject.toml"
        raise UsageError(
            "no limits are given", remedy=f"add --limit 'sum(kernels.count) <= 2700', or limits to {where}"
        )
    from timesink.verify.limit_texts import needs_other, parse_limit

    bounds = [parse_limit(text) for text in limit]
    if relative := next((bound for bound in bounds if bound.needs_other and not baseline), None):
        raise needs_other(relative)
    from timesink.verify.table_limits import gate_tables

    old = read_traces(baseline) if baseline else None
    return writing.report(gate_tables(bounds, read_traces(held), old, suite), target)


class KeptCounters(Record, kw_only=True):
    """Counters that a baseline keeps besides the step time."""

    metrics: Annotated[Path | None, Option("--metrics", "FILE", "Counters to keep, as JSON.")] = None
    capture: Annotated[
        list[Path] | None,
        Option(
            "--capture", "TRACE", "A profile, or a log of the compiler (repeatable), whose shares and counts to keep."
        ),
    ] = None


class AddedRuns(Record, kw_only=True):
    """How many runs are added, to which baseline."""

    runs: Annotated[int, Option("--runs", "N", "Runs to add.")] = 10
    fresh: Annotated[
        bool, Option("--replace", "", "Forget earlier runs: the program changed its speed on purpose.")
    ] = False
    suite: Annotated[str, SUITE] = "default"
    root: Annotated[Path, ROOT] = Path(".timesink")


def update(
    reason: Annotated[str, Option("--reason", "TEXT", "Why the baseline changes; kept in the file.")],
    program: Annotated[list[str] | None, PROGRAM] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    *,
    added: AddedRuns,
    kept_counters: KeptCounters,
    times: StepTimeOptions,
    work: WorkFacts,
    session: RunSession,
) -> int:
    """Run the program, add its runs to the baseline of this environment, and show the difference."""
    if not reason.strip():
        raise UsageError("an update needs a reason", remedy="say why with --reason")
    if added.runs < 1:
        raise UsageError(f"{added.runs} runs add nothing", remedy="make at least 1, better 10")
    command = one_command(program)
    from timesink.verify import baseline as baselines
    from timesink.verify.baseline import add_runs
    from timesink.verify.environment import environment

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
    measured = counters(kept_counters.metrics, captured(kept_counters.capture))
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


def check(
    paths: Annotated[list[Path], Argument("FILE", "pyproject.toml, or baselines and calibrations.")],
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


def show(
    suite: Annotated[str, SUITE] = "default", root: Annotated[Path, ROOT] = Path(".timesink"), *, writing: PageOutput
) -> int:
    """List the stored baselines of a suite."""
    from timesink.verify import baseline as baselines
    from timesink.views.verify import baselines_page

    folder = root / "baselines" / suite
    writing.sink().show(
        baselines_page(folder, [(path, baselines.read(path)) for path in sorted(folder.glob("*.json"))])
    )
    return 0


app = Commands(
    "Keep baselines: run summaries of the trunk, committed beside the code.",
    {"update": update, "check": check, "show": show},
)
