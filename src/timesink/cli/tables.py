"""`timesink tables`: what a file holds, as timesink sees it."""

from __future__ import annotations

from timesink.cli import options
from timesink.cli.output import sink
from timesink.cli.reading import read_traces


def command(
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
    from timesink.reporters.sheets import Column, Page, Sheet

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
