"""What every kind of export does with a table it has fetched: complete its columns, leave out its damaged rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import CALLS, DEVICE_WORK, POLARS_TYPE, STRINGS, Source
from timesink.readers.nsys.keep import Keep
from timesink.readers.nsys.opened import EXPORT_AGAIN

# Without these a trace would look idle, or its kernels nameless, where it is only unreadable.
INDISPENSABLE = frozenset(source.name for source in (*DEVICE_WORK, CALLS, STRINGS))


def readable(path: Path, source: Source, columns: frozenset[str], notes: list[ImportNote]) -> bool:
    """Whether the table can be read at all. `UnreadableTrace` where it holds GPU work or CUDA calls and cannot."""
    if not columns:
        return False
    lacking = ", ".join(name for name in source.required if name not in columns)
    if lacking and source.name in INDISPENSABLE:
        raise UnreadableTrace(path, f"no column {lacking}", place=f"table {source.name}", remedy=EXPORT_AGAIN)
    if lacking:
        message = f"table {source.name} has no column {lacking}, so it was not read"
        notes.append(ImportNote(NoteKind.DATA_LOSS, message, 0, source.name))
    return not lacking and any(name in columns for name in source.columns)


def nothing(source: Source) -> pl.DataFrame:
    """No rows, with the wanted columns."""
    return pl.DataFrame(schema={name: POLARS_TYPE[kind] for name, kind in source.columns.items()})


def kept(frame: pl.DataFrame, source: Source, keep: Keep | None) -> pl.DataFrame:
    """The rows to keep of a part of the table, whose columns may be fewer than the source's."""
    if keep is None:
        return frame
    absent = [name for name in source.columns if name not in frame.columns]
    nulls = (pl.lit(None, dtype=POLARS_TYPE[source.columns[name]]).alias(name) for name in absent)
    return keep.rows(frame.with_columns(nulls)).select(frame.columns)


def completed(frame: pl.DataFrame, source: Source, notes: list[ImportNote]) -> pl.DataFrame:
    """Exactly the wanted columns, absent ones null; rows without a required value are left out and counted."""
    absent = [name for name in source.columns if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None, dtype=POLARS_TYPE[source.columns[name]]).alias(name) for name in absent)
    frame = frame.select(*source.columns)
    if not source.required or not frame.height:
        return frame
    kept = frame.drop_nulls(source.required)
    if lost := frame.height - kept.height:
        message = f"rows of {source.name} without a usable {' or '.join(source.required)}"
        notes.append(ImportNote(NoteKind.DATA_LOSS, message, lost, source.name))
    return kept


def spoiled_note(source: Source, count: int) -> list[ImportNote]:
    """The note for cells that hold something else than their column should."""
    message = f"cells of {source.name} that do not hold what their column should, read as missing"
    return [ImportNote(NoteKind.DATA_LOSS, message, count, source.name)] if count else []
