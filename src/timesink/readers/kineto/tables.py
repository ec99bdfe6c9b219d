"""From decoded columns to a checked trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from timesink.model.schema import Table
from timesink.model.tables import (
    API_CALLS,
    COLLECTIVES,
    DEVICE_OPS,
    DEVICES,
    EVENT_WAITS,
    FRAMES,
    HOST_OPS,
    MEMORY_EVENTS,
    PROFILER_OVERHEAD,
    RANGES,
    SETTINGS,
    SOURCES,
    SYNCS,
    THREADS,
)
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.kineto import collectives, device, host, sources
from timesink.readers.kineto.decoded import Decoded
from timesink.readers.kineto.notes import import_notes
from timesink.readers.kineto.survey import Survey


@dataclass(slots=True)
class Draft:
    """A trace in the making: what is true of the whole file, the tables so far, the notes so far."""

    decoded: Decoded
    whole: Survey | None
    rank: int
    process: int
    tables: dict[Table, pl.DataFrame]
    notes: list[ImportNote]

    def add(self, table: Table, columns: dict[str, Any] | None) -> None:
        """Build and keep a table; None means the file did not record it."""
        if columns is not None:
            self.tables[table] = table.build({"rank": self.rank, **columns})

    def note(self, kind: NoteKind, message: str, count: int = 0, table: Table | None = None) -> None:
        """Keep a note."""
        self.notes.append(ImportNote(kind, message, count, table.name if table else ""))


def to_trace(decoded: Decoded, reader_format: str, whole: Survey | None = None) -> Trace:
    """Every table the file can fill. A table is absent where the profiler did not record its kind of event.

    Where only a window was decoded, `whole` has what must be known of the rest: processes and GPUs.
    """
    draft = Draft(decoded, whole, sources.rank(decoded), 0, {}, [])
    draft.add(API_CALLS, host.api_calls(decoded))
    draft.add(HOST_OPS, host.host_ops(decoded))
    draft.add(RANGES, host.ranges(decoded, recorded=HOST_OPS in draft.tables))
    draft.add(FRAMES, host.frames(decoded))
    draft.process = _process(draft)
    draft.add(THREADS, host.threads(decoded, _host_processes(draft)))
    draft.add(PROFILER_OVERHEAD, host.overheads(decoded))
    draft.add(MEMORY_EVENTS, host.memory_events(decoded))
    draft.add(DEVICE_OPS, device.device_ops(decoded, draft.process))
    draft.add(DEVICES, device.devices(decoded, _worked(draft)))
    waits, disowned = device.syncs(decoded, draft.process, draft.tables.get(API_CALLS))
    draft.add(SYNCS, waits.syncs if waits else None)
    draft.add(EVENT_WAITS, waits.event_waits if waits else None)
    draft.add(COLLECTIVES, collectives.collectives(decoded, draft.process, draft.tables))
    draft.add(SOURCES, sources.source(decoded, reader_format))
    draft.add(SETTINGS, sources.settings(decoded))
    if disowned:
        draft.note(
            NoteKind.DATA_LOSS,
            "event waits name a record later than the wait; the record is left out",
            disowned,
            EVENT_WAITS,
        )
    for table in (DEVICE_OPS, API_CALLS, HOST_OPS):
        _drop_twins(draft, table)
    draft.notes.extend(import_notes(decoded, draft.tables))
    return Trace(str(decoded.path), {table: draft.tables[table] for table in draft.tables}, tuple(draft.notes))


def _worked(draft: Draft) -> Iterable[int]:
    """The GPUs that did any work."""
    if draft.whole is not None:
        return sorted(draft.whole.devices)
    return draft.tables[DEVICE_OPS]["device"].unique() if DEVICE_OPS in draft.tables else ()


def _counts(draft: Draft, table: Table) -> pl.DataFrame:
    """process, count: the rows of each process in the table, those outside of a window included."""
    if draft.whole is not None:
        rows = draft.whole.processes.get(table.name, [])
        return pl.DataFrame(rows, schema={"process": pl.Int64, "count": pl.Int64}, orient="row")
    frame = draft.tables.get(table)
    return table.empty()["process"].value_counts() if frame is None else frame["process"].value_counts()


def _host_processes(draft: Draft) -> set[int]:
    """Every process that has host events."""
    return {process for table in (API_CALLS, HOST_OPS, RANGES, FRAMES) for process in _counts(draft, table)["process"]}


def _process(draft: Draft) -> int:
    """The process GPU events belong to: device events carry the GPU's number where a process id would stand."""
    for table in (API_CALLS, HOST_OPS, RANGES):
        counts = _counts(draft, table).sort(["count", "process"], descending=[True, False])
        if not counts.height:
            continue
        if counts.height > 1:
            message = (
                f"host events of {counts.height} processes; GPU work is taken to be of process {counts[0, 'process']}"
            )
            draft.note(NoteKind.ASSUMED, message, counts.height, DEVICE_OPS)
        return int(counts[0, "process"])
    return 0


def _drop_twins(draft: Draft, table: Table) -> None:
    """Keep one of several rows that are equal in every column: the same record written twice."""
    frame = draft.tables.get(table)
    if frame is None or frame.height < 2:
        return
    same_place = frame.select(
        ((pl.col("start_ns") == pl.col("start_ns").shift(1)) & (pl.col("end_ns") == pl.col("end_ns").shift(1))).sum()
    ).item()
    if not same_place:
        return
    identity = "correlation" if "correlation" in frame.columns else "external_id"
    same_record = pl.struct("start_ns", "end_ns", identity).is_duplicated() & pl.col(identity).is_not_null()
    suspects = frame.with_row_index("row").filter(same_record)
    kept = suspects.unique(subset=frame.columns, keep="first", maintain_order=True)
    if dropped := suspects.height - kept.height:
        again = suspects["row"].filter(~suspects["row"].is_in(kept["row"].implode()))
        keep = pl.repeat(True, frame.height, eager=True).scatter(again, False)
        draft.tables[table] = table.check(frame.filter(keep))
        draft.note(NoteKind.SKIPPED, "rows stand twice in the file; one of each is kept", dropped, table)
