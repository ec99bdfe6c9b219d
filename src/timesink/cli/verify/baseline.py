"""`timesink baseline`: make, update and show stored baselines."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from timesink import __version__
from timesink.cli.options import Commands, OutputFile, PageOutput, argument, flag, option
from timesink.cli.output import sink
from timesink.cli.verify.runs import Program, Root, RunSession, StepTimeOptions, Suite, WorkFacts, counters, one_command
from timesink.errors import UsageError
from timesink.model.record import dataclass, replace

if TYPE_CHECKING:
    from timesink.verify.baseline import Baseline

app = Commands(help="Keep baselines: run summaries of the trunk, committed beside the code.")

Why = Annotated[str, option("--reason", "TEXT", "Why the baseline changes; kept in the file.")]
Metrics = Annotated[Path | None, option("--metrics", "FILE", "Counters to keep, as JSON.")]
Captured = Annotated[
    list[Path] | None,
    option("--capture", "TRACE", "A profile, or a log of the compiler (repeatable), whose shares and counts to keep."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCounters:
    """Counters that a baseline keeps besides the step time."""

    metrics: Metrics = None
    capture: Captured = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedRuns:
    """How many runs are added, to which baseline."""

    runs: Annotated[int, option("--runs", "N", "Runs to add.")] = 10
    fresh: Annotated[bool, flag("--replace", "Forget earlier runs: the program changed its speed on purpose.")] = False
    sha: Annotated[str, option("--sha", "COMMIT", "The commit that was timed.")] = ""
    suite: Suite = "default"
    root: Root = Path(".timesink")


@app.command("update")
def update(
    reason: Why,
    program: Program = None,
    output: OutputFile = None,
    *,
    added: AddedRuns,
    kept_counters: KeptCounters,
    times: StepTimeOptions,
    work: WorkFacts,
    session: RunSession,
) -> int:
    """Run the program, add its runs to the baseline of this environment, and show the difference."""
    from timesink.verify import baseline as baselines
    from timesink.verify.baseline import updated
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
    reason_given = (now.date().isoformat(), reason, added.sha)
    new = updated(kept, baselines.summaries(rows[1:], now, added.sha), measured, reason_given)
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
    from timesink.verify.records import BrokenRecord

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
    paths: Annotated[list[Path], argument("FILE", "pyproject.toml, or baselines and calibrations.")],
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
def show(suite: Suite = "default", root: Root = Path(".timesink"), *, writing: PageOutput) -> int:
    """List the stored baselines of a suite."""
    from timesink.verify import baseline as baselines
    from timesink.views.verify import baselines_page

    folder = root / "baselines" / suite
    writing.sink().show(
        baselines_page(folder, [(path, baselines.read(path)) for path in sorted(folder.glob("*.json"))])
    )
    return 0
