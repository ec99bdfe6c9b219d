"""`timesink ledger`: what was expected of changes, and what they brought."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import completion
from timesink.cli.options import Commands, PageOutput, argument, option
from timesink.cli.output import sink
from timesink.cli.verify.runs import Root
from timesink.errors import UsageError
from timesink.verify.outcomes import Outcome

if TYPE_CHECKING:
    from timesink.verify.ledger import Gain

app = Commands(help="Keep predictions and what became of them.")

Predicted = Annotated[str | None, option("--predicted", "LOW,VALUE,HIGH", "Milliseconds per step it should win.")]
Measured = Annotated[str | None, option("--measured", "LOW,VALUE,HIGH", "Milliseconds per step it won.")]
Finding = Annotated[str, option("--finding", "CODE", "The finding it rests on.", autocompletion=completion.rules)]
Change = Annotated[str, option("--change", "TEXT", "The commit, or what is changed.")]


@app.callback(invoke_without_command=True)
def list_entries(context: typer.Context, root: Root = Path(".timesink"), *, writing: PageOutput) -> int | None:
    """Keep predictions and what became of them; without a command, list them."""
    if context.invoked_subcommand is not None:
        context.obj = root
        return None
    return _list(root, None, writing)


@app.command("show")
def show(
    context: typer.Context,
    number: Annotated[int | None, argument("N", "This entry alone.")] = None,
    *,
    writing: PageOutput,
) -> int:
    """List every hypothesis with its predicted and measured gain, and how good predictions are here."""
    return _list(context.obj, number, writing)


def _list(root: Path, number: int | None, writing: PageOutput) -> int:
    from timesink.verify import ledger
    from timesink.views.verify import ledger_page

    entries = ledger.read(root / "ledger.jsonl")
    if number is not None:
        known = ", ".join(str(entry.number) for entry in entries) or "none yet: timesink ledger add opens one"
        entries = [entry for entry in entries if entry.number == number]
        if not entries:
            raise UsageError(f"the ledger has no entry {number}", remedy=f"its entries: {known}")
    writing.sink().show(ledger_page(entries))
    return 0


@app.command("add")
def add(
    context: typer.Context,
    hypothesis: Annotated[str, argument("HYPOTHESIS", "What should get faster, and why.")],
    finding: Finding = "",
    predicted: Predicted = None,
    change: Change = "",
) -> int:
    """Open an entry, before the change is verified."""
    from timesink.diagnosis.registry import find
    from timesink.verify import ledger

    code = find(finding).code if finding else ""
    path = context.obj / "ledger.jsonl"
    entry = ledger.add(path, hypothesis, code, _gain(predicted), change)
    sink(None, None, True).write(
        f"Entry {entry.number} is open in {path}. `timesink verify --ledger {entry.number}` closes it with what it "
        "measures.\n"
    )
    return 0


@app.command("close")
def close(
    context: typer.Context,
    number: Annotated[int, argument("N", "The entry.")],
    outcome: Annotated[
        Outcome, option("--outcome", "OUTCOME", "slower, faster, 'no difference', inconclusive or invalid.")
    ],
    measured: Measured = None,
    note: Annotated[str, option("--note", "TEXT", "What was learned.")] = "",
    change: Change = "",
) -> int:
    """Close an entry by hand; `timesink verify --ledger N` closes it with what it measured."""
    from timesink.verify import ledger

    path = context.obj / "ledger.jsonl"
    entry = ledger.close(path, number, outcome, _gain(measured), note, change)
    from timesink.views.verify import ledger_page

    sink(None, None, True).show(ledger_page([entry]))
    return 0


def _gain(text: str | None) -> Gain | None:
    from timesink.verify.ledger import Gain

    if text is None:
        return None
    try:
        low, value, high = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} is no gain", remedy="write three numbers: low,value,high") from None
    return Gain(value, low, high)
