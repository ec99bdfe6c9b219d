"""A trace: checked tables on one clock, and notes on what was lost on the way to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import polars as pl

from timesink.model.schema import Table
from timesink.model.window import Window


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

    `source` names the file or files for people; times in every table are int64 nanoseconds on one clock. `window` is
    what the trace was cut to, None for a whole recording.
    """

    source: str
    tables: Mapping[Table, pl.DataFrame]
    notes: tuple[ImportNote, ...] = field(default=())
    window: Window | None = None

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

    @property
    def extent_ns(self) -> tuple[int, int] | None:
        """First and last moment of what was recorded, or None where nothing has a time (see `model.cut`)."""
        from timesink.model.cut import extent_ns

        if self.window is not None:
            return self.window.first_ns, self.window.last_ns
        return extent_ns(self.tables)

    def between(self, start_ns: int, end_ns: int) -> Trace:
        """The rows of the half-open window, whole: device work that touches it, and the host's from the launch of the
        first kernel in it on (`model.cut` says which and why). Steps it cuts count as truncated, and GPU time outside
        of it as neither busy nor idle.
        """
        first_ns, last_ns = self.extent_ns or (start_ns, end_ns)
        return self.within(Window(start_ns, end_ns, first_ns, last_ns))

    def within(self, window: Window) -> Trace:
        """As `between`, where the window also says how long the recording is: as long as that of all ranks, say."""
        from timesink.model.cut import cut

        return replace(self, tables=cut(self.tables, window.start_ns, window.end_ns), window=window)

    def with_notes(self, *notes: ImportNote) -> Trace:
        """The same trace with more to say about its import."""
        return replace(self, notes=(*self.notes, *notes))
