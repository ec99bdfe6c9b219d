"""An export as a trace.

A first look through an export that is to be cut: how long it lasts, and what has to be known of all of it.

The export has no index on times, so the tables of GPU work and calls are gone through once, in a few columns; of their
rows nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from timesink.model.schema import Table
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    DEVICES,
    EVENT_WAITS,
    GPU_METRICS,
    MEMORY_EVENTS,
    OS_CALLS,
    PROFILER_OVERHEAD,
    RANGES,
    SETTINGS,
    SOURCES,
    SYNCS,
    THREAD_STATES,
    THREADS,
)
from timesink.model.trace import Trace
from timesink.readers.nsys import calls, device, nvtx
from timesink.readers.nsys.calls import CUDA_CALL_CLASSES, OS_CALL_CLASSES
from timesink.readers.nsys.device import Rows
from timesink.readers.nsys.export import (
    CALLS,
    CUBLAS,
    CUDA_OVERHEAD,
    CUDNN,
    DEVICE_WORK,
    MEMORY_USAGE,
    METRICS,
    MPI,
    OS_RUNTIME,
    OVERHEAD,
    SCHEDULING,
    SYNCHRONISATIONS,
    Export,
    Keep,
    Kind,
    Source,
)
from timesink.readers.nsys.processes import ranks_of, strings_of
from timesink.readers.nsys.session import Session, capture_of, joined, timed

_TIMES: dict[str, Kind] = {"start": "int64", "end": "int64"}
_OF_WORK: dict[str, Kind] = {**_TIMES, "globalPid": "int64", "deviceId": "int32"}
_OF_CALLS: dict[str, Kind] = {**_TIMES, "eventClass": "int32"}


@dataclass(frozen=True, slots=True)
class Survey:
    """`extent` is the first and last moment on the export's own clock, None where it holds neither GPU work nor calls.
    `users` are the distinct owners and devices of each table of GPU work, `worked` those of rows with sound times.
    """

    extent: tuple[int, int] | None
    users: Rows
    worked: Rows


@dataclass(slots=True)
class _Seen:
    """What batches said. Several threads add to it, and a table that is read twice may say the same again."""

    bounds: list[tuple[int, int]] = field(default_factory=list)
    users: list[pl.DataFrame] = field(default_factory=list)
    worked: list[pl.DataFrame] = field(default_factory=list)

    def time(self, batch: pl.DataFrame) -> pl.DataFrame:
        """The rows with sound times; remembers how far they reach."""
        sound = timed(batch.drop_nulls(("start", "end")), 0, [], "")
        if sound.height:
            self.bounds.append(sound.select(pl.col("start").min(), pl.col("end").max()).row(0))
        return sound

    def work(self, batch: pl.DataFrame) -> pl.DataFrame:
        """Nothing of a batch of GPU work; remembers whose it is."""
        whose = ("globalPid", "deviceId")
        self.users.append(batch.drop_nulls(("start", "end")).select(whose).unique())
        self.worked.append(self.time(batch).select(whose).unique())
        return batch.clear()

    def calls(self, classes: tuple[int, ...]) -> Callable[[pl.DataFrame], pl.DataFrame]:
        """Nothing of a batch of calls; a row of another class is no call."""

        def rows(batch: pl.DataFrame) -> pl.DataFrame:
            self.time(batch.filter(pl.col("eventClass").is_in(classes).fill_null(True)))
            return batch.clear()

        return rows


def survey(export: Export) -> Survey:
    """Go through the export once. What the tables have lost is not noted here: they are read again."""
    all_seen, users, worked = [], {}, {}
    for source in DEVICE_WORK:
        seen = _Seen()
        export.read(Source(source.name, _OF_WORK), Keep(seen.work))
        nothing = pl.DataFrame(schema={"globalPid": pl.Int64, "deviceId": pl.Int32})
        users[source.name] = pl.concat([nothing, *seen.users]).unique().sort("globalPid", "deviceId")
        worked[source.name] = pl.concat([nothing, *seen.worked]).unique().sort("globalPid", "deviceId")
        all_seen += seen.bounds
    for source, classes in ((CALLS, CUDA_CALL_CLASSES), (OS_RUNTIME, OS_CALL_CLASSES)):
        seen = _Seen()
        export.read(Source(source.name, _OF_CALLS), Keep(seen.calls(classes)))
        all_seen += seen.bounds
    extent = (min(start for start, _ in all_seen), max(end for _, end in all_seen)) if all_seen else None
    return Survey(extent, users, worked)


Tables = dict[Table, pl.DataFrame]


def trace_of(export: Export, path: Path, format_name: str, seen: Survey | None = None) -> Trace:
    """The canonical tables of an export. A kind of event that nsys was not asked for has no table.

    An export that is cut to a window comes with what was `seen` of the whole: who used which GPU.
    """
    strings = strings_of(export)
    capture = capture_of(export, export.notes)
    rows = device.device_rows(export)
    users = rows if seen is None else device.owned(export, seen.users)
    ranks = ranks_of(export, strings, device.gpu_users(users), export.notes)
    session = Session(export, capture, strings, ranks, export.notes)
    tables: Tables = {}
    if capture.records("Cuda"):
        tables[DEVICE_OPS] = device.device_ops(session, rows)
        tables[API_CALLS] = calls.api_calls(session)
    del rows, users
    if session.has(SYNCHRONISATIONS):
        tables[SYNCS], tables[EVENT_WAITS] = calls.syncs_and_waits(session, tables[API_CALLS])
    _ranges_and_states(session, tables)
    _others(session, tables)
    tables[DEVICES] = device.devices(session, _worked(session, tables, seen))
    tables[SOURCES] = _sources(session, path, format_name)
    if session.capture.settings:
        tables[SETTINGS] = _settings(session)
    tables[THREADS] = calls.threads(session, _processes(tables))
    return Trace(str(path), tables, tuple(export.notes))


def _worked(session: Session, tables: Tables, seen: Survey | None) -> list[tuple[int, int]]:
    """Each rank and GPU that did any work."""
    if DEVICE_OPS not in tables:
        return []
    if seen is None:
        return sorted(tables[DEVICE_OPS].select("rank", "device").unique().iter_rows())
    owners = device.owned(session.export, seen.worked).values()
    return sorted(
        {
            place
            for frame in owners
            for place in zip(session.ranks.of(frame["process"]), frame["deviceId"].fill_null(0), strict=True)
        }
    )


def _ranges_and_states(session: Session, tables: Tables) -> None:
    ranges, lock = nvtx.ranges_and_lock_states(session)
    if session.capture.records("NvtxEvents") or any(session.has(source) for source in (*MPI, CUBLAS, CUDNN)):
        tables[RANGES] = ranges
    if session.has(SCHEDULING) or lock.height:
        tables[THREAD_STATES] = joined(THREAD_STATES, [calls.scheduled(session), lock])


def _others(session: Session, tables: Tables) -> None:
    makers: dict[Table, tuple[Callable[[Session], pl.DataFrame], bool]] = {
        OS_CALLS: (calls.os_calls, session.has(OS_RUNTIME)),
        PROFILER_OVERHEAD: (calls.profiler_overhead, session.has(OVERHEAD) or session.has(CUDA_OVERHEAD)),
        GPU_METRICS: (device.gpu_metrics, session.has(METRICS)),
        MEMORY_EVENTS: (device.memory_events, session.has(MEMORY_USAGE)),
    }
    tables.update({table: maker(session) for table, (maker, recorded) in makers.items() if recorded})


def _sources(session: Session, path: Path, format_name: str) -> pl.DataFrame:
    """One row per rank. The window is left open: an export says how long nsys ran, not what it recorded."""
    ranks = session.ranks.all
    size = path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.iterdir())
    return SOURCES.build(
        {
            "rank": pl.Series(ranks, dtype=pl.Int32),
            "path": str(path),
            "format": format_name,
            "tool_version": session.capture.version,
            "size_bytes": size,
            "clock_origin_ns": session.capture.origin_ns,
            "host": session.capture.host,
        }
    )


def _settings(session: Session) -> pl.DataFrame:
    """The same for every rank: nsys records them once per host."""
    said, ranks = session.capture.settings, session.ranks.all
    rows = [(rank, name, value) for rank in sorted(ranks) for name, value in sorted(said.items())]
    rank, name, value = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return SETTINGS.build({"rank": pl.Series(rank, dtype=pl.Int32), "name": name, "value": value})


def _processes(tables: Tables) -> frozenset[int]:
    """Processes that have rows in any table."""
    frames = [frame for frame in tables.values() if "process" in frame.columns]
    return frozenset(process for frame in frames for process in frame["process"].unique())
