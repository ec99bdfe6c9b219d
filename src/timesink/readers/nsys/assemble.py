"""An export as a trace, whole or through a window.

For a window there is a look through the export for how long it lasts and who used which GPU, then the rows wanted.
An export has no index on times. Its tables of GPU work and calls are gone through once, in a few columns; then the rows
are read that `Trace.within` may keep, and few others. Rows of GPU work are those that touch the window. The host's
begin earlier, at the launch of the first kernel that starts in it; synchronisations reach on to the end of the last
call, for the call says what they are. A filter of each batch says which rows are wanted.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

import polars as pl

from timesink.knowledge import nsys_tables
from timesink.knowledge.nsys_tables import ColumnKind, ExportTable
from timesink.knowledge.profiler_texts import EMITTED_OPERATOR
from timesink.model import tables as canonical
from timesink.model.nesting import key_slices
from timesink.model.schema import Table, has_one_value
from timesink.model.trace import ImportNote, Trace
from timesink.model.window import Window, touching
from timesink.readers.nsys import device, host, ranges
from timesink.readers.nsys import export as sources
from timesink.readers.nsys.device import FrameByTable, with_process
from timesink.readers.nsys.export import Export, Keep
from timesink.readers.nsys.folder import Folder
from timesink.readers.nsys.identifiers import Strings, process_of, ranks_of
from timesink.readers.nsys.session import ExportReading, capture_of, combined, with_sound_times
from timesink.readers.nsys.sqlite import Database
from timesink.records import Record, replace

_TIMES: dict[str, ColumnKind] = {"start": "int64", "end": "int64"}
_OF_WORK: dict[str, ColumnKind] = {**_TIMES, "globalPid": "int64", "deviceId": "int32"}
_OF_RANGES: dict[str, ColumnKind] = {**_TIMES, "textId": "int64", "text": "text", "eventType": "int32"}
_OF_CALLS: dict[str, ColumnKind] = {**_TIMES, "eventClass": "int32"}
_LAUNCHES = ExportTable(
    nsys_tables.CALLS.name, {"start": "int64", "globalTid": "int64", "correlationId": "int64"}, ("start",)
)


class ExportSurvey(Record):
    """`extent` is the first and last moment on the export's own clock, None where it holds neither GPU work nor calls.
    `users` are the distinct owners and devices of each table of GPU work, `worked` those of rows with sound times.
    `operators` tells whether ranges are operators of a framework, which count to the extent.
    """

    extent: tuple[int, int] | None
    users: FrameByTable
    worked: FrameByTable
    operators: bool = False


def survey(export: Export) -> ExportSurvey:
    """Go through the export once. What the tables have lost is not noted here: they are read again."""
    bounds: list[tuple[int, int]] = []  # several threads add to it, and a table may be read twice
    owners: dict[str, tuple[list[pl.DataFrame], list[pl.DataFrame]]] = {}
    nothing = pl.DataFrame(schema={"globalPid": pl.Int64, "deviceId": pl.Int32})

    def sound(batch: pl.DataFrame) -> pl.DataFrame:
        rows = with_sound_times(batch.drop_nulls(("start", "end")), 0, [], "")
        if rows.height:
            bounds.append(rows.select(pl.col("start").min(), pl.col("end").max()).row(0))
        return rows

    def look(name: str, columns: dict[str, ColumnKind], see: Callable[[pl.DataFrame], object]) -> None:
        def rows(batch: pl.DataFrame) -> pl.DataFrame:
            see(batch)
            return batch.clear()

        export.read(ExportTable(name, columns), rows)

    def look_at_work(name: str) -> None:
        users, worked = owners[name] = [nothing], [nothing]

        def see(batch: pl.DataFrame) -> None:
            users.append(batch.drop_nulls(("start", "end")).select(nothing.columns).unique())
            worked.append(sound(batch).select(nothing.columns).unique())

        look(name, _OF_WORK, see)

    def look_at_calls(name: str, classes: tuple[int, ...]) -> None:
        called = pl.col("eventClass").is_in(classes).fill_null(True)
        look(name, _OF_CALLS, lambda batch: sound(batch.filter(called)))

    for source in sources.DEVICE_WORK:
        look_at_work(source.name)
    look_at_calls(nsys_tables.CALLS.name, host.CUDA_CALL_CLASSES)
    look_at_calls(nsys_tables.OS_RUNTIME.name, host.OS_CALL_CLASSES)
    before = len(bounds)
    if bounds and export.tables.get(nsys_tables.NVTX.name, frozenset()) >= _OF_RANGES.keys():
        strings, kinds = Strings.read(export), ranges.event_numbers(export, ranges.PUSH_POP)

        def see_operators(batch: pl.DataFrame) -> None:
            name = strings.own_or_of(batch["text"], batch["textId"])
            sound(batch.filter(name.str.contains(EMITTED_OPERATOR).fill_null(False) & batch["eventType"].is_in(kinds)))

        look(nsys_tables.NVTX.name, _OF_RANGES, see_operators)
    extent = (min(start for start, _ in bounds), max(end for _, end in bounds)) if bounds else None
    users_of, worked_of = (
        {name: pl.concat(seen[at]).unique().sort("globalPid", "deviceId") for name, seen in owners.items()}
        for at in (0, 1)
    )
    return ExportSurvey(extent, users_of, worked_of, len(bounds) > before)


class CutExport(Record):
    """Times are on the export's own clock. `held` are tables read already, each handed out once."""

    whole: Export
    start: int
    end: int
    lead: int
    synced_until: int
    held: dict[ExportTable, pl.DataFrame]
    path: Path
    tables: Mapping[str, frozenset[str]]
    notes: list[ImportNote]

    @classmethod
    def of(cls, export: Database | Folder, start: int, end: int) -> Self:
        """The export, of which GPU work and calls are read at once."""
        held = {source: export.read(source, within(source, start, end)) for source in sources.DEVICE_WORK}
        lead = _lead(export, held, start, end)
        held[nsys_tables.CALLS] = export.read(nsys_tables.CALLS, within(nsys_tables.CALLS, lead, end))
        last = held[nsys_tables.CALLS]["end"].max()
        until = max(end, last) if isinstance(last, int) else end
        return cls(export, start, end, lead, until, held, export.path, export.tables, export.notes)

    def read(self, source: ExportTable, keep: Keep | None = None) -> pl.DataFrame:
        """The table's rows of the window; all rows of a table that has no times, and of those that are read whole."""
        if source in self.held:
            return self.held.pop(source)
        return self.whole.read(source, keep or self._keep(source))

    def _keep(self, source: ExportTable) -> Keep | None:
        if source in _WHOLE or not source.columns.keys() & {"start", "timestamp"}:
            return None
        if source is nsys_tables.SCHEDULING:
            return _turns(self.lead, self.end)
        if source is nsys_tables.NVTX:
            return _ranges(self.whole, self.lead, self.end)
        start = self.start if source is nsys_tables.METRICS else self.lead
        return within(source, start, self.synced_until if source is nsys_tables.SYNCHRONISATIONS else self.end)


_WHOLE = (nsys_tables.GRAPH_NODE_EVENTS, nsys_tables.CALL_STACKS, nsys_tables.PYTHON_STACKS)


def _lead(export: Database | Folder, held: Mapping[ExportTable, pl.DataFrame], start: int, end: int) -> int:
    """When the first of the ops that start in the window was launched, or the window's start where that is earlier."""
    work = with_process(export, {source.name: frame for source, frame in held.items()})
    inside = pl.col("start").is_between(start, end, closed="left")
    begun = pl.concat([frame.filter(inside).select("process", "correlationId") for frame in work.values()])
    begun = begun.drop_nulls().unique()
    if not begun.height:
        return start

    def rows(batch: pl.DataFrame) -> pl.DataFrame:
        early = batch.filter(pl.col("start") < start)
        early = early.with_columns(process_of(early["globalTid"]))
        return early.join(begun, on=["process", "correlationId"], how="semi").select(batch.columns)

    quiet = replace(export, notes=[])  # the calls are read again, and their losses noted then
    first = quiet.read(_LAUNCHES, rows)["start"].min()
    return first if isinstance(first, int) else start


def within(source: ExportTable, start: int, end: int) -> Keep:
    """The rows that touch the half-open window on the export's own clock, and those with no end that begin before it
    closes: nsys writes no end where a range was open when the recording stopped.
    """
    moment = "timestamp" if "timestamp" in source.columns else "start"
    if "end" not in source.columns:
        inside = (pl.col(moment) >= start) & (pl.col(moment) < end)
        return lambda batch: batch.filter(inside)
    touches = touching(start, end, ("start", "end"))
    still_open = pl.col("end").is_null() & (pl.col("start") < end)
    return lambda batch: batch.filter(touches.fill_null(False) | still_open)


def _ranges(export: Export, start: int, end: int) -> Keep:
    """NVTX: the ranges of the window, those that were never closed, and the name of every domain."""
    domains = ranges.event_numbers(export, ranges.DOMAIN, ranges.CATEGORY)
    spans = ranges.event_numbers(export, ranges.PUSH_POP, ranges.START_END)
    touches = touching(start, end, ("start", "end")).fill_null(False)
    still_open = pl.col("end").is_null() & (pl.col("start") < end) & pl.col("eventType").is_in(spans)
    names = pl.col("eventType").is_in(domains).fill_null(False)
    return lambda batch: batch.filter(touches | still_open | names)


def _turns(start: int, end: int) -> Keep:
    """The scheduling events of the window, and of each thread those around it: an interval is between two events.

    Every batch keeps its own last before and first after, so some more than needed stay.
    """

    def rows(batch: pl.DataFrame) -> pl.DataFrame:
        numbered = batch.with_row_index("row")
        ordered = numbered.sort("start", "row")
        before = ordered.filter(pl.col("start") < start).group_by("globalTid").agg(pl.col("row").last())
        after = ordered.filter(pl.col("start") >= end).group_by("globalTid").agg(pl.col("row").first())
        around = pl.concat([before["row"], after["row"]])
        inside = pl.col("start").is_between(start, end, closed="left")
        return numbered.filter(inside.fill_null(False) | pl.col("row").is_in(around.implode())).drop("row")

    return rows


Tables = dict[Table, pl.DataFrame]

_OTHERS: Final = (
    (canonical.OS_CALLS, host.os_calls, (nsys_tables.OS_RUNTIME,)),
    (canonical.PROFILER_OVERHEAD, host.profiler_overhead, (nsys_tables.OVERHEAD, nsys_tables.CUDA_OVERHEAD)),
    (canonical.GRAPH_NODES, device.graph_nodes, (nsys_tables.GRAPH_NODE_EVENTS,)),
    (
        canonical.HOST_STACKS,
        ranges.host_stacks,
        (nsys_tables.CPU_SAMPLES, nsys_tables.CALL_CHAINS, nsys_tables.PYTHON_SCHEMAS),
    ),
    (canonical.MEMORY_EVENTS, device.memory_events, (nsys_tables.MEMORY_USAGE,)),
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
    if session.has(nsys_tables.SYNCHRONISATIONS):
        tables[canonical.SYNCS], tables[canonical.EVENT_WAITS] = host.syncs_and_waits(
            session, tables[canonical.API_CALLS]
        )
    _add_ranges_and_states(session, tables, seen)
    for table, make, needed in _OTHERS:
        if session.has(*needed) and (frame := make(session)) is not None:
            tables[table] = frame
    worked = _worked(session, tables, seen)
    if session.has(nsys_tables.METRICS):
        tables[canonical.GPU_METRICS] = device.gpu_metrics(session, worked)
    tables[canonical.DEVICES] = device.devices(session, worked)
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
    if session.has(nsys_tables.SCHEDULING) or lock.height:
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


class OpenedExport(Record):
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
