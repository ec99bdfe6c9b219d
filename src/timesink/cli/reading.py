"""From paths on the command line to the trace that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.cli.progress import working
from timesink.errors import UsageError
from timesink.scrub import scrub

if TYPE_CHECKING:
    from timesink.model.trace import Trace


def read_traces(
    paths: Sequence[Path],
    *,
    ranks: Sequence[int] | None = None,
    cache: bool = True,
    linked_only: bool = False,
    window: str | None = None,
) -> Trace:
    """The files as one trace, cut down to the window, the ranks and the GPU work asked for."""
    from timesink.model.window import Span

    span = None if window is None else Span.parse(window)
    names = scrub(paths[0].name) if len(paths) == 1 else f"{len(paths)} files"
    with working(f"reading {names}"):
        from timesink.readers import read_all

        trace = read_all(paths, cache=cache, window=span)
        if ranks:
            trace = only_ranks(trace, ranks)
        return only_linked(trace) if linked_only else trace


def only_ranks(trace: Trace, ranks: Sequence[int]) -> Trace:
    """The rows of those ranks. `UsageError` for a rank the trace has not."""
    import polars as pl

    from timesink.readers.ranks import ranks_of

    held = ranks_of(trace)
    absent = sorted(set(ranks) - set(held))
    if absent:
        raise UsageError(f"no rank {', '.join(map(str, absent))}", remedy=f"choose from {', '.join(map(str, held))}")
    tables = {table: frame.filter(pl.col("rank").is_in(list(ranks))) for table, frame in trace.tables.items()}
    return replace(trace, tables=tables)


def only_linked(trace: Trace) -> Trace:
    """Without the GPU work whose launch is not in the trace; a note says how much that is."""
    import polars as pl

    from timesink.measures.links import launch_links
    from timesink.model.tables import DEVICE_OPS
    from timesink.model.trace import ImportNote, NoteKind

    if DEVICE_OPS not in trace:
        return trace
    linked = launch_links(trace).linked
    kept = trace[DEVICE_OPS].filter(pl.Series(linked))
    left_out = trace[DEVICE_OPS].height - kept.height
    message = "GPU operations whose launch is not in the trace are left out (--linked-only)"
    note = ImportNote(NoteKind.SKIPPED, message, left_out, DEVICE_OPS.name)
    return replace(trace, tables={**trace.tables, DEVICE_OPS: kept}).with_notes(note)
