"""What an idle device may be waiting for, which host activity is evidence for which cause, and when each went on.

The activity of a launching thread at an instant is its innermost range, Python frame, operator or CUDA call. Its cause
comes from its name and from those around it.
"""

from typing import Final, Self

import numpy as np
import polars as pl

from timesink._native import first_places, holding, innermost, places
from timesink.knowledge import ranges
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.calls import (
    LOADS_MODULE,
    OF_MEMORY,
    STREAM_ORDERED,
    SYNCHRONISES,
    CallKind,
    call_kinds,
)
from timesink.knowledge.kernels import decode
from timesink.knowledge.operators import ALLOCATES
from timesink.measures.idle.lasting_calls import os_time, polling_until
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import mapped, matches, of_each
from timesink.model.nesting import slice_of, thread_slices
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, OS_CALLS, PROFILER_OVERHEAD, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif.graph import RankWork

# In order of priority: of two activities that enclose an instant, the cause named first counts, down to `logging`. From
# `dispatch` on, the cause of the innermost activity counts.
CAUSES: Final = (
    "profiler", "sync", "allocator", "copy_staging", "loader", "compile", "checkpoint", "garbage_collection",
    "optimizer", "logging", "dispatch", "cuda_call", "os_call", "python", "unrecorded_code",
    "launch_latency", "dependency_communication", "dependency_copy", "dependency_compute", "kernel_gap", "graph_gap",
    "migration", "unexplained",
)  # fmt: skip
IdleCause: Final = pl.Enum(list(CAUSES))
HOST_CAUSES: Final = CAUSES[1:15]
LAUNCHING_CAUSES: Final = ("dispatch", "cuda_call", "launch_latency", "unrecorded_code", "python", "optimizer")
"""What launching work looks like: a wait before it may have made it late (`charges`)."""
CAUSE_CODE: Final = {name: code for code, name in enumerate(CAUSES)}
_INNERMOST_COUNTS: Final = CAUSE_CODE["dispatch"]

_BY_NAME: Final = (
    ("garbage_collection", ranges.GARBAGE_COLLECTION),
    ("loader", ranges.LOADING),
    ("compile", ranges.COMPILE_WORK),
    ("checkpoint", ranges.CHECKPOINTING),
    ("optimizer", ranges.OPTIMIZER_WORK),
    ("logging", ranges.LOGGING),
)


# Where two of these begin and end together, the later one in this list is the inner one.
ACTIVITY_TABLES: Final = (RANGES, FRAMES, OS_CALLS, HOST_OPS, API_CALLS, PROFILER_OVERHEAD)
_CAUSE_OF_UNNAMED: Final = {RANGES: "unrecorded_code", FRAMES: "python", HOST_OPS: "dispatch"}
_Columns = tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]
"""timeline, start_ns, end_ns, row, thread, cause: one entry per row of a table."""


class Segments(Record, eq=False):
    """Disjoint stretches in order of timeline and start, each with the row of its innermost activity and its cause.

    `row` is a row of the activity's table, empty for all tables together. `thread` numbers the launching threads of the
    rank; `cause` is a `CAUSE_CODE`; of one table alone both are empty.
    """

    timeline: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    row: Int64Array
    thread: Int64Array
    cause: Int64Array

    @classmethod
    def of(cls, columns: _Columns) -> Self:
        """The innermost activity at each instant of rows that may nest, with the cause that counts there.

        A frame [0, 90) of `loader` around a call [10, 40) of `cuda_call` gives three segments of cause `loader`,
        because that has priority; a frame of `python` would leave `cuda_call` to the call::

            segment   row    cause, in a loader  cause, in other Python
            [0, 10)   frame  loader              python
            [10, 40)  call   loader              cuda_call
            [40, 90)  frame  loader              python
        """
        timeline, start_ns, end_ns, row, thread, cause = columns
        if not _outer_first(timeline, start_ns, end_ns):
            order = np.lexsort((-end_ns, start_ns, timeline))
            timeline, start_ns, end_ns, row, thread, cause = (_at(column, order) for column in columns)
        start, end, place, highest = innermost(timeline, start_ns, end_ns, cause)
        counted = np.where(highest < _INNERMOST_COUNTS, highest, cause[place]) if thread.size else thread
        return cls(timeline[place], start, end, _at(row, place), _at(thread, place), counted)

    def row_at(self, timeline: Int64Array, time_ns: Int64Array) -> Int64Array:
        """The row of the activity at each instant of a timeline, or -1."""
        place = holding(self.timeline, self.start_ns, self.end_ns, timeline, time_ns)
        return np.where(place >= 0, self.row[place], -1) if self.row.size else place


def _at(column: Int64Array, places: Int64Array) -> Int64Array:
    return column[places] if column.size else column


def _outer_first(timeline: Int64Array, start_ns: Int64Array, end_ns: Int64Array) -> bool:
    """Whether intervals come by timeline and start, of those that start together the longest first."""
    later = (start_ns[1:] > start_ns[:-1]) | ((start_ns[1:] == start_ns[:-1]) & (end_ns[1:] <= end_ns[:-1]))
    return bool(np.all((timeline[1:] > timeline[:-1]) | ((timeline[1:] == timeline[:-1]) & later)))


_TRIALS: Final = 3  # waits and kernels of one convolution: a search times at least so many algorithms


class HostActivity(Record, eq=False):
    """`all`: segments over every table together. `by_table`: segments of one table alone, for names.

    A worker thread and the thread that waits for it share one timeline, since only one of them works at a time;
    `timeline_of` maps a thread's number to it.
    """

    all: Segments
    by_table: dict[Table, Segments]
    timeline_of: Int64Array


def host_activity(trace: Trace, work: RankWork, windows: Intervals) -> HostActivity:
    """Activity of a rank's launching threads, of the rows that touch the windows."""
    timeline_of = np.arange(len(work.calls.threads))
    timeline_of[work.bursts.worker] = work.bursts.owner
    rows = {table: _activity_rows(trace, table, work, timeline_of, windows) for table in ACTIVITY_TABLES}
    of_compiler = _compiling_rows(trace, work, timeline_of)
    timeline, start, end, _, thread, cause = (
        np.concatenate(column) for column in zip(*rows.values(), of_compiler, strict=True)
    )
    none = np.empty(0, np.int64)
    by_table = {table: Segments.of((*rows[table][:4], none, rows.pop(table)[5])) for table in ACTIVITY_TABLES}
    return HostActivity(Segments.of((timeline, start, end, none, thread, cause)), by_table, timeline_of)


def _activity_rows(trace: Trace, table: Table, work: RankWork, timeline_of: Int64Array, windows: Intervals) -> _Columns:
    """Rows of a table that touch the windows on a launching thread."""
    frame = trace.get(table)
    number = {process_thread: n for n, process_thread in enumerate(work.calls.threads)}
    unsorted = table is PROFILER_OVERHEAD
    low, high = (0, frame.height) if unsorted else slice_of(frame, ("rank",), (work.rank,))
    own, thread = frame[low:high], np.full(high - low, -1, np.int32)
    if unsorted:
        of_rank = np.flatnonzero((own["rank"] == work.rank).to_numpy())
        thread[of_rank] = [number.get(key, -1) for key in own[of_rank].select("process", "thread").rows()]
    else:
        for (_, process, thread_id), first, last in thread_slices(own):
            thread[first:last] = number.get((process, thread_id), -1)
    if table is RANGES:
        thread[(own["kind"] != "push_pop").to_numpy()] = -1
    start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    if table is API_CALLS:
        end = polling_until(trace)[low:high]
    if table is OS_CALLS:
        in_system = os_time(trace)
        paired = np.concatenate((work.bursts.owner, work.bursts.worker))  # autograd's threads wait for each other
        awaited = in_system.for_thread[low:high] & np.isin(thread, paired)
        thread[~in_system.own[low:high] | awaited] = -1
        end = in_system.until_ns[low:high]
    rows = np.flatnonzero((windows.covered_ns(start, end) > 0) & (thread >= 0))
    of_thread, cause = thread[rows].astype(np.int64), _causes(trace, table, frame, low + rows)
    return timeline_of[of_thread], start[rows], end[rows], low + rows, of_thread, cause


def _compiling_rows(trace: Trace, work: RankWork, timeline_of: Int64Array) -> _Columns:
    """Where a thread loads compiled kernels: the time between the launches before and after it, on its timeline.

    A compiler that nobody put a range around (Nsight Systems records none) is seen by what it loads, between tracing
    the program and keeping what was compiled. Launches [10, 20) and [90, 95) and a load [70, 72) give [20, 90), where
    the later one launches a kernel that a compiler generated; else [70, 72): a program that loads a kernel that was
    compiled before it ran may do anything else before.
    """
    calls, launches_work, generated = work.calls, *np.zeros((2, len(work.calls)), np.bool_)
    named = matches(trace.get(API_CALLS)["name"], LOADS_MODULE).to_numpy()
    loads = np.flatnonzero(named[calls.row]) if named.any() else np.empty(0, np.int64)
    if loads.size:
        launches_work[work.ops.call[work.ops.call >= 0]] = True
        names = trace[DEVICE_OPS]["name"][work.ops.row]
        is_made = of_each(names, lambda name: decode(name).fused is not None, pl.Boolean()).to_numpy()
        generated[work.ops.call[is_made & (work.ops.call >= 0)]] = True
    found, stretches = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
    loading = timeline_of[calls.thread[loads]]
    for timeline in np.unique(loading):
        own = loads[loading == timeline]
        launches = np.flatnonzero(launches_work & (timeline_of == timeline)[calls.thread])
        if (np.diff(calls.start_ns[launches]) < 0).any():  # of several threads
            launches = launches[np.argsort(calls.start_ns[launches], kind="stable")]
        after = np.searchsorted(calls.start_ns[launches], calls.start_ns[own])
        between = (after > 0) & (after < launches.size)
        own, after = own[between], after[between]
        made = generated[launches[after]]
        start = np.where(made, calls.end_ns[launches[after - 1]], calls.start_ns[own])
        end = np.where(made, calls.start_ns[launches[after]], calls.end_ns[own])
        found.append(own)
        stretches.append(np.stack((start, end), axis=1))
    load, stretch = np.concatenate(found), np.concatenate(stretches)
    cause = np.full(load.size, CAUSE_CODE["compile"], np.int64)
    row, thread = calls.row[load].astype(np.int64), calls.thread[load].astype(np.int64)
    return timeline_of[thread].astype(np.int64), stretch[:, 0], stretch[:, 1], row, thread, cause


def _causes(trace: Trace, table: Table, frame: pl.DataFrame, rows: Int64Array) -> Int64Array:
    names = frame["name"][rows]
    if table is PROFILER_OVERHEAD:
        return np.full(rows.size, CAUSE_CODE["profiler"], np.int64)
    if table is OS_CALLS:
        return np.full(rows.size, CAUSE_CODE["os_call"], np.int64)
    if table is API_CALLS:
        return np.where(
            searching(trace)[rows], CAUSE_CODE["compile"], _call_causes(names, _pageable_copies(trace, frame)[rows])
        )
    causes = _name_causes(names, _CAUSE_OF_UNNAMED[table])
    if table is HOST_OPS:
        causes = np.where(_searched(trace)[rows], CAUSE_CODE["compile"], causes)
        computes = (causes == CAUSE_CODE["dispatch"]) & computes_on_host(trace)[rows]
        causes = np.where(computes, CAUSE_CODE["python"], causes)
        allocates = computes & matches(names, ALLOCATES).to_numpy()  # the pool grows by calls that nobody traces
        causes = np.where(allocates, CAUSE_CODE["allocator"], causes)
    return causes


@remembered
def calls_inside(trace: Trace) -> tuple[Int64Array, Int64Array]:
    """Of each of `host_ops` the first of `api_calls` that its thread begins in it and the one past the last: the same
    where there is none, both -1 where the thread calls nothing at all."""
    ops, calls = trace.get(HOST_OPS), trace.get(API_CALLS)
    low, high = np.full((2, ops.height), -1, np.int64)
    called = {key: slice(first, last) for key, first, last in thread_slices(calls)}
    for key, first, last in thread_slices(ops):
        if key in called:
            starts = calls["start_ns"].to_numpy()[called[key]]
            for side, found in (("start_ns", low), ("end_ns", high)):
                found[first:last] = called[key].start + places(starts, ops[side].to_numpy()[first:last], False)
    return low, high


@remembered
def searching(trace: Trace) -> BoolArray:
    """Which of `api_calls` are part of a search for the quickest algorithm of a convolution (`_searched`)."""
    names, calls = trace.get(HOST_OPS)["name"], trace.get(API_CALLS)
    found = np.zeros(calls.height, np.bool_)
    if not (convolves := matches(names, ranges.CONVOLVES).to_numpy()).any():
        return found
    low, high = calls_inside(trace)
    waits = np.append(0, np.cumsum(np.isin(call_kinds(calls["name"]), SYNCHRONISES)))
    kernels, call = trace.get(DEVICE_OPS)["name"].to_physical().to_numpy(), launch_links(trace).call
    order = np.argsort(call, kind="stable")
    kernels, call = kernels[order], call[order]
    for row in np.flatnonzero(convolves & (waits[high] - waits[low] >= _TRIALS)).tolist():
        launched = kernels[slice(*np.searchsorted(call, (low[row], high[row])))]
        found[low[row] : high[row]] |= np.unique(launched).size >= _TRIALS
    return found


@remembered
def _searched(trace: Trace) -> BoolArray:
    """Which of `host_ops` hold a search: a convolution waits for nothing, but for each algorithm that cuDNN times."""
    names, part = trace.get(HOST_OPS)["name"], searching(trace)
    if not part.any():
        return np.zeros(len(names), np.bool_)
    count, (low, high) = np.append(0, np.cumsum(part)), calls_inside(trace)
    found: BoolArray = (count[high] > count[low]) & matches(names, ranges.CONVOLVES).to_numpy()
    return found


@remembered
def computes_on_host(trace: Trace) -> BoolArray:
    """Which of `host_ops` compute on the CPU: long operators in which their thread calls nothing of CUDA's, and what is
    inside of them. A copy of two tensors of the CPU takes 2 ms so, dispatch microseconds."""
    frame = trace.get(HOST_OPS)
    start, end, found = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy(), np.zeros(frame.height, np.bool_)
    long = end - start >= fixes.CAPTURED_WITHIN_US.ns
    if not long.any():
        return found
    low, high = calls_inside(trace)
    rows = np.flatnonzero(long & (low == high) & (low >= 0))
    rows = rows[matches(frame["name"][rows], ranges.COMPUTES).to_numpy()]
    for _, first, last in thread_slices(frame) if rows.size else ():
        own = rows[slice(*np.searchsorted(rows, (first, last)))]
        inside = Intervals.union_of(start[own], end[own])
        found[first:last] = inside.covered_ns(start[first:last], start[first:last] + 1) > 0
    return found


def _call_causes(names: pl.Series, pageable: BoolArray) -> Int64Array:
    """The cause that each CUDA call is evidence for; `pageable` marks copies from or to pageable memory."""
    kinds = call_kinds(names)
    codes = np.full(kinds.size, CAUSE_CODE["cuda_call"], np.int64)
    codes[np.isin(kinds, SYNCHRONISES)] = CAUSE_CODE["sync"]
    codes[np.isin(kinds, OF_MEMORY) | matches(names, STREAM_ORDERED).to_numpy()] = CAUSE_CODE["allocator"]
    codes[pageable | (kinds == CallKind.COPY_BLOCKING)] = CAUSE_CODE["copy_staging"]
    codes[matches(names, LOADS_MODULE).to_numpy()] = CAUSE_CODE["compile"]
    return codes


def _name_causes(names: pl.Series, otherwise: str) -> Int64Array:
    """The cause that the name of an operator, a range or a frame is evidence for, or `otherwise`."""

    def classify(distinct: pl.Series) -> pl.Series:
        name = pl.col("name")
        by_name = (pl.when(name.str.contains(pattern)).then(pl.lit(CAUSE_CODE[cause])) for cause, pattern in _BY_NAME)
        operator = pl.when(name.str.contains(ranges.DISPATCHED)).then(pl.lit(CAUSE_CODE["dispatch"]))
        code = pl.coalesce(*by_name, operator, pl.lit(CAUSE_CODE[otherwise]))
        return distinct.rename("name").to_frame().select(code.cast(pl.Int64).alias("code")).to_series()

    return mapped(names, classify, pl.Int64).fill_null(CAUSE_CODE[otherwise]).to_numpy()


def _pageable_copies(trace: Trace, calls: pl.DataFrame) -> BoolArray:
    """Which calls copied from or to pageable memory, by rank and correlation."""
    ops = trace.get(DEVICE_OPS).filter((pl.col("src_memory") == "pageable") | (pl.col("dst_memory") == "pageable"))
    pageable = np.zeros(calls.height, np.bool_)
    if ops.height:
        ids = ops["correlation"].drop_nulls().unique()
        candidates = np.flatnonzero(first_places(calls["correlation"].fill_null(-1).to_numpy(), ids.to_numpy()) >= 0)
        key = ["rank", "correlation"]
        rows = calls[candidates].select(key).with_columns(pl.Series("row", candidates))
        pageable[rows.join(ops.select(key).unique(), on=key, how="semi")["row"].to_numpy()] = True
    return pageable
