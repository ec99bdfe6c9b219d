"""An export as it looks through a window: of each table the rows that `Trace.within` may keep, and few others.

Rows of GPU work are those that touch the window. The host's begin earlier, at the launch of the first kernel that
starts in it; synchronisations reach on to the end of the last call, for the call says what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from timesink.model.cut import touching
from timesink.model.trace import ImportNote, Trace, Window
from timesink.readers.nsys.assemble import Survey, survey, trace_of
from timesink.readers.nsys.database import Database
from timesink.readers.nsys.device import owned
from timesink.readers.nsys.export import (
    CALLS,
    CUDA_EVENTS,
    DEVICE_WORK,
    EVENT_SOURCES,
    METRICS,
    NVTX,
    SCHEDULING,
    SYNCHRONISATIONS,
    Export,
    Keep,
    Source,
    outside,
    turns,
    within,
)
from timesink.readers.nsys.folder import Folder
from timesink.readers.nsys.nvtx import domain_numbers, range_numbers
from timesink.readers.nsys.processes import process_of
from timesink.readers.nsys.session import capture_of

_LAUNCHES = Source(CALLS.name, {"start": "int64", "globalTid": "int64", "correlationId": "int64"}, ("start",))


@dataclass(frozen=True, slots=True)
class OpenedExport:
    """An export that was looked through once."""

    export: Database | Folder
    path: Path
    format: str
    origin_ns: int
    seen: Survey
    extent_ns: tuple[int, int]

    def within(self, window: Window) -> Trace:
        """The trace of the window."""
        fresh = replace(self.export, notes=[*self.export.notes])
        cut = _cut_export(fresh, window.start_ns - self.origin_ns, window.end_ns - self.origin_ns)
        return trace_of(cut, self.path, self.format, self.seen).within(window)


def opened(export: Database | Folder, path: Path, format_name: str) -> OpenedExport | Trace:
    """The export, looked through; one without GPU work and calls is small and read at once."""
    quiet = replace(export, notes=[])
    seen, origin_ns = survey(quiet), capture_of(quiet, []).origin_ns
    if seen.extent is None:
        return trace_of(export, path, format_name)
    first, last = seen.extent
    return OpenedExport(export, path, format_name, origin_ns, seen, (first + origin_ns, last + origin_ns))


@dataclass(frozen=True, slots=True)
class _CutExport:
    """Times are on the export's own clock. `held` are tables read already, each handed out once."""

    whole: Export
    start: int
    end: int
    lead: int
    synced_until: int
    held: dict[Source, pl.DataFrame]

    @property
    def path(self) -> Path:
        return self.whole.path

    @property
    def tables(self) -> Mapping[str, frozenset[str]]:
        return self.whole.tables

    @property
    def notes(self) -> list[ImportNote]:
        return self.whole.notes

    def read(self, source: Source, keep: Keep | None = None) -> pl.DataFrame:
        """The table's rows of the window; all rows of a table that has no times."""
        if source in self.held:
            return self.held.pop(source)
        return self.whole.read(source, keep or self._keep(source))

    def _keep(self, source: Source) -> Keep | None:
        if source not in EVENT_SOURCES or source is CUDA_EVENTS:
            return None
        if source is SCHEDULING:
            return turns(self.lead, self.end)
        if source is NVTX:
            return _ranges(self.whole, self.lead, self.end)
        start = self.start if source is METRICS else self.lead
        return within(source, start, self.synced_until if source is SYNCHRONISATIONS else self.end)


def _cut_export(export: Database | Folder, start: int, end: int) -> _CutExport:
    held = {source: export.read(source, within(source, start, end)) for source in DEVICE_WORK}
    lead = _lead(export, held, start, end)
    held[CALLS] = export.read(CALLS, within(CALLS, lead, end))
    last = held[CALLS]["end"].max()
    synced_until = max(end, last) if isinstance(last, int) else end
    return _CutExport(export, start, end, lead, synced_until, held)


def _lead(export: Database | Folder, held: Mapping[Source, pl.DataFrame], start: int, end: int) -> int:
    """When the first of the ops that start in the window was launched, or the window's start where that is earlier."""
    work = owned(export, {source.name: frame for source, frame in held.items()})
    inside = pl.col("start").is_between(start, end, closed="left")
    begun = pl.concat([frame.filter(inside).select("process", "correlationId") for frame in work.values()])
    begun = begun.drop_nulls().unique()
    if not begun.height:
        return start
    low, high = begun.select(pl.col("correlationId").min(), pl.col("correlationId").max().alias("high")).row(0)

    def rows(batch: pl.DataFrame) -> pl.DataFrame:
        early = batch.filter(pl.col("start") < start)
        return early.with_columns(process_of(early["globalTid"])).join(
            begun, on=["process", "correlationId"], how="semi"
        ).select(batch.columns)  # fmt: skip

    behind = f'typeof("start") = \'integer\' AND "start" >= {start}'
    other = f'typeof("correlationId") = \'integer\' AND "correlationId" NOT BETWEEN {low} AND {high}'
    quiet = replace(export, notes=[])  # the calls are read again, and their losses noted then
    first = quiet.read(_LAUNCHES, Keep(rows, f"({behind}) OR ({other})"))["start"].min()
    return first if isinstance(first, int) else start


def _ranges(export: Export, start: int, end: int) -> Keep:
    """NVTX: the ranges of the window, those that were never closed, and the name of every domain."""
    domains, ranges = sorted(domain_numbers(export)), sorted(range_numbers(export))
    touches = touching(start, end, ("start", "end")).fill_null(False)
    still_open = pl.col("end").is_null() & (pl.col("start") < end) & pl.col("eventType").is_in(ranges)
    names = pl.col("eventType").is_in(domains).fill_null(False)
    listed = ", ".join(str(number) for number in domains) or "NULL"
    no_name = f'typeof("eventType") = \'integer\' AND "eventType" NOT IN ({listed})'
    return Keep(lambda batch: batch.filter(touches | still_open | names), f"({no_name}) AND ({outside(start, end)})")
