"""An export as a trace, whole or through a window."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from timesink.model import tables as canonical
from timesink.model.nesting import key_slices
from timesink.model.record import dataclass, replace
from timesink.model.schema import Table, has_one_value
from timesink.model.trace import Trace
from timesink.model.window import Window
from timesink.readers.nsys import device, host, ranges, stacks
from timesink.readers.nsys import export as sources
from timesink.readers.nsys.export import Export
from timesink.readers.nsys.folder import Folder
from timesink.readers.nsys.identifiers import Strings, ranks_of
from timesink.readers.nsys.session import ExportReading, capture_of, combined
from timesink.readers.nsys.sqlite import Database
from timesink.readers.nsys.window import CutExport, ExportSurvey, survey

Tables = dict[Table, pl.DataFrame]

_OTHERS: Final = (
    (canonical.OS_CALLS, host.os_calls, (sources.OS_RUNTIME,)),
    (canonical.PROFILER_OVERHEAD, host.profiler_overhead, (sources.OVERHEAD, sources.CUDA_OVERHEAD)),
    (canonical.GRAPH_NODES, device.graph_nodes, (sources.GRAPH_NODE_EVENTS,)),
    (canonical.HOST_STACKS, stacks.host_stacks, (sources.CPU_SAMPLES, sources.CALL_CHAINS, sources.PYTHON_SCHEMAS)),
    (canonical.GPU_METRICS, device.gpu_metrics, (sources.METRICS,)),
    (canonical.MEMORY_EVENTS, device.memory_events, (sources.MEMORY_USAGE,)),
)
"""Tables that depend on no other: what makes each, and the tables of an export of which it takes one to be there."""


def trace_of(export: Export, path: Path, format_name: str, seen: ExportSurvey | None = None) -> Trace:
    """The canonical tables of an export. A kind of event that nsys was not asked for has no table.

    An export that is cut to a window comes with what was `seen` of the whole: who used which GPU.
    """
    strings = Strings.read(export)
    capture = capture_of(export, export.notes)
    rows = device.with_process(export, {source.name: export.read(source) for source in sources.DEVICE_WORK})
    users = rows if seen is None else device.with_process(export, seen.users)
    ranks = ranks_of(export, strings, device.gpu_users(users), export.notes)
    session = ExportReading(export, capture, strings, ranks, export.notes)
    tables: Tables = {}
    if "Cuda" in capture.traced:
        tables[canonical.DEVICE_OPS] = device.device_ops(session, rows)
        tables[canonical.API_CALLS] = host.api_calls(session)
        tables[canonical.DEVICE_OPS] = _owned_alike(
            tables[canonical.DEVICE_OPS], tables[canonical.API_CALLS]["process"]
        )
    del rows, users
    if session.has(sources.SYNCHRONISATIONS):
        tables[canonical.SYNCS], tables[canonical.EVENT_WAITS] = host.syncs_and_waits(
            session, tables[canonical.API_CALLS]
        )
    _add_ranges_and_states(session, tables, seen)
    for table, make, needed in _OTHERS:
        if session.has(*needed) and (frame := make(session)) is not None:
            tables[table] = frame
    tables[canonical.DEVICES] = device.devices(session, _worked(session, tables, seen))
    tables[canonical.SOURCES] = _sources(session, path, format_name)
    if capture.settings:
        tables[canonical.SETTINGS] = _settings(session)
    users_of = [frame["process"].unique() for frame in tables.values() if "process" in frame.columns]
    tables[canonical.THREADS] = host.threads(session, frozenset(process for own in users_of for process in own))
    return Trace(str(path), tables, tuple(export.notes))


def _owned_alike(ops: pl.DataFrame, processes: pl.Series) -> pl.DataFrame:
    """The ops; where all rows are of one process, with its number in the memory in which it stands for the calls."""
    own = ops["process"]
    each = len(own) <= len(processes) and has_one_value(own) and has_one_value(processes)
    return ops.with_columns(processes[: len(own)]) if each and own.min() == processes.min() else ops


def _worked(session: ExportReading, tables: Tables, seen: ExportSurvey | None) -> list[tuple[int, int]]:
    """Each rank and GPU that did any work."""
    if canonical.DEVICE_OPS not in tables:
        return []
    if seen is None:
        slices = key_slices(tables[canonical.DEVICE_OPS], ("rank", "device"))
        return [(rank, device) for (rank, device), _, _ in slices]
    owners = device.with_process(session.export, seen.worked).values()
    pairs = (zip(session.ranks.of(own["process"]), own["deviceId"].fill_null(0), strict=True) for own in owners)
    return sorted({pair for of_table in pairs for pair in of_table})


def _add_ranges_and_states(session: ExportReading, tables: Tables, seen: ExportSurvey | None) -> None:
    spans, lock, ops = ranges.ranges_and_lock_states(session)
    if ops.height or (seen is not None and seen.operators):
        tables[canonical.HOST_OPS] = ops
    if "NvtxEvents" in session.capture.traced or session.has(*ranges.LIBRARIES):
        tables[canonical.RANGES] = spans
    if session.has(sources.SCHEDULING) or lock.height:
        tables[canonical.THREAD_STATES] = combined(canonical.THREAD_STATES, [host.scheduled(session), lock])


def _sources(session: ExportReading, path: Path, format_name: str) -> pl.DataFrame:
    """One row per rank. The window is left open: an export says how long nsys ran, not what it recorded."""
    size = path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.iterdir())
    return canonical.SOURCES.build(
        {
            "rank": list(session.ranks.all),
            "path": str(path),
            "format": format_name,
            "tool_version": session.capture.version,
            "size_bytes": size,
            "clock_origin_ns": session.capture.origin_ns,
            "host": session.capture.host,
        }
    )


def _settings(session: ExportReading) -> pl.DataFrame:
    """The same for every rank: nsys records them once per host."""
    rows = [(rank, *setting) for rank in session.ranks.all for setting in sorted(session.capture.settings.items())]
    return canonical.SETTINGS.build(
        dict(zip(("rank", "name", "value"), map(list, zip(*rows, strict=True)), strict=True))
    )


@dataclass(frozen=True, slots=True)
class OpenedExport:
    """An export that was looked through once."""

    export: Database | Folder
    path: Path
    format: str
    origin_ns: int
    seen: ExportSurvey
    extent_ns: tuple[int, int]

    def within(self, window: Window) -> Trace:
        """The trace of the window."""
        fresh = replace(self.export, notes=[*self.export.notes])
        cut = CutExport.of(fresh, window.start_ns - self.origin_ns, window.end_ns - self.origin_ns)
        return trace_of(cut, self.path, self.format, self.seen).within(window)


def open_for_window(export: Database | Folder, path: Path, format_name: str) -> OpenedExport | Trace:
    """The export, looked through; one without GPU work and calls is small and read at once."""
    quiet = replace(export, notes=[])
    seen, origin_ns = survey(quiet), capture_of(quiet, []).origin_ns
    if seen.extent is None:
        return trace_of(export, path, format_name)
    first, last = seen.extent
    return OpenedExport(export, path, format_name, origin_ns, seen, (first + origin_ns, last + origin_ns))
