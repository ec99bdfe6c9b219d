"""`timesink baseline`: make, update and show stored baselines."""

from __future__ import annotations

import difflib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink import __version__
from timesink.cli import options
from timesink.cli.output import sink, tell
from timesink.cli.verify import setup as given
from timesink.cli.verify.gate import counters
from timesink.cli.verify.setup import facts, one_command, session, step_source
from timesink.errors import UsageError

if TYPE_CHECKING:
    from timesink.verify.baseline import Baseline

app = options.Commands(
    help="Keep baselines: run summaries of the trunk, committed beside the code.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why the baseline changes; kept in the file.")]
Runs = Annotated[int, typer.Option("--runs", metavar="N", help="Runs to add.")]
Fresh = Annotated[
    bool, typer.Option("--replace", help="Forget earlier runs: the program changed its speed on purpose.")
]
Sha = Annotated[str, typer.Option("--sha", metavar="COMMIT", help="The commit that was timed.")]
Metrics = Annotated[
    Path | None, typer.Option("--metrics", metavar="FILE", help="Counters to keep, as JSON.", show_default=False)
]
Captured = Annotated[
    list[Path] | None,
    typer.Option(
        "--capture",
        metavar="TRACE",
        help="A profile, or a log of the compiler (repeatable), whose shares and counts to keep.",
        show_default=False,
    ),
]


@app.command("update")
def update(
    reason: Why,
    program: given.Program = None,
    runs: Runs = 10,
    fresh: Fresh = False,
    sha: Sha = "",
    metrics: Metrics = None,
    capture: Captured = None,
    step_pattern: given.StepPattern = None,
    receipt_pattern: given.ReceiptPattern = None,
    steps_json: given.StepsJson = None,
    config_file: given.ConfigFiles = None,
    fact: given.Facts = None,
    timeout: given.Timeout = 1800,
    keep: given.Keep = None,
    suite: given.Suite = "default",
    root: given.Root = Path(".timesink"),
    output: options.OutputFile = None,
) -> int:
    """Run the program, add its runs to the baseline of this environment, and show the difference."""
    from timesink.verify import baseline as baselines
    from timesink.verify.baseline import updated
    from timesink.verify.environment import environment, workload

    if not reason.strip():
        raise UsageError("an update needs a reason", remedy="say why with --reason")
    if runs < 1:
        raise UsageError(f"{runs} runs add nothing", remedy="make at least 1, better 10")
    command = one_command(program or ())
    here = environment(command)
    work = workload(command, config_file or (), facts(fact or ()))
    path = baselines.location(root, suite, here)
    old = stored(path, fresh)
    source = step_source(step_pattern, receipt_pattern, steps_json)
    with session({"before": command, "after": command}, source, timeout, keep) as made:
        rows = []
        for number in range(1, runs + 2):
            row = made.launch("before", number)
            tell(f"run {number} of {runs + 1}: {row.mean_s * 1e3:.4g} ms per step")
            rows.append(row)
    now = datetime.now(UTC)
    blank = baselines.Baseline(suite, here.hard, work, ())
    start = blank if old is None or fresh else replace(old, workload=work)
    if old is not None and old.workload != work and not fresh:
        raise UsageError("the baseline timed other work", remedy="start it anew with --replace")
    kept = replace(start, updates=old.updates if old else ())
    new = updated(
        kept, baselines.summaries(rows[1:], now, sha), counters(metrics, capture), (now.date().isoformat(), reason, sha)
    )
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


@app.command("show")
def show(
    suite: given.Suite = "default",
    root: given.Root = Path(".timesink"),
    form: given.Form = None,
    output: options.OutputFile = None,
    no_color: options.NoColor = False,
) -> int:
    """List the stored baselines of a suite."""
    from timesink.verify import baseline as baselines
    from timesink.views.page import Column, Page, Sheet

    found = [(path, baselines.read(path)) for path in sorted((root / "baselines" / suite).glob("*.json"))]
    columns = (
        Column("file", "file", is_name=True),
        Column("gpu", "GPU"),
        Column("runs", "runs", "1"),
        Column("newest", "newest run"),
        Column("counters", "counters", "1"),
        Column("reason", "last reason"),
    )
    rows = tuple(
        (
            str(path),
            one.environment.get("gpu", ""),
            len(one.runs),
            str(one.last_run or ""),
            len(one.counters),
            one.updates[-1][1] if one.updates else "",
        )
        for path, one in found
    )
    page = Page(f"Baselines of suite {suite}", (Sheet("baselines", "Baselines", columns, rows),))
    sink(form, output, no_color).show(page)
    return 0
