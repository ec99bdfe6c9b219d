"""What every table of one export shares while it is turned into canonical tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from timesink.model.schema import Table
from timesink.model.stacking import lean
from timesink.model.trace import ImportNote
from timesink.readers.nsys.capture import Capture, timed
from timesink.readers.nsys.export import Export, Source
from timesink.readers.nsys.processes import Ranks, process_of, thread_of
from timesink.readers.nsys.strings import Strings


@dataclass(frozen=True, slots=True)
class Session:
    """One export being read. `notes` grows; everything else is fixed."""

    export: Export
    capture: Capture
    strings: Strings
    ranks: Ranks
    notes: list[ImportNote] = field(default_factory=list)

    def has(self, source: Source) -> bool:
        """Whether the export holds the table."""
        return source.name in self.export.tables

    def rows(self, source: Source) -> pl.DataFrame:
        """The table's sound rows, on the trace's clock."""
        return self.timed(self.export.read(source), source)

    def timed(self, frame: pl.DataFrame, source: Source) -> pl.DataFrame:
        """The rows whose times make sense, on the trace's clock."""
        return timed(frame, self.capture.origin_ns, self.notes, source.name)

    def whose(self, ids: pl.Series) -> dict[str, pl.Series]:
        """Rank, process and thread columns of serialized ids."""
        process = process_of(ids)
        return {"rank": self.ranks.of(process), "process": process, "thread": thread_of(ids)}


def unsorted(table: Table, columns: Mapping[str, Any]) -> pl.DataFrame:
    """A checked frame of the table, in the order given: a part that `joined` will put in its place."""
    return replace(table, sorted_by=()).build(columns)


def joined(table: Table, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The parts as one table in its declared order; rows that tie keep the order of the parts."""
    if not parts:
        return table.empty()
    frame = pl.concat(parts, rechunk=False) if len(parts) > 1 else parts[0]
    ordered = _ordered(frame, table.sorted_by)
    del frame
    return table.check(pl.DataFrame([lean(column) for column in ordered]))


def _ordered(frame: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """Sorted by `by`. Profilers write each thread's and each stream's events nearly in order, so the groups that the
    leading columns make are sorted one by one, by time: much cheaper than one sort by all columns.
    """
    times = tuple(name for name in by if name.endswith("_ns"))
    leading = by[: len(by) - len(times)]
    if not leading or by != (*leading, *times):
        return frame.sort(by, maintain_order=True)
    if all(frame[name].min() == frame[name].max() for name in leading):
        return _by_time(frame, times)
    parts = frame.partition_by(leading, maintain_order=True)
    parts.sort(key=lambda part: part.select(leading).row(0))
    return pl.concat([_by_time(part, times) for part in parts], rechunk=True)


def _by_time(part: pl.DataFrame, times: tuple[str, ...]) -> pl.DataFrame:
    first = times[0]
    if not part[first].is_sorted():
        part = part.sort(first, maintain_order=True)
    for later in times[1:]:
        tied = (pl.col(first) == pl.col(first).shift(1)) & (pl.col(later) < pl.col(later).shift(1))
        if part.select(tied.any()).item():
            return part.sort(times, maintain_order=True)
    return part
