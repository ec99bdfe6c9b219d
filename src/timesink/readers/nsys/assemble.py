"""An export as a trace."""

from __future__ import annotations

from collections.abc import Callable
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
from timesink.readers.nsys import calls, device_ops, hardware, nvtx, syncs
from timesink.readers.nsys.capture import capture_of
from timesink.readers.nsys.export import (
    CUBLAS,
    CUDA_OVERHEAD,
    CUDNN,
    MEMORY_USAGE,
    METRICS,
    MPI,
    OS_RUNTIME,
    OVERHEAD,
    SCHEDULING,
    SYNCHRONISATIONS,
    Export,
)
from timesink.readers.nsys.processes import ranks_of
from timesink.readers.nsys.session import Session, joined
from timesink.readers.nsys.strings import strings_of
from timesink.readers.nsys.survey import Survey

Tables = dict[Table, pl.DataFrame]


def trace_of(export: Export, path: Path, format_name: str, seen: Survey | None = None) -> Trace:
    """The canonical tables of an export. A kind of event that nsys was not asked for has no table.

    An export that is cut to a window comes with what was `seen` of the whole: who used which GPU.
    """
    strings = strings_of(export)
    capture = capture_of(export, export.notes)
    rows = device_ops.device_rows(export)
    users = rows if seen is None else device_ops.owned(export, seen.users)
    ranks = ranks_of(export, strings, device_ops.gpu_users(users), export.notes)
    session = Session(export, capture, strings, ranks, export.notes)
    tables: Tables = {}
    if capture.records("Cuda"):
        tables[DEVICE_OPS] = device_ops.device_ops(session, rows)
        tables[API_CALLS] = calls.api_calls(session)
    del rows, users
    if session.has(SYNCHRONISATIONS):
        tables[SYNCS], tables[EVENT_WAITS] = syncs.syncs_and_waits(session, tables[API_CALLS])
    _ranges_and_states(session, tables)
    _others(session, tables)
    tables[DEVICES] = hardware.devices(session, _worked(session, tables, seen))
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
    owners = device_ops.owned(session.export, seen.worked).values()
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
        GPU_METRICS: (hardware.gpu_metrics, session.has(METRICS)),
        MEMORY_EVENTS: (hardware.memory_events, session.has(MEMORY_USAGE)),
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
