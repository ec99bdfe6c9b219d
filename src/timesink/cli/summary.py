"""`timesink summary`: the figures, without judgement.

`timesink tables`: what a file holds, as timesink sees it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from timesink.cli import options
from timesink.cli.output import sink, working
from timesink.cli.reading import read_traces


def command(
    paths: options.Paths,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Rows per table.")] = 10,
    form: options.Form = None,
    output: options.Output = None,
    ranks: options.Ranks = None,
    window: options.Window = None,
    linked_only: options.LinkedOnly = False,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """Show budget, steps, kernels, copies, waits and launches.

    Figures only: `timesink diagnose` says which of them matter.
    """
    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window, linked_only=linked_only)
    with working("measuring"):
        from timesink.views.summary import summary_page

        page = summary_page(trace, top)
    target.page(page)
    return 0


def tables(
    paths: options.Paths,
    form: options.Form = None,
    output: options.Output = None,
    ranks: options.Ranks = None,
    window: options.Window = None,
    no_cache: options.NoCache = False,
    no_color: options.NoColor = False,
) -> int:
    """List what a trace holds and what was lost on the way."""
    from timesink.model.tables import ALL
    from timesink.views.page import Column, Page, Sheet

    target = sink(form, output, no_color, paths)
    trace = read_traces(paths, ranks=ranks, cache=not no_cache, window=window)
    tables = Sheet(
        "tables",
        "Tables",
        (
            Column("table", "table", is_name=True),
            Column("rows", "rows", unit="1"),
            Column("size_bytes", "in memory", unit="bytes"),
            Column("doc", "holds"),
        ),
        tuple(
            (table.name, trace[table].height, trace[table].estimated_size(), table.doc)
            for table in ALL
            if table in trace
        ),
        _absent([table.name for table in ALL if table not in trace]),
    )
    notes = Sheet(
        "import_notes",
        "What the reader has to say",
        (
            Column("kind", "kind", is_name=True),
            Column("table", "table", is_name=True),
            Column("count", "rows", unit="1"),
            Column("message", "note"),
        ),
        tuple((note.kind.value, note.table or None, note.count or None, note.message) for note in trace.notes),
    )
    target.page(Page(trace.source, (tables, notes)))
    return 0


def _absent(names: list[str]) -> str:
    return f"not recorded: {', '.join(names)}" if names else ""
