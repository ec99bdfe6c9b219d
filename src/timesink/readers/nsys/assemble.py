"""An export as a trace, whole or through a window.

An export has no index on times. For a window, its tables of GPU work and calls are gone through once, in a few columns,
for how long it lasts and who used which GPU; then the rows are read that `Trace.within` may keep, and few others. Rows
of GPU work are those that touch the window. The host's begin earlier, at the launch of the first kernel that starts in
it; synchronisations reach on to the end of the last call, for the call says what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from timesink.knowledge.profiler_texts import EMITTED_OPERATOR
from timesink.model.nesting import key_slices
from timesink.model.record import dataclass, field, replace
from timesink.model.schema import Table, has_one_value
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    DEVICES,
    EVENT_WAITS,
    GPU_METRICS,
    GRAPH_NODES,
    HOST_OPS,
    HOST_STACKS,
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
from timesink.model.trace import ImportNote, Trace
from timesink.model.window import Window, touching
from timesink.readers.nsys import device, host, stacks
from timesink.readers.nsys.device import FrameByTable, with_process
from timesink.readers.nsys.export import (
    CALLS,
    CUBLAS,
    CUDA_EVENTS,
    CUDA_OVERHEAD,
    CUDNN,
    DEVICE_WORK,
    EVENT_SOURCES,
    GRAPH_NODE_EVENTS,
    MEMORY_USAGE,
    METRICS,
    MPI,
    NVTX,
    OS_RUNTIME,
    OVERHEAD,
    SCHEDULING,
    SYNCHRONISATIONS,
    ColumnKind,
    Export,
    ExportTable,
    Keep,
    outside,
    turns,
    within,
)
from timesink.readers.nsys.folder import Folder
from timesink.readers.nsys.host import CUDA_CALL_CLASSES, OS_CALL_CLASSES, domain_numbers, range_numbers
from timesink.readers.nsys.identifiers import Strings, process_of, ranks_of, strings_of
from timesink.readers.nsys.session import ExportReading, capture_of, combined, with_sound_times
from timesink.readers.nsys.sqlite import Database

_TIMES: dict[str, ColumnKind] = {"start": "int64", "end": "int64"}
_OF_WORK: dict[str, ColumnKind] = {**_TIMES, "globalPid": "int64", "deviceId": "int32"}
_OF_RANGES: dict[str, ColumnKind] = {**_TIMES, "textId": "int64", "text": "text", "eventType": "int32"}
_OF_CALLS: dict[str, ColumnKind] = {**_TIMES, "eventClass": "int32"}


@dataclass(frozen=True, slots=True)
class ExportSurvey:
    """`extent` is the first and last moment on the export's own clock, None where it holds neither GPU work nor calls.
    `users` are the distinct owners and devices of each table of GPU work, `worked` those of rows with sound times.
    `operators` tells whether ranges are operators of a framework (`operators.operators`), which count to the extent.
    """

    extent: tuple[int, int] | None
    users: FrameByTable
    worked: FrameByTable
    operators: bool = False


@dataclass(slots=True)
class _Seen:
    """What batches said. Several threads add to it, and a table that is read twice may say the same again."""

    bounds: list[tuple[int, int]] = field(default_factory=list)
    users: list[pl.DataFrame] = field(default_factory=list)
    worked: list[pl.DataFrame] = field(default_factory=list)

    def time(self, batch: pl.DataFrame) -> pl.DataFrame:
        """The rows with sound times; remembers how far they reach."""
        sound = with_sound_times(batch.drop_nulls(("start", "end")), 0, [], "")
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

    def operators(self, strings: Strings, kinds: set[int]) -> Callable[[pl.DataFrame], pl.DataFrame]:
        """Nothing of a batch of ranges; one that is an operator counts."""

        def rows(batch: pl.DataFrame) -> pl.DataFrame:
            name = strings.own_or_of(batch["text"], batch["textId"])
            emitted = name.str.contains(EMITTED_OPERATOR).fill_null(False) & batch["eventType"].is_in(kinds)
            self.time(batch.filter(emitted))
            return batch.clear()

        return rows


def survey(export: Export) -> ExportSurvey:
    """Go through the export once. What the tables have lost is not noted here: they are read again."""
    all_seen, users, worked = [], {}, {}
    for source in DEVICE_WORK:
        seen = _Seen()
        export.read(ExportTable(source.name, _OF_WORK), Keep(seen.work))
        nothing = pl.DataFrame(schema={"globalPid": pl.Int64, "deviceId": pl.Int32})
        users[source.name] = pl.concat([nothing, *seen.users]).unique().sort("globalPid", "deviceId")
        worked[source.name] = pl.concat([nothing, *seen.worked]).unique().sort("globalPid", "deviceId")
        all_seen += seen.bounds
    for source, classes in ((CALLS, CUDA_CALL_CLASSES), (OS_RUNTIME, OS_CALL_CLASSES)):
        seen = _Seen()
        export.read(ExportTable(source.name, _OF_CALLS), Keep(seen.calls(classes)))
        all_seen += seen.bounds
    seen = _Seen()
    if all_seen and export.tables.get(NVTX.name, frozenset()) >= _OF_RANGES.keys():
        export.read(
            ExportTable(NVTX.name, _OF_RANGES),
            Keep(seen.operators(strings_of(export), host.push_pop_numbers(export))),
        )
        all_seen += seen.bounds
    extent = (min(start for start, _ in all_seen), max(end for _, end in all_seen)) if all_seen else None
    return ExportSurvey(extent, users, worked, bool(seen.bounds))


Tables = dict[Table, pl.DataFrame]


def trace_of(export: Export, path: Path, format_name: str, seen: ExportSurvey | None = None) -> Trace:
    """The canonical tables of an export. A kind of event that nsys was not asked for has no table.

    An export that is cut to a window comes with what was `seen` of the whole: who used which GPU.
    """
    strings = strings_of(export)
    capture = capture_of(export, export.notes)
    rows = device.device_rows(export)
    users = rows if seen is None else device.with_process(export, seen.users)
    ranks = ranks_of(export, strings, device.gpu_users(users), export.notes)
    session = ExportReading(export, capture, strings, ranks, export.notes)
    tables: Tables = {}
    if capture.records("Cuda"):
        tables[DEVICE_OPS] = device.device_ops(session, rows)
        tables[API_CALLS] = host.api_calls(session)
        tables[DEVICE_OPS] = _owned_alike(tables[DEVICE_OPS], tables[API_CALLS]["process"])
    del rows, users
    if session.has(SYNCHRONISATIONS):
        tables[SYNCS], tables[EVENT_WAITS] = host.syncs_and_waits(session, tables[API_CALLS])
    _ranges_and_states(session, tables, seen)
    _others(session, tables)
    tables[DEVICES] = device.devices(session, _worked(session, tables, seen))
    tables[SOURCES] = _sources(session, path, format_name)
    if session.capture.settings:
        tables[SETTINGS] = _settings(session)
    tables[THREADS] = host.threads(session, _processes(tables))
    return Trace(str(path), tables, tuple(export.notes))


def _owned_alike(ops: pl.DataFrame, processes: pl.Series) -> pl.DataFrame:
    """The ops; where all rows are of one process, with its number in the memory in which it stands for the calls."""
    own = ops["process"]
    each = len(own) <= len(processes) and has_one_value(own) and has_one_value(processes)
    return ops.with_columns(processes[: len(own)]) if each and own.min() == processes.min() else ops


def _worked(session: ExportReading, tables: Tables, seen: ExportSurvey | None) -> list[tuple[int, int]]:
    """Each rank and GPU that did any work."""
    if DEVICE_OPS not in tables:
        return []
    if seen is None:
        return [(rank, device) for (rank, device), _, _ in key_slices(tables[DEVICE_OPS], ("rank", "device"))]
    owners = device.with_process(session.export, seen.worked).values()
    return sorted(
        {
            rank_and_device
            for frame in owners
            for rank_and_device in zip(session.ranks.of(frame["process"]), frame["deviceId"].fill_null(0), strict=True)
        }
    )


def _ranges_and_states(session: ExportReading, tables: Tables, seen: ExportSurvey | None) -> None:
    ranges, lock, ops = host.ranges_and_lock_states(session)
    if ops.height or (seen is not None and seen.operators):
        tables[HOST_OPS] = ops
    if session.capture.records("NvtxEvents") or any(session.has(source) for source in (*MPI, CUBLAS, CUDNN)):
        tables[RANGES] = ranges
    if session.has(SCHEDULING) or lock.height:
        tables[THREAD_STATES] = combined(THREAD_STATES, [host.scheduled(session), lock])


def _others(session: ExportReading, tables: Tables) -> None:
    makers: dict[Table, tuple[Callable[[ExportReading], pl.DataFrame], bool]] = {
        OS_CALLS: (host.os_calls, session.has(OS_RUNTIME)),
        PROFILER_OVERHEAD: (host.profiler_overhead, session.has(OVERHEAD) or session.has(CUDA_OVERHEAD)),
        GRAPH_NODES: (device.graph_nodes, session.has(GRAPH_NODE_EVENTS)),
        HOST_STACKS: (stacks.host_stacks, stacks.recorded(session)),
        GPU_METRICS: (device.gpu_metrics, session.has(METRICS)),
        MEMORY_EVENTS: (device.memory_events, session.has(MEMORY_USAGE)),
    }
    tables.update({table: maker(session) for table, (maker, recorded) in makers.items() if recorded})


def _sources(session: ExportReading, path: Path, format_name: str) -> pl.DataFrame:
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


def _settings(session: ExportReading) -> pl.DataFrame:
    """The same for every rank: nsys records them once per host."""
    settings, ranks = session.capture.settings, session.ranks.all
    rows = [(rank, name, value) for rank in sorted(ranks) for name, value in sorted(settings.items())]
    rank, name, value = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    return SETTINGS.build({"rank": pl.Series(rank, dtype=pl.Int32), "name": name, "value": value})


def _processes(tables: Tables) -> frozenset[int]:
    """Processes that have rows in any table."""
    frames = [frame for frame in tables.values() if "process" in frame.columns]
    return frozenset(process for frame in frames for process in frame["process"].unique())


_LAUNCHES = ExportTable(CALLS.name, {"start": "int64", "globalTid": "int64", "correlationId": "int64"}, ("start",))


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
        cut = _cut_export(fresh, window.start_ns - self.origin_ns, window.end_ns - self.origin_ns)
        return trace_of(cut, self.path, self.format, self.seen).within(window)


def open_for_window(export: Database | Folder, path: Path, format_name: str) -> OpenedExport | Trace:
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
    held: dict[ExportTable, pl.DataFrame]

    @property
    def path(self) -> Path:
        return self.whole.path

    @property
    def tables(self) -> Mapping[str, frozenset[str]]:
        return self.whole.tables

    @property
    def notes(self) -> list[ImportNote]:
        return self.whole.notes

    def read(self, source: ExportTable, keep: Keep | None = None) -> pl.DataFrame:
        """The table's rows of the window; all rows of a table that has no times."""
        if source in self.held:
            return self.held.pop(source)
        return self.whole.read(source, keep or self._keep(source))

    def _keep(self, source: ExportTable) -> Keep | None:
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


def _lead(export: Database | Folder, held: Mapping[ExportTable, pl.DataFrame], start: int, end: int) -> int:
    """When the first of the ops that start in the window was launched, or the window's start where that is earlier."""
    work = with_process(export, {source.name: frame for source, frame in held.items()})
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

    late = f'typeof("start") = \'integer\' AND "start" >= {start}'
    other = f'typeof("correlationId") = \'integer\' AND "correlationId" NOT BETWEEN {low} AND {high}'
    quiet = replace(export, notes=[])  # the calls are read again, and their losses noted then
    first = quiet.read(_LAUNCHES, Keep(rows, f"({late}) OR ({other})"))["start"].min()
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
