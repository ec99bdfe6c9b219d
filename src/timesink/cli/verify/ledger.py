"""`timesink ledger`: what was expected of changes, and what they brought."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import memory, options
from timesink.cli.output import sink
from timesink.cli.verify import setup as given
from timesink.errors import UsageError

if TYPE_CHECKING:
    from timesink.verify.ledger import Entry, Gain
    from timesink.views.page import Page

app = options.Commands(help="Keep predictions and what became of them.", rich_markup_mode=None)

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
def list_entries(
    context: typer.Context,
    root: given.Root = Path(".timesink"),
    form: given.Form = None,
    output: options.OutputFile = None,
    no_color: options.NoColor = False,
) -> int | None:
    """List every hypothesis with its predicted and measured gain, and how good predictions are here."""
    if context.invoked_subcommand is not None:
        context.obj = root
        return None
    from timesink.verify import ledger

    sink(form, output, no_color).show(_page(ledger.read(root / "ledger.jsonl")))
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
    sink(None, None, True).show(_page([entry]))
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


def _page(entries: list[Entry]) -> Page:
    from timesink.verify.ledger import track_record
    from timesink.views.page import Column, Page, Sheet

    columns = (
        Column("number", "no.", "1"),
        Column("opened", "opened"),
        Column("hypothesis", "hypothesis"),
        Column("finding", "finding", is_name=True),
        Column("predicted_ms", "predicted", "ms"),
        Column("outcome", "outcome"),
        Column("measured_ms", "measured", "ms"),
        Column("error_ms", "error", "ms"),
        Column("within", "as predicted"),
    )
    rows = tuple(
        (
            entry.number,
            entry.opened[:10],
            entry.hypothesis,
            entry.finding,
            entry.predicted.value_ms if entry.predicted else None,
            str(entry.outcome) if entry.outcome else "open",
            entry.measured.value_ms if entry.measured else None,
            entry.error_ms,
            entry.within,
        )
        for entry in entries
    )
    found = track_record(entries)
    note = f"{found.within} of {found.compared} measured gains lie in their predicted interval"
    if found.median_ratio is not None:
        note += f"; measured over predicted: {found.median_ratio:.2f} (median)"
    return Page("Ledger", (Sheet("entries", "Entries", columns, rows, note if found.compared else ""),))
