"""Tables of a trace: budget, steps, kernels, operators, copies, waits, launches, ranges, calls, counters, idle time,
compilation, and what it holds.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from timesink.errors import UsageError, did_you_mean
from timesink.knowledge.metric_names.patterns import SAMPLED
from timesink.knowledge.ranges import NUMBER
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.compile.summary import CompileSummary, FrameSummary, compile_counters, compile_summary
from timesink.measures.counters.sampled import CounterMeans, counter_means
from timesink.measures.idle.blame import IdleShare, idle_places, idle_shares
from timesink.measures.kernels.kernels import kernels
from timesink.measures.steps.per_step import period_ns
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.attribution import attribution
from timesink.measures.timeline.copies import copies
from timesink.measures.timeline.device_timeline import Device, DeviceTimeline, device_timeline
from timesink.measures.timeline.host_times import call_times, range_times
from timesink.measures.timeline.launches import DeviceLaunches, launches
from timesink.measures.timeline.operator_kernels import operator_kernels
from timesink.measures.timeline.quality import Quality, quality
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.names import mapped
from timesink.model.schema import Table
from timesink.model.tables import ALL, API_CALLS, COMPILE_EVENTS, DEVICE_OPS, GPU_METRICS, HOST_OPS, OS_CALLS, RANGES
from timesink.model.trace import Trace
from timesink.views.page import (
    DEVICE,
    RANK,
    Cell,
    Field,
    Fields,
    Page,
    Sheet,
    figures,
    first_rows,
    names,
    rows_of,
    sheet_of,
)


def summary_page(trace: Trace, top: int) -> Page:
    """Every table, `top` rows each at most."""
    tables = (_budget, _steps, _kernels, _operators, _copies, _waits, ranges_sheet, _launches, _quality)
    sheets = (*(table(trace) for table in tables), *calls_sheets(trace), *counters_sheets(trace))
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count} rows)" for note in trace.notes)
    return Page(f"Summary of {trace.source}", tuple(first_rows(sheet, top) for sheet in sheets), notes)


def timed_kernels_page(trace: Trace, top: int) -> Page:
    """The kernels of a timeline that take most, and nothing else."""
    return Page(f"Kernels of {trace.source}", (first_rows(_kernels(trace), top),))


def _budget(trace: Trace) -> Sheet:
    columns: Fields[DeviceTimeline] = (
        RANK,
        DEVICE,
        *figures(span_ns="span", busy_ratio="busy", compute_ns="compute"),
        (Field("exposed_comm_ns", "exposed comm.", unit="ns"), lambda line: line.exposed_communication_ns),
        *figures(exposed_copy_ns="exposed copy", idle_ns="idle time", idle_ratio="idle"),
    )
    note = "compute hides communication, both hide copies; compute + exposed communication + exposed copy + idle = span"
    return sheet_of("budget", "Time budget", device_timeline(trace), columns, note)


def _steps(trace: Trace) -> Sheet:
    measured = steps(trace)
    columns = (RANK, *figures(count="steps", p50_ns="p50", p90_ns="p90", p99_ns="p99", max_ns="max"))
    rows = tuple(
        (rank, times.count, times.p50_ns, times.p90_ns, times.p99_ns, times.max_ns)
        for rank, times in sorted(measured.by_rank.items())
    )
    dropped = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(measured.dropped.items()))
    origin = f"marked by {measured.marker_name}" if measured.marker_name else "no marker"
    return Sheet("steps", "Steps", columns, rows, f"{origin}; left out: {dropped or 'none'}")


def _kernels(trace: Trace) -> Sheet:
    columns = (
        RANK,
        DEVICE,
        *figures(time_ratio="share", total_ns="total"),
        COUNT,
        *figures(mean_ns="mean", max_ns="longest"),
        Field("name", "kernel", is_name=True, is_kernel=True),
    )
    note = "share of the kernel durations of the device, summed; kernels that ran at once count in full"
    return Sheet("kernels", "Kernels", columns, rows_of(kernels(trace), columns), note)


def _operators(trace: Trace) -> Sheet:
    columns = (
        RANK,
        *figures(self_device_ns="self GPU", total_device_ns="total GPU", calls="calls"),
        *figures(kernels="kernels", self_host_ns="self host"),
        Field("name", "operator", is_name=True),
    )
    attributed = attribution(trace)
    frame = attributed.operators.sort(["self_device_ns", "name"], descending=[True, False])
    note = f"{attributed.unattributed_count} GPU operations belong to no operator"
    return Sheet("operators", "Operators by GPU time", columns, rows_of(frame, columns), note)


def _copies(trace: Trace) -> Sheet:
    columns = (
        RANK,
        DEVICE,
        *names(copy_kind="direction", src_memory="from", dst_memory="to"),
        COUNT,
        *figures(bytes="moved", union_ns="time", exposed_ns="no kernel beside"),
        Field("gigabytes_per_s", "rate", unit="GB/s"),
    )
    return Sheet("copies", "Copies", columns, rows_of(copies(trace), columns))


def _waits(trace: Trace) -> Sheet:
    columns = (
        RANK,
        Field("name", "call", is_name=True),
        COUNT,
        *figures(blocked_ns="blocked", drain_ns="GPU ran dry"),
        Field("range", "in range", is_name=True),
    )
    calls = synchronisations(trace).calls
    # A range per step is one place: the numbers in its name are left out.
    places = mapped(calls["range"], lambda names: names.str.replace_all(NUMBER, ""), pl.String)
    frame = (
        calls.with_columns(pl.col("name").cast(pl.String), places.alias("range"))
        .group_by("rank", "name", "range")
        .agg(pl.len().alias("count"), pl.col("blocked_ns", "drain_ns").sum())
        .sort(["drain_ns", "blocked_ns", "rank", "name", "range"], descending=[True, True, False, False, False])
    )
    note = "GPU ran dry: idle time that began while the call waited and ended with work launched after it"
    return Sheet("waits", "Blocking calls", columns, rows_of(frame, columns), note)


def _launches(trace: Trace) -> Sheet:
    columns: Fields[DeviceLaunches] = (
        RANK,
        DEVICE,
        *figures(launch_count="launches", launches_per_step="per step", run_ahead_p50_ns="run-ahead p50"),
        *figures(latency_p50_ns="latency p50", interval_p50_ns="interval p50"),
        (
            Field("empty_queue_ratio", "onto empty queue", unit="ratio"),
            lambda device: device.empty_queue_ratio if device.launch_count else None,
        ),
        Field("host_late_ratio", "GPU waits for host", unit="ratio"),
    )
    note = "run-ahead: from the launch call to the start of its work; GPU waits for host: gaps whose launch came late"
    return sheet_of("launches", "Launches", launches(trace).values(), columns, note)


def _quality(trace: Trace) -> Sheet:
    columns: Fields[Quality] = (
        *figures(device_op_count="GPU operations", linked_ratio="with launch", head_count="begun before"),
        *figures(dead_launch_count="launches without work", graph_ratio="in graphs"),
        *figures(resolution_ns="resolution", overhead_ns="profiler overhead", lost_count="lost"),
    )
    note = "" if DEVICE_OPS in trace else "GPU work was not recorded"
    return sheet_of("quality", "Trace quality", (quality(trace),), columns, note)


_TABLES = (Field("table", "table", is_name=True), *figures(rows="rows", size_bytes="in memory"), Field("doc", "holds"))
_NOTES = (*names(kind="kind", table="table"), Field("count", "rows", unit="1"), Field("message", "note"))


def tables_page(trace: Trace) -> Page:
    """The tables of a trace, those that were not recorded, and the notes of its import."""
    absent = ", ".join(table.name for table in ALL if table not in trace)
    rows = tuple(
        (table.name, trace[table].height, trace[table].estimated_size(), table.doc) for table in ALL if table in trace
    )
    tables = Sheet("tables", "Tables", _TABLES, rows, f"not recorded: {absent}" if absent else "")
    messages = tuple((note.kind.value, note.table or None, note.count or None, note.message) for note in trace.notes)
    return Page(trace.source, (tables, Sheet("import_notes", "What the reader has to say", _NOTES, messages)))


def contents_page(trace: Trace) -> Page:
    """The tables of a trace and what was lost on the way, in short."""
    columns = (Field("table", "table", is_name=True), Field("rows", "rows", unit="1"), Field("doc", "holds"))
    rows = tuple((table.name, trace[table].height, table.doc) for table in ALL if table in trace)
    notes = tuple(f"{note.kind.value}: {note.message}" for note in trace.notes)
    return Page(trace.source, (Sheet("tables", "Tables", columns, rows),), notes)


COUNT = Field("count", "count", unit="1")
_SHARE = (*figures(time_ratio="share", total_ns="total"), COUNT)
_SPREAD = figures(mean_ns="mean", median_ns="median", min_ns="shortest", max_ns="longest")
_GPU_WORK = (
    *figures(op_count="GPU ops", device_ns="GPU busy", device_ratio="GPU share"),
    *figures(idle_ns="GPU idle", backward_ns="its backward"),
)
_NO_OPERATORS = "record operators: timesink capture torch, or torch.autograd.profiler.emit_nvtx under nsys"


def ranges_page(trace: Trace, top: int, *, tree: bool) -> Page:
    """The ranges alone, by name or by path."""
    return Page(f"Ranges of {trace.source}", (first_rows(ranges_sheet(trace, tree=tree), top),))


def operator_kernels_page(trace: Trace, top: int, pattern: str) -> Page:
    """The kernels of the operators whose names match. `UsageError` where none of them launched any."""
    columns = (
        RANK,
        Field("operator", "operator", is_name=True),
        *figures(operator_ratio="of its time", total_ns="total"),
        COUNT,
        Field("mean_ns", "mean", unit="ns"),
        Field("name", "kernel", is_name=True, is_kernel=True),
    )
    frame = operator_kernels(trace, pattern)
    if not frame.height:
        called = trace.get(HOST_OPS)["name"].cast(pl.String).unique().sort().to_list()
        nearest = did_you_mean(pattern, {name: name for name in called})
        remedy = nearest or ("`timesink show` lists operators with GPU work" if called else _NO_OPERATORS)
        raise UsageError(f"no operator that matches {pattern!r} launched GPU work", remedy=remedy)
    note = "what the operator launched, and what was launched inside it by operators that do not match"
    sheet = Sheet("operator_kernels", "Kernels of operators", columns, rows_of(frame, columns), note)
    return Page(f"Kernels of operators of {trace.source}", (first_rows(sheet, top),))


def calls_page(trace: Trace, top: int, *, by_thread: bool) -> Page:
    """The calls into CUDA and into the operating system alone."""
    sheets = tuple(first_rows(sheet, top) for sheet in calls_sheets(trace, by_thread=by_thread))
    return Page(f"Calls of {trace.source}", sheets)


def ranges_sheet(trace: Trace, *, tree: bool = False) -> Sheet:
    """Per name, or per path of nested names: host time, and the GPU's time between what was launched inside."""
    columns = (RANK, Field("name", "path" if tree else "range", is_name=True), *_SHARE, *_GPU_WORK, *_SPREAD)
    note = (
        "share: how much of the time from the first range to the last one of that name was open, on any thread; total: "
        "of all of them on all threads; GPU busy, its share of that time, and idle: between the first start and the "
        "last end of the work that was launched inside, by autograd too while the range waited for it, summed over the "
        "ranges; its backward: GPU work that autograd launched elsewhere for operators called inside"
    )
    if RANGES not in trace:
        note = "ranges were not recorded: capture with --auto-ranges, or mark them with timesink.annotate"
    return Sheet("ranges", "Ranges", columns, rows_of(range_times(trace, by_path=tree), columns), note)


def calls_sheets(trace: Trace, *, by_thread: bool = False) -> tuple[Sheet, ...]:
    """Calls into CUDA, and into the operating system where they were recorded."""
    sheets = [_calls(trace, API_CALLS, "api_calls", "CUDA calls", by_thread)]
    if OS_CALLS in trace:
        sheets.append(_calls(trace, OS_CALLS, "os_calls", "Operating-system calls", by_thread))
    return tuple(sheets)


def _calls(trace: Trace, table: Table, key: str, title: str, by_thread: bool) -> Sheet:
    thread = (Field("thread", "thread", unit="1"),) if by_thread else ()
    columns = (RANK, *thread, Field("name", "call", is_name=True), *_SHARE, *_SPREAD)
    frame = call_times(trace, table, by_thread=by_thread)
    return Sheet(key, title, columns, rows_of(frame, columns), "share: of all calls of the table")


_NOTE = "means of the samples taken meanwhile, of the whole GPU; parts with fewer than ten samples are left out"


def counters_sheets(trace: Trace) -> tuple[Sheet, ...]:
    """One table; none where no counters were sampled."""
    if not trace.get(GPU_METRICS).height:
        return ()
    means = counter_means(trace)
    shown = [what for what in SAMPLED if any(what == share.what for mean in means for share in mean.shares)]
    columns: Fields[CounterMeans] = (
        (RANK, lambda mean: mean.device[0]),
        (DEVICE, lambda mean: mean.device[1]),
        Field("part", "part"),
        (Field("name", "name", is_name=True), lambda mean: mean.name or None),
        Field("time_ns", "time", unit="ns"),
        *((Field(_key(what), what, unit="ratio"), _share_of(what)) for what in shown),
        (Field("clock_mhz", "clock", unit="MHz"), lambda mean: round(mean.clock_hz / 1e6) if mean.clock_hz else None),
    )
    return (sheet_of("counters", "Counters sampled along the timeline", means, columns, _NOTE),)


def _key(what: str) -> str:
    return what.lower().replace(" ", "_") + "_ratio"


def _share_of(what: str) -> Callable[[CounterMeans], Cell]:
    return lambda mean: next((share.share for share in mean.shares if share.what == what), None)


CAUSE = Field("cause", "cause", is_name=True, words=IDLE_WORDS)
IDLE = Field("idle_ns", "idle time", unit="ns")
STRETCHES = Field("stretches", "stretches", unit="1")
_PLACE = ("call", "host_op", "range", "frame")


def idle_page(trace: Trace, top: int) -> Page:
    """Causes, then the `top` places."""
    return Page(f"Idle time of {trace.source}", (_causes(trace), _places(trace, top)))


def _causes(trace: Trace) -> Sheet:
    columns: Fields[IdleShare] = (
        *(RANK, DEVICE, CAUSE, IDLE),
        (Field("idle_ratio", "of idle time", unit="ratio"), lambda share: share.idle_ns / idle_ns[_device(share)]),
        Field("per_step_ns", "per step", unit="ns"),
        (
            Field("step_ratio", "of step", unit="ratio"),
            lambda share: share.per_step_ns / period_ns(trace, _device(share)),
        ),
        STRETCHES,
    )
    idle_ns = {(line.rank, line.device): line.idle.total_ns for line in device_timeline(trace)}
    step_count = steps(trace).count
    mean = f"mean over {step_count} steady steps"
    note = f"per step: {mean}" if step_count else "no steps found: per step is the whole span"
    note = f"the causes sum to the idle time; {note}"
    return sheet_of("causes", "What the GPU waited for", idle_shares(trace), columns, note)


def _device(share: IdleShare) -> Device:
    return share.rank, share.device


def _places(trace: Trace, top: int) -> Sheet:
    columns = (CAUSE, IDLE, STRETCHES, *names(call="call", host_op="operator", range="range", frame="frame"))
    places = idle_places(trace)
    # A range per step is one place: the numbers in its name are left out.
    ranges = mapped(places["range"], lambda names: names.str.replace_all(NUMBER, ""), pl.String)
    grouped = (
        places.with_columns(
            ranges.alias("range"), *(pl.col(name).cast(pl.String) for name in ("call", "host_op", "frame"))
        )
        .group_by("cause", *_PLACE)
        .agg(pl.col("idle_ns").sum(), pl.len().alias("stretches"))
        .sort("idle_ns", "cause", *_PLACE, descending=[True] + [False] * (1 + len(_PLACE)), nulls_last=True)
    )
    left = grouped.height - top
    note = f"{left} more places (--top {grouped.height} shows all)" if left > 0 else ""
    return Sheet("places", "Where in the program", columns, rows_of(grouped.head(top), columns), note)


FILE = Field("file", "file", is_name=True)
LINE = Field("line", "line", unit="1")
FUNCTION = Field("function", "function", is_name=True)
REASON = Field("reason", "reason")
_TIMES = Field("count", "times", unit="1")
TIME = Field("time_ns", "time", unit="ns")


def compile_page(trace: Trace, top: int) -> Page:
    """Counts first; then what the log says, where there is one."""
    sheets = [_counts(trace)]
    if COMPILE_EVENTS in trace:
        log = compile_summary(trace)
        sheets += [_breaks(log, top), _functions(log, top), _caches(log), _phases(log, top)]
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count})" for note in trace.notes)
    return Page(f"Compilation in {trace.source}", tuple(sheets), notes)


def _counts(trace: Trace) -> Sheet:
    rows = tuple(compile_counters(trace).known().items())
    note = "" if COMPILE_EVENTS in trace else "no log beside the trace: TORCH_TRACE=folder names every break and guard"
    return Sheet("counts", "Counts", (Field("name", "count of"), Field("value", "value", unit="1")), rows, note)


def _breaks(log: CompileSummary, top: int) -> Sheet:
    rows = tuple((at.rank, at.file, at.line, at.function, at.reason, at.count) for at in log.breaks)
    return first_rows(Sheet("breaks", "Graph breaks", (RANK, FILE, LINE, FUNCTION, REASON, _TIMES), rows), top)


def _functions(log: CompileSummary, top: int) -> Sheet:
    columns: Fields[FrameSummary] = (
        *(RANK, FUNCTION, FILE, LINE),
        *figures(compilations="compiled"),
        (TIME, lambda frame: frame.compile_ns),
        *figures(recompilations="again", late_recompilations="late"),
        *(Field("guard", "guard that failed most"), *figures(guards="guards"), Field("eager", "runs eagerly")),
    )
    note = "late: after every function had been compiled once"
    return first_rows(sheet_of("functions", "Functions", log.frames, columns, note), top)


def _caches(log: CompileSummary) -> Sheet:
    rows = tuple((name.removeprefix("cache_"), count) for name, count in log.caches.items())
    return Sheet("caches", "Compiler caches", (Field("event", "event"), _TIMES), rows)


def _phases(log: CompileSummary, top: int) -> Sheet:
    columns = (Field("phase", "phase", is_name=True), TIME, _TIMES)
    rows = tuple(log.phases)
    return first_rows(Sheet("phases", "Phases of compilation", columns, rows, "phases lie inside each other"), top)
