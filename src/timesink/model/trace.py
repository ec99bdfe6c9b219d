"""A trace: checked tables on one clock, and notes on what was lost on the way to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import polars as pl

from timesink.model.schema import Table


class NoteKind(StrEnum):
    """DATA_LOSS: the file held something we could not keep. ASSUMED: we had to choose. SKIPPED: known and left out."""

    DATA_LOSS = "data_loss"
    ASSUMED = "assumed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class ImportNote:
    """One thing the reader has to say about the import: `count` rows of `table` are concerned."""

    kind: NoteKind
    message: str
    count: int = 0
    table: str = ""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Trace:
    """Tables of one or more ranks. An absent table was not recorded; an empty table recorded that nothing happened.

    `source` names the file or files for people; times in every table are int64 nanoseconds on one clock.
    """

    source: str
    tables: Mapping[Table, pl.DataFrame]
    notes: tuple[ImportNote, ...] = field(default=())

    def __contains__(self, table: Table) -> bool:
        return table in self.tables

    def __getitem__(self, table: Table) -> pl.DataFrame:
        return self.tables[table]

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    def get(self, table: Table) -> pl.DataFrame:
        """The table, or an empty one where it was not recorded: for measures that need no distinction."""
        frame = self.tables.get(table)
        return table.empty() if frame is None else frame

    def between(self, start_ns: int, end_ns: int) -> Trace:
        """The rows that touch the half-open window. Rows are kept whole, not cut."""
        kept = {table: _touching(table, frame, start_ns, end_ns) for table, frame in self.tables.items()}
        return replace(self, tables=kept)

    def with_notes(self, *notes: ImportNote) -> Trace:
        """The same trace with more to say about its import."""
        return replace(self, notes=(*self.notes, *notes))


def _touching(table: Table, frame: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    columns = table.columns
    if "start_ns" in columns and "end_ns" in columns and columns["start_ns"].nullable is False:
        return frame.filter((pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns))
    if "time_ns" in columns:
        return frame.filter((pl.col("time_ns") >= start_ns) & (pl.col("time_ns") < end_ns))
    return frame
