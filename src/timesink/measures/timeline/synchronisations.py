"""Calls that make the host wait for the GPU: how long they wait, and how long the GPU then waits for the host.

Also whether the program's own instrumentation waits for the GPU at the end of every block it times. Such a trace says
where GPU time goes, block by block, and nothing of how fast the program runs: no launch runs ahead, nothing overlaps.
It is a fact about the capture, not a fault of the program.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.calls import WAITS_FOR_DEVICE, CallKind, call_kinds
from timesink.knowledge.ranges import GENERATED, LIBRARY, OPERATOR, OWN_RANGES
from timesink.measures.timeline import device_gaps
from timesink.measures.timeline.attribution import host_places, launch_links, names_at, push_pop_ranges
from timesink.measures.timeline.launches import launches
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

SyncCallKind = pl.Enum(["device", "stream", "event", "copy", "pageable_copy"])
_KINDS: Final = pl.Series(SyncCallKind.categories, dtype=SyncCallKind)
_NONE, _PAGEABLE_COPY = -1, len(WAITS_FOR_DEVICE)
_KIND_OF_CALL: Final = np.full(max(CallKind) + 1, _NONE, np.int8)
_KIND_OF_CALL[list(WAITS_FOR_DEVICE)] = range(len(WAITS_FOR_DEVICE))
"""By `CallKind` the place in `SyncCallKind`, or `_NONE`."""
_THREAD: Final = ["rank", "process", "thread"]
_DRAINS: Final = pl.Schema(
    {"rank": pl.Int32(), "device": pl.Int32(), "start_ns": pl.Int64(), "end_ns": pl.Int64(), "call": pl.Int64()}
)


class Synchronisations(Record, eq=False):
    """`calls`: one row per blocking call, in order of rank, process, thread and start.

    Columns: rank, process, thread, call (row of api_calls), name, kind, start_ns, end_ns, blocked_ns, host_op, range
    (innermost around it, null where none), drain_ns. `blocked_ns` is the call's whole duration: mostly waiting, a few
    microseconds of it the call itself. `drains`: rank, device, start_ns, end_ns, call; the device idle time that
    began while the call waited and ended with work launched only after it returned. No gap is charged to two calls.
    A cudaEventQuery does not block and is not here.
    """

    calls: pl.DataFrame
    drains: pl.DataFrame


@remembered
def synchronisations(trace: Trace) -> Synchronisations:
    """Find blocking calls, the time they block, and the drains they cause."""
    waits, places = blocking_calls(trace), host_places(trace)
    rows = waits["call"].to_numpy()
    blocking = waits.select(
        *_THREAD,
        trace.get(API_CALLS)["name"][rows].cast(pl.String),
        "start_ns",
        "end_ns",
        "kind",
        "call",
        (pl.col("end_ns") - pl.col("start_ns")).alias("blocked_ns"),
        names_at(places.op_names, places.host_op[rows], "host_op").cast(pl.String),
        names_at(places.range_names, places.range_[rows], "range").cast(pl.String),
    )
    drains = _drains(trace, blocking)
    drain_ns = drains.group_by("call").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("drain_ns"))
    blocking = blocking.join(drain_ns, on="call", how="left", maintain_order="left")
    return Synchronisations(calls=blocking.with_columns(pl.col("drain_ns").fill_null(0)), drains=drains)


@remembered
def blocking_calls(trace: Trace) -> pl.DataFrame:
    """Calls that block, in their order: rank, process, thread, start_ns, end_ns, kind, call (row of `api_calls`)."""
    calls, ops, links = trace.get(API_CALLS), trace.get(DEVICE_OPS), launch_links(trace)
    kind = _KIND_OF_CALL[call_kinds(calls["name"])]
    to_pageable = (ops["kind"] == "copy") & (ops["copy_kind"] == "d2h") & (ops["dst_memory"] == "pageable")
    copying = links.call[to_pageable.fill_null(False).to_numpy() & links.linked]
    kind[copying[kind[copying] == _NONE]] = _PAGEABLE_COPY
    rows = np.flatnonzero(kind != _NONE)
    kinds = _KINDS[kind[rows]].alias("kind")
    return calls[rows].select(*_THREAD, "start_ns", "end_ns", kinds, pl.Series("call", rows))


def _drains(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Gaps that began while a call of the device's process waited, and that end with work launched after it returned.

    Of several such calls the first to return is the cause: it was the one that let the queue run dry.
    """
    parts = [pl.DataFrame(schema=_DRAINS)]
    waits = calls.sort("end_ns", "call").partition_by("rank", "process", as_dict=True, maintain_order=True)
    for gaps in device_gaps(trace).slices():
        for key, of_process in gaps.partition_by("rank", "process", as_dict=True, maintain_order=True).items():
            if (blocking := waits.get(key)) is None or None in key:
                continue
            cause = _find_first_waiting(of_process, blocking)
            call = pl.Series("call", blocking["call"].to_numpy()[cause[cause >= 0]])
            drained = of_process.filter(pl.Series(cause >= 0))
            parts.append(drained.select("rank", "device", "start_ns", "end_ns", call))
    return pl.concat(parts).sort("rank", "device", "start_ns")


def _find_first_waiting(gaps: pl.DataFrame, calls: pl.DataFrame) -> Int64Array:
    """For each gap, the index of the first call to return after the gap began that was waiting when it began; or -1.

    `calls` come in order of return. The call must return before the launch of the work that ends the gap. A gap
    [100, 180) whose work was launched at 150 belongs to call 2: call 0 returned before it, call 1 had not begun::

        call  start  end
        0     20     90
        1     105    110
        2     60     140
        3     50     170  (returned after the launch)
    """
    gap_start = gaps["start_ns"].to_numpy()
    launched = gaps.select(pl.coalesce("launch_start_ns", "end_ns")).to_series().to_numpy()
    call_start, call_end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    candidate = np.searchsorted(call_end, gap_start, side="left")
    answer = np.full(gap_start.size, -1, np.int64)
    undecided = np.arange(gap_start.size)
    while undecided.size:
        undecided = undecided[candidate[undecided] < call_end.size]
        undecided = undecided[call_end[candidate[undecided]] <= launched[undecided]]
        waiting = call_start[candidate[undecided]] < gap_start[undecided]
        answer[undecided[waiting]] = candidate[undecided[waiting]]
        undecided = undecided[~waiting]
        candidate[undecided] += 1
    return answer


class SynchronisedRanges(Record):
    """`blocks`: ranges that launch work and enclose no other such range; `waiting` of them end in a blocking call,
    with no launch after it."""

    blocks: int
    waiting: int

    @property
    def attribution_only(self) -> bool:
        """Whether nearly every block ends in a wait."""
        return self.blocks >= assumed.TIMED_BLOCKS.whole and self.waiting >= assumed.TIMED_SHARE.value * self.blocks


@remembered
def synchronised_ranges(trace: Trace) -> SynchronisedRanges:
    """Count the innermost ranges of the program around launches, and those of them that end in a wait."""
    ranges, calls = push_pop_ranges(trace), trace.get(API_CALLS)
    for of_others in (OWN_RANGES, GENERATED, LIBRARY, OPERATOR):
        ranges = ranges.filter(~matches(ranges["name"], of_others))
    if not ranges.height or not calls.height or not launches(trace):
        return SynchronisedRanges(0, 0)
    launching = calls.filter(pl.Series(launch_links(trace).launching(calls.height))).select(*_THREAD, "start_ns")
    blocking = blocking_calls(trace).select(*_THREAD, "start_ns").sort("start_ns")
    blocks = waiting = 0
    for key, of_thread in sorted(ranges.partition_by(_THREAD, as_dict=True).items()):
        on_thread = pl.all_horizontal(pl.col(name) == value for name, value in zip(_THREAD, key, strict=True))
        launch = np.sort(launching.filter(on_thread)["start_ns"].to_numpy(), kind="stable")
        wait = blocking.filter(on_thread)["start_ns"].to_numpy()
        begin, end = of_thread["start_ns"].to_numpy(), of_thread["end_ns"].to_numpy()
        first, after_last = np.searchsorted(launch, begin), np.searchsorted(launch, end)
        launches_work = after_last > first
        block = launches_work & ~_encloses(begin, end, launches_work)
        blocks += int(block.sum())
        last_launch = launch[after_last[block] - 1]
        waiting += int((np.searchsorted(wait, end[block]) > np.searchsorted(wait, last_launch)).sum())
    return SynchronisedRanges(blocks, waiting)


def _encloses(begin: Int64Array, end: Int64Array, launches_work: BoolArray) -> BoolArray:
    """Whether each range of a thread encloses another one that launches work. Ranges nest, in order of start.

    Sorted by start, and the longer of equals first, a range that encloses others is followed by one of them: so is the
    first of [0, 90), [10, 40), [50, 80)::

        range     next      encloses
        [0, 90)   [10, 40)  True
        [10, 40)  [50, 80)  False
        [50, 80)  none      False
    """
    answer = np.zeros(begin.size, np.bool_)
    order = np.lexsort((-end, begin))
    order = order[launches_work[order]]
    answer[order[:-1]] = (begin[order[1:]] >= begin[order[:-1]]) & (end[order[1:]] <= end[order[:-1]])
    return answer
