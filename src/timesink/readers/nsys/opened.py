"""How every SQLite connection of this package is opened, and the one limit they share.

What every kind of export does with a table it has fetched: complete its columns, leave out its damaged rows.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import CALLS, DEVICE_WORK, POLARS_TYPE, STRINGS, Keep, Source

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100
TEXT_CHARACTERS = 65_536
EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
_SMALLEST_ROW_BYTES = 4  # two bytes of pointer and two of cell


def uri_of(path: Path) -> str:
    """Read-only and immutable: no lock, no journal, no write-ahead log is touched."""
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


def pragmas_for(path: Path) -> tuple[str, ...]:
    """What to set first. SQLite opens a file that is cut off only where the schema counts as writable, which a
    read-only connection makes harmless.
    """
    stated, actual = size_of(path)
    cut = ("PRAGMA writable_schema=ON",) if actual < stated else ()
    return ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON", *cut)


def size_of(path: Path) -> tuple[int, int]:
    """Bytes that the header states, and bytes that are there."""
    with path.open("rb") as stream:
        head = stream.read(HEADER_BYTES)
    page_bytes = int.from_bytes(head[16:18], "big")
    return (65536 if page_bytes == 1 else page_bytes) * int.from_bytes(head[28:32], "big"), path.stat().st_size


def most_rows_in(path: Path) -> int:
    """More rows than this cannot lie in the file; a table that yields more has pages that refer to one another."""
    return path.stat().st_size // _SMALLEST_ROW_BYTES + 1


def endless(path: Path, table: str) -> UnreadableTrace:
    """The error for such a table."""
    message = f"it yields more than {most_rows_in(path)} rows, more than the file can hold: its pages form a loop"
    return UnreadableTrace(path, message, place=f"table {table}", remedy=EXPORT_AGAIN)


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
