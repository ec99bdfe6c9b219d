"""What is read from an Nsight Systems export, and what becomes of damaged rows.

Any table and any column may be missing: tables are created when their first event is, and every release adds columns.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge.nsys_tables import (
    CALLS,
    COPIES,
    DECLARED,
    GRAPHS,
    KERNELS,
    SETS,
    STRINGS,
    ExportTable,
)
from timesink.model.trace import ImportNote, NoteKind, noted

POLARS_TYPE: Mapping[str, type[pl.DataType]] = {
    "int64": pl.Int64, "int32": pl.Int32, "real": pl.Float64, "text": pl.String,
}  # fmt: skip


Keep = Callable[[pl.DataFrame], pl.DataFrame]
"""Takes the wanted rows out of a batch, which has the columns of its source."""


class Export(Protocol):
    """A readable export. `notes` collects what was lost; it grows while tables are read."""

    @property
    def path(self) -> Path:
        """The file or folder, as it was named."""

    @property
    def tables(self) -> Mapping[str, frozenset[str]]:
        """Names of the readable tables, with the columns that each has."""

    @property
    def notes(self) -> list[ImportNote]:
        """What could not be read."""

    def read(self, source: ExportTable, keep: Keep | None = None) -> pl.DataFrame:
        """All rows or those to keep, with exactly the wanted columns: those that the export lacks are null."""


DEVICE_WORK: Final = (KERNELS, COPIES, SETS, GRAPHS)
KNOWN = frozenset(source.name for source in DECLARED)
# Without these a trace would look idle, or its kernels nameless, where it is only unreadable.
INDISPENSABLE = frozenset(source.name for source in (*DEVICE_WORK, CALLS, STRINGS))
EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"


def unread_note(tables: Sequence[str]) -> tuple[ImportNote, ...]:
    """One note that names the event tables which hold rows and have no place in the canonical tables."""
    shown = ", ".join(tables[:8]) + (f" and {len(tables) - 8} more" if len(tables) > 8 else "")
    return noted(NoteKind.SKIPPED, f"tables with events that are not read: {shown}", len(tables))


def readable(path: Path, source: ExportTable, columns: frozenset[str], notes: list[ImportNote]) -> bool:
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


def no_rows(source: ExportTable) -> pl.DataFrame:
    """No rows, with the wanted columns."""
    return pl.DataFrame(schema={name: POLARS_TYPE[kind] for name, kind in source.columns.items()})


def with_absent(frame: pl.DataFrame, source: ExportTable) -> pl.DataFrame:
    """The rows with the wanted columns that the export lacks, null."""
    absent = [name for name in source.columns if name not in frame.columns]
    return frame.with_columns(pl.lit(None, dtype=POLARS_TYPE[source.columns[name]]).alias(name) for name in absent)


def kept_rows(frame: pl.DataFrame, source: ExportTable, keep: Keep | None) -> pl.DataFrame:
    """The rows to keep of a part of the table, whose columns may be fewer than the source's."""
    return frame if keep is None else keep(with_absent(frame, source)).select(frame.columns)


def complete_columns(frame: pl.DataFrame, source: ExportTable, notes: list[ImportNote]) -> pl.DataFrame:
    """Exactly the wanted columns, absent ones null; rows without a required value are left out and counted."""
    frame = with_absent(frame, source).select(*source.columns)
    if not source.required or not frame.height:
        return frame
    sound = frame.drop_nulls(source.required)
    message = f"rows of {source.name} without a usable {' or '.join(source.required)}"
    notes.extend(noted(NoteKind.DATA_LOSS, message, frame.height - sound.height, source.name))
    return sound


def spoiled_note(source: ExportTable, count: int) -> tuple[ImportNote, ...]:
    """The note for cells that hold something else than their column should."""
    message = f"cells of {source.name} that do not hold what their column should, read as missing"
    return noted(NoteKind.DATA_LOSS, message, count, source.name)
