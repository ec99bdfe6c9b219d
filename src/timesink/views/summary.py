"""Tables of a trace: budget, steps, kernels, operators, copies, waits, launches, ranges, calls, counters, idle time,
compilation, sums by name that a profiler printed, and what it holds.
"""

from operator import attrgetter

import polars as pl

from timesink.diagnosis.words import guessed_steps
from timesink.errors import UsageError, did_you_mean
from timesink.knowledge.metric_names.patterns import SAMPLED
from timesink.knowledge.ranges import NUMBER, NUMBERED_STEP, NVTX_FILE, NVTX_OPENS, STEP
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.compile.summary import compile_counters, compile_summary
from timesink.measures.counters.sampled import counter_means
from timesink.measures.idle.blame import idle_places, idle_shares
from timesink.measures.kernels import kernels
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import period_ns
from timesink.measures.steps.slow_steps import of_usual_steps
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import attribution, operator_kernels, operator_times
from timesink.measures.timeline.copies import copies
from timesink.measures.timeline.host_times import call_times, layer_times, range_times
from timesink.measures.timeline.known import known
from timesink.measures.timeline.launches import DeviceLaunches, launches
from timesink.measures.timeline.quality import quality
from timesink.measures.timeline.start_up_parts import long_starts
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.names import mapped, matches
from timesink.model.schema import Table
from timesink.model.tables import (
    ALL,
    API_CALLS,
    COMPILE_EVENTS,
    DEVICE_OPS,
    FRAMES,
    GPU_METRICS,
    HOST_OPS,
    OS_CALLS,
    RANGES,
    SUMS,
)
from timesink.model.trace import Trace
from timesink.units import time_text
from timesink.views import Cell, Field, Page, Sheet, declare, first_rows, listed, sheet_of, without_columns


def summary_page(trace: Trace, top: int) -> Page:
    """Every table, `top` rows each at most."""
    if SUMS in trace:
        return sums_page(trace, top)
    tables = (_budget, _steps, _kernels, _operators, _copies, _waits, ranges_sheet, _launches, _quality)
    sheets = (*(table(trace) for table in tables), *_start_up(trace), *calls_sheets(trace), *counters_sheets(trace))
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count} rows)" for note in trace.notes)
    return Page(f"Summary of {trace.source}", tuple(first_rows(sheet, top) for sheet in sheets), notes)


def start_up_page(trace: Trace, top: int) -> Page:
    """What the time before the first steady step went to, that which took most of the slowest rank first."""
    slowest = max(long_starts(trace), key=lambda one: one.span_ns, default=None)
    if slowest is None:
        raise UsageError(
            f"{trace.source} holds no start-up: its recording begins with the steps",
            remedy="timesink capture torch -- python train.py looks at the program from its process's begin",
        )
    kind, detail, most_ns = max(slowest.parts, key=lambda part: part[-1])
    name = f"{kind} ({detail})" if detail else kind
    title = f"{time_text(slowest.span_ns)} before the first steady step; most goes to {name}: {time_text(most_ns)}"
    owned = f"{100 * slowest.owned_ratio:.1f} % of it is accounted for"
    of_rank = f" on rank {slowest.rank}" if len(long_starts(trace)) > 1 else ""
    return Page(f"{title}{of_rank}", tuple(first_rows(sheet, top) for sheet in _start_up(trace)), lede=owned)


def timed_kernels_page(trace: Trace, top: int) -> Page:
    """The kernels of a timeline that take most, and nothing else."""
    return Page(f"Kernels of {trace.source}", (first_rows(_kernels(trace), top),))


def _budget(trace: Trace) -> Sheet:
    exposed = attrgetter("exposed_communication_ns")
    return listed("summary.budget", device_timeline(trace), exposed_comm_ns=exposed)


def _start_up(trace: Trace) -> tuple[Sheet, ...]:
    """What comes before the first steady step, where that is more than a step or two."""
    shown = long_starts(trace)
    rows = [(one.rank, *part, part[-1] / one.span_ns) for one in shown for part in one.parts]
    note = "from the first thing recorded to the first steady step; an instant counts for the first kind that goes on"
    if any(one.is_told for one in shown):
        note = "from the process's begin to its steady steps, by looks at its main thread"
    return (without_columns(listed("summary.start_up", rows, note), ("detail",)),) if rows else ()


def _steps(trace: Trace) -> Sheet:
    measured = steps(trace)
    rows = ((rank, one.count, one.p50_ns, one.p90_ns, one.p99_ns, one.max_ns) for rank, one in measured.by_rank.items())
    dropped = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in sorted(measured.dropped.items()))
    origin = f"{measured.origin} by {measured.marker_name}" if measured.marker_name else "no marker"
    note = f"{guessed_steps(trace) or origin}; left out: {dropped or 'none'}"
    return listed("summary.steps", sorted(rows), note)


def _kernels(trace: Trace) -> Sheet:
    return listed("summary.kernels", kernels(trace))


def _operators(trace: Trace) -> Sheet:
    """Of a CPU alone those that take its time come first."""
    order = ["self_device_ns", "self_host_ns", "name"]
    frame = operator_times(trace).sort(order, descending=[True, True, False])
    note = f"{attribution(trace).unattributed_count} GPU operations belong to no operator"
    return listed("summary.operators", frame, note + _both_sums(frame))


def _both_sums(frame: pl.DataFrame) -> str:
    """The CPU's time in all operators beside the GPU's: where it is the longer, launching may set the pace."""
    host_ns, device_ns = (int(frame[name].sum()) for name in ("self_host_ns", "self_device_ns"))
    if not (host_ns and device_ns):
        return "; by CPU time, for no work of a GPU is theirs" if host_ns else ""
    times = f"{host_ns / device_ns:.2f} x the self GPU of {time_text(device_ns)}"
    ask = ": the longer may set the pace, and the queue tells whether launching does (timesink diagnose)"
    return f"; in all, self CPU {time_text(host_ns)}, {times}{ask if host_ns > device_ns else ''}"


def _copies(trace: Trace) -> Sheet:
    return listed("summary.copies", copies(trace))


def _waits(trace: Trace) -> Sheet:
    calls = synchronisations(trace).calls
    # A range per step is one place: the numbers in its name are left out.
    places = mapped(calls["range"], lambda names: names.str.replace_all(NUMBER, ""), pl.String)
    frame = (
        calls.with_columns(pl.col("name").cast(pl.String), places.alias("range"))
        .group_by("rank", "name", "range")
        .agg(pl.len().alias("count"), pl.col("blocked_ns", "drain_ns").sum())
        .sort(["drain_ns", "blocked_ns", "rank", "name", "range"], descending=[True, True, False, False, False])
    )
    return listed("summary.waits", frame)


def _launches(trace: Trace) -> Sheet:

    def empty_ratio(device: DeviceLaunches) -> Cell:
        return device.empty_queue_ratio if device.launch_count else None

    return listed("summary.launches", launches(trace).values(), empty_queue_ratio=empty_ratio)


def _quality(trace: Trace) -> Sheet:
    note = "" if DEVICE_OPS in trace else "GPU work was not recorded"
    return listed("summary.quality", (quality(trace),), note)


def tables_page(trace: Trace) -> Page:
    """The tables of a trace, those that were not recorded, and the notes of its import."""
    absent = ", ".join(table.name for table in ALL if table not in trace)
    held = (
        (table.name, trace[table].height, trace[table].estimated_size(), table.doc) for table in ALL if table in trace
    )
    tables = listed("summary.tables@held", held, f"not recorded: {absent}" if absent else "")
    notes = ((note.kind.value, note.table or None, note.count or None, note.message) for note in trace.notes)
    return Page(trace.source, (tables, listed("summary.import_notes", notes)))


def contents_page(trace: Trace) -> Page:
    """The tables of a trace and what was lost on the way, in short."""
    held = ((table.name, trace[table].height, table.doc) for table in ALL if table in trace)
    notes = tuple(f"{note.kind.value}: {note.message}" for note in trace.notes)
    return Page(trace.source, (listed("summary.tables", held),), notes)


_GPU_WORK = declare(
    "op_count: GPU ops, device_ns: GPU busy, device_ratio: GPU share, idle_ns: GPU idle, backward_ns: its backward"
)
_LAYERS = declare(
    "rank, device, name: range [name], layers",
    "busy_ns: GPU busy, idle_ns: GPU idle, all_busy_ns: all busy, all_idle_ns: all idle",
)
_NO_OPERATORS = "record operators: timesink capture torch, or torch.autograd.profiler.emit_nvtx under nsys"


def ranges_page(trace: Trace, top: int, *, tree: bool, by_thread: bool = False) -> Page:
    """The ranges alone, by name or by path, and layers: ranges that differ by their number."""
    if SUMS in trace:
        return sums_page(trace, top, "range")
    sheets = [ranges_sheet(trace, tree=tree, by_thread=by_thread)]
    if (numbered := layer_times(trace)).height:
        note = "ranges that differ by their number: the median one, and as many of it as there are numbers, as profiled"
        sheets.append(sheet_of("layers", "Layers", numbered, _LAYERS, note))
    return Page(f"Ranges of {trace.source}", tuple(first_rows(sheet, top) for sheet in sheets), _lost_ranges(trace))


def _lost_ranges(trace: Trace) -> tuple[str, ...]:
    """That stacks show calls into NVTX, of which torch.profiler recorded no range; none where it did."""
    frames = trace.get(FRAMES)
    opened = int((matches(frames["file"], NVTX_FILE) & matches(frames["name"], NVTX_OPENS)).sum())
    if not opened or not matches(trace.get(RANGES)["name"], f"{STEP}|{NUMBERED_STEP}").all():
        return ()
    return (
        f"the program opens NVTX ranges ({opened} calls), which torch.profiler does not record: "
        "`timesink capture torch` records them as ranges, as does torch.profiler.record_function",
    )


def operator_kernels_page(trace: Trace, top: int, pattern: str) -> Page:
    """The kernels of the operators whose names match. `UsageError` where none of them launched any."""
    frame = operator_kernels(trace, pattern)
    if not frame.height:
        called = trace.get(HOST_OPS)["name"].cast(pl.String).unique().sort().to_list()
        nearest = did_you_mean(pattern, {name: name for name in called})
        remedy = nearest or ("`timesink show` lists operators with GPU work" if called else _NO_OPERATORS)
        raise UsageError(f"no operator that matches {pattern!r} launched GPU work", remedy=remedy)
    sheet = listed("summary.operator_kernels", frame)
    return Page(f"Kernels of operators of {trace.source}", (first_rows(sheet, top),))


def calls_page(trace: Trace, top: int, *, by_thread: bool) -> Page:
    """The calls into CUDA and into the operating system alone."""
    if SUMS in trace:
        return sums_page(trace, top, "api_call", "os_call")
    sheets = tuple(first_rows(sheet, top) for sheet in calls_sheets(trace, by_thread=by_thread))
    return Page(f"Calls of {trace.source}", sheets)


def ranges_sheet(trace: Trace, *, tree: bool = False, by_thread: bool = False) -> Sheet:
    """Per name, or per path of nested names: host time, and the GPU's time between what was launched inside."""
    keys = f"rank, {'thread, ' if by_thread else ''}name: {'path' if tree else 'range'} [name]"
    columns = declare(keys, *SHARE, *_GPU_WORK, *SPREAD)
    note = (
        "share: how much of the time from the first range to the last one of that name was open, on any thread; total: "
        "of all of them on all threads; GPU busy, its share of that time, and idle: between the first start and the "
        "last end of the work that was launched inside, by autograd too while the range waited for it, summed over the "
        "ranges; its backward: GPU work that autograd launched elsewhere for operators called inside"
    )
    if RANGES not in trace:
        note = "ranges were not recorded: capture with --auto-ranges, or mark them with timesink.annotate"
    frame = range_times(trace, by_path=tree, by_thread=by_thread, steps_as_one=True)
    return sheet_of("ranges", "Ranges", frame, columns, note)


def calls_sheets(trace: Trace, *, by_thread: bool = False) -> tuple[Sheet, ...]:
    """Calls into CUDA, and into the operating system where they were recorded."""
    sheets = [_calls(trace, API_CALLS, "api_calls", "Runtime calls", by_thread)]
    if OS_CALLS in trace:
        sheets.append(_calls(trace, OS_CALLS, "os_calls", "Operating-system calls", by_thread))
    return tuple(sheets)


def _calls(trace: Trace, table: Table, key: str, title: str, by_thread: bool) -> Sheet:
    columns = declare("rank, thread" if by_thread else "rank", "name: call [name]", *SHARE, *SPREAD)
    frame = call_times(trace, table, by_thread=by_thread)
    return sheet_of(key, title, frame, columns, "share: of all calls of the table")


_NOTE = "means of the samples taken meanwhile, of the whole GPU; parts with fewer than ten samples are left out"


def counters_sheets(trace: Trace) -> tuple[Sheet, ...]:
    """One table; none where no counters were sampled."""
    if not trace.get(GPU_METRICS).height:
        return ()
    means = counter_means(trace)
    shares = [{share.what: share.share for share in mean.shares} for mean in means]
    shown = [what for what in SAMPLED if any(what in known for known in shares)]
    ratios = (Field(f"{what.lower().replace(' ', '_')}_ratio", what, "ratio") for what in shown)
    columns = declare("rank, device, part [text], name [name], time_ns: time", *ratios, "clock_mhz: clock [MHz]")
    rows = (
        (
            *(*mean.device, mean.part, mean.name or None, mean.time_ns),
            *(known.get(what) for what in shown),
            round(mean.clock_hz / 1e6) if mean.clock_hz else None,
        )
        for mean, known in zip(means, shares, strict=True)
    )
    return (sheet_of("counters", "Counters sampled along the timeline", rows, columns, _NOTE),)


CAUSE = Field("cause", "cause", is_name=True, words=IDLE_WORDS)
_PLACE = ("call", "host_op", "range", "frame")


def idle_page(trace: Trace, top: int) -> Page:
    """Causes, then the `top` places; of the steps that the diagnosis is of."""
    trace = of_usual_steps(trace)
    return Page(f"Idle time of {trace.source}", (_causes(trace), _places(trace, top)))


def _causes(trace: Trace) -> Sheet:
    columns = declare(
        "rank, device",
        CAUSE,
        "idle_ns: idle time, idle_ratio: of idle time, per_step_ns: per step, step_ratio: of step, stretches",
    )
    idle_ns = {(line.rank, line.device): line.idle.total_ns for line in device_timeline(trace)}
    step_count = steps(trace).count
    means = f"per step: mean over {step_count} steady steps" if step_count else _NO_STEPS
    rows = (
        (
            *(one.rank, one.device, one.cause, one.idle_ns, one.idle_ns / idle_ns[one.rank, one.device]),
            *(one.per_step_ns, one.per_step_ns / period_ns(trace, (one.rank, one.device)), one.stretches),
        )
        for one in idle_shares(trace)
    )
    note = f"the causes sum to the idle time; {means}"
    return sheet_of("causes", "What the GPU waited for", rows, columns, note)


_NO_STEPS = "no steps found: per step is the whole span"


def _places(trace: Trace, top: int) -> Sheet:
    columns = declare(
        CAUSE, "idle_ns: idle time, stretches, call [name], host_op: operator [name], range [name], frame [name]"
    )
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
    return first_rows(sheet_of("places", "Where in the program", grouped, columns), top)


def compile_page(trace: Trace, top: int) -> Page:
    """Exact counts first; then what the log says, where there is one: graph breaks, functions, caches, phases."""
    note = "" if COMPILE_EVENTS in trace else "no log beside the trace: TORCH_TRACE=folder names every break and guard"
    note = silent.why if (silent := known(trace).lacks.get(COMPILE_EVENTS)) else note
    counts = compile_counters(trace).items()
    sheets = [listed("summary.counts", counts, note)]
    if COMPILE_EVENTS in trace:
        log = compile_summary(trace)
        late, inside = "late: after every function had been compiled once", "phases lie inside each other"
        time_ns = attrgetter("compile_ns")
        events = ((name.removeprefix("cache_"), count) for name, count in log.caches.items())
        sheets += [
            first_rows(listed("summary.breaks", log.breaks), top),
            first_rows(listed("summary.functions", log.frames, late, time_ns=time_ns), top),
            listed("summary.caches", events),
            first_rows(listed("summary.phases", log.phases, inside), top),
        ]
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count})" for note in trace.notes)
    return Page(f"Compilation in {trace.source}", tuple(sheets), notes)


SHARE = declare("time_ratio: share, total_ns: total, count")
SPREAD = declare("mean_ns: mean, median_ns: median, min_ns: shortest, max_ns: longest")
_SUMMED = {
    "kernel": ("kernels", "Kernels", "kernel [kernel]"),
    "copy": ("copies", "Copies and memsets", "direction [name]"),
    "api_call": ("api_calls", "Runtime calls", "call [name]"),
    "os_call": ("os_calls", "Operating-system calls", "call [name]"),
    "range": ("ranges", "Ranges", "range [name]"),
}
_SUMS_NOTE = (
    "as the profiler summed it: what ran at once or nests counts in full; idle time, steps and streams are not in it"
)


def sums_page(trace: Trace, top: int, *which: str) -> Page:
    """What a profiler printed of sums by name, `top` rows each at most; all tables that it has where none is named."""
    sheets = []
    for what, (key, title, name) in _SUMMED.items():
        rows = trace[SUMS].filter(pl.col("what") == what)
        if rows.height and (not which or what in which):
            columns = declare("rank", f"name: {name}", *SHARE, *SPREAD, *(["bytes: moved"] if what == "copy" else []))
            sheets.append(first_rows(sheet_of(key, title, rows, columns, _SUMS_NOTE), top))
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count} rows)" for note in trace.notes)
    return Page(f"Sums of {trace.source}", tuple(sheets), notes)
