"""`timesink ledger`: what was expected of changes, and what they brought."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import memory
from timesink.cli.options import Commands, PageOutput
from timesink.cli.output import sink
from timesink.cli.verify.runs import Root
from timesink.errors import UsageError

if TYPE_CHECKING:
    from timesink.verify.ledger import Gain

app = Commands(help="Keep predictions and what became of them.", rich_markup_mode=None)

Predicted = Annotated[
    str | None,
    typer.Option(
        "--predicted", metavar="LOW,VALUE,HIGH", help="Milliseconds per step it should win.", show_default=False
    ),
]
Measured = Annotated[
    str | None,
    typer.Option("--measured", metavar="LOW,VALUE,HIGH", help="Milliseconds per step it won.", show_default=False),
]
Finding = Annotated[str, typer.Option("--finding", metavar="CODE", help="The finding it rests on.")]
Change = Annotated[str, typer.Option("--change", metavar="TEXT", help="The commit, or what is changed.")]


@app.callback(invoke_without_command=True)
def list_entries(context: typer.Context, root: Root = Path(".timesink"), *, writing: PageOutput) -> int | None:
    """List every hypothesis with its predicted and measured gain, and how good predictions are here."""
    if context.invoked_subcommand is not None:
        context.obj = root
        return None
    from timesink.verify import ledger
    from timesink.views.verify import ledger_page

    writing.sink().show(ledger_page(ledger.read(root / "ledger.jsonl")))
    return 0


@app.command("add")
def add(
    context: typer.Context,
    hypothesis: Annotated[str, typer.Argument(help="What should get faster, and why.")],
    finding: Finding = "",
    predicted: Predicted = None,
    change: Change = "",
) -> int:
    """Open an entry, before the change is verified."""
    from timesink.verify import ledger

    entry = ledger.add(context.obj / "ledger.jsonl", hypothesis, finding, _gain(predicted), change)
    sink(None, None, True).write(f"{entry.number}\n")
    return 0


@app.command("close")
def close(
    context: typer.Context,
    number: Annotated[int, typer.Argument(help="The entry.")],
    outcome: Annotated[
        str, typer.Option("--outcome", help="slower, faster, 'no difference', inconclusive or invalid.")
    ],
    measured: Measured = None,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="What was learned.")] = "",
    change: Change = "",
) -> int:
    """Close an entry by hand; `timesink verify --ledger N` closes it with what it measured."""
    from timesink.verify import ledger
    from timesink.verify.outcomes import Outcome

    if outcome not in list(Outcome):
        raise UsageError(f"{outcome!r} is no outcome", remedy=f"choose one of: {', '.join(Outcome)}")
    path = context.obj / "ledger.jsonl"
    entry = ledger.close(path, number, Outcome(outcome), _gain(measured), note, change)
    from timesink.views.verify import ledger_page

    sink(None, None, True).show(ledger_page([entry]))
    return 0


# The ledger of memory goes by the same name; `timesink memory` has the same three commands.
for _name, _command in (("show", memory.show), ("plan", memory.plan), ("diff", memory.diff)):
    app.command(_name)(_command)


def _gain(text: str | None) -> Gain | None:
    from timesink.verify.ledger import Gain

    if text is None:
        return None
    try:
        low, value, high = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} is no gain", remedy="write three numbers: low,value,high") from None
    return Gain(value, low, high)
