"""Gaps cut into stretches of one cause each, by what the op that ended the gap had to wait for.

Of a gap from `start` to `end`, ended by an op that was launched within it, the parts are in this order, any of them
possibly empty::

    sync                            from the start, until a blocking call that drained the device returned
    the host's activity, unrecorded   up to the start of the launch call
    launch_latency                  up to the latest that a launch onto an idle device usually takes
    cuda_call                       up to the return of the launch call, where it takes longer than that
    dependency_*                    up to the end of the last op that the launched one waits for
    kernel_gap, graph_gap, migration or unexplained   the rest

An op that was launched before the gap, or as part of a graph, has no parts before the dependency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink._native import cut, places
from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.assumptions import replay
from timesink.knowledge.op_class import COPY
from timesink.measures.idle.causes import CAUSE_CODE, HostActivity
from timesink.model.arrays import BoolArray, IntArray, found_at
from timesink.model.tables import API_CALLS
from timesink.records import Record, field_names
from timesink.whatif.graph import RankWork

_CLASS_CAUSE: Final = ("dependency_compute", "dependency_communication", "dependency_copy")


class Pieces(Record, eq=False):
    """Stretches of gaps, one entry each. Times in ns; numbers and rows are -1 where there is none.

    `gap` numbers the gaps that were cut and `cause` is a `CAUSE_CODE`. `thread` is the launching thread that kept the
    device waiting; `call_row` and `sync_row` are rows of `api_calls`: the call that the stretch is blamed on, and the
    blocking call that drained the device before the gap. Names are looked up at `asked_ns` on `timeline`.
    """

    gap: IntArray
    start_ns: IntArray
    end_ns: IntArray
    cause: IntArray
    timeline: IntArray
    thread: IntArray
    call_row: IntArray
    sync_row: IntArray
    asked_ns: IntArray

    def cut_at(self, edges_ns: IntArray) -> tuple[IntArray, Pieces]:
        """The pieces cut at ascending instants, and which piece each is of: [0, 9) at 4 is [0, 4) and [4, 9)."""
        first, last = np.searchsorted(edges_ns, self.start_ns, "right"), np.searchsorted(edges_ns, self.end_ns)
        count = np.maximum(last - first, 0) + 1
        row = np.repeat(np.arange(count.size), count)
        if row.size == count.size:
            return row, self
        edge = first[row] + np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
        after, bounds = edge > first[row], np.append(edges_ns, 0)
        start = np.where(after, bounds[edge - 1], self.start_ns[row])
        end = np.where(edge < last[row], bounds[edge], self.end_ns[row])
        others = (getattr(self, name)[row] for name in field_names(self) if name not in ("gap", "start_ns", "end_ns"))
        return row, Pieces(self.gap[row], start, end, *others)


class _Gaps(Record, eq=False):
    """One entry per gap: its bounds, and the op that ended it with its block and its launch.

    `op`, `call`, `block` and `thread` are numbers within the rank's work, -1 where not recorded; `launch_ns` is the
    start of the call, -1 likewise. `in_graph`: the op is not the first of its graph launch, so that no launch could
    have come in between. `launched`: the launch is recorded and is the op's own. `host_end_ns` is the end of the host's
    part: the start of the call, within the gap; the start of the gap where it was not launched so.
    """

    start_ns: IntArray
    end_ns: IntArray
    op: IntArray
    call: IntArray
    block: IntArray
    launch_ns: IntArray
    thread: IntArray
    timeline: IntArray
    in_graph: BoolArray
    launched: BoolArray
    host_end_ns: IntArray

    @classmethod
    def of(cls, frame: pl.DataFrame, known: GapCutter) -> _Gaps:
        work = known.work
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        op = work.ops.places_of(frame["op"].to_numpy()).astype(np.int64)
        call, block = work.ops.call[op], work.ops.block[op]
        # The CPU touches a page at the end of what it does: it is the thread that launched what was before.
        touched_ns = np.where(known.migrates[op], end - assumed.PAGE_TOUCH_US.ns, start)
        launch = found_at(work.calls.start_ns, call)
        thread = found_at(work.calls.thread, np.where(known.migrates[op], known.launched_before[op], call))
        in_graph = end > work.blocks.start_ns[block]
        launched = (call >= 0) & ~in_graph
        host_end = np.where(launched, np.clip(launch, start, end), np.maximum(start, touched_ns))
        timeline = found_at(known.activity.timeline_of, thread)
        return cls(start, end, op, call, block, launch, thread, timeline, in_graph, launched, host_end)


class GapCutter(Record, eq=False):
    """What the gaps of a rank are cut by, found once for all slices of them.

    `drained` has for each device, by the end of the work that was waited for: that end, and the number of the call that
    waited. `sink` are the blocks that waited for events, ascending, and `source` the block that ended last for each.
    `migrates` says of each op, by its number, whether it moves unified memory; `launched_before` is the call of the
    last op up to it that was launched, -1 where there is none.
    """

    work: RankWork
    activity: HostActivity
    drained: Mapping[int, tuple[IntArray, IntArray]]
    sink: IntArray
    source: IntArray
    migrates: BoolArray
    launched_before: IntArray

    @classmethod
    def of(cls, work: RankWork, activity: HostActivity, migrates: BoolArray) -> GapCutter:
        """What a rank's calls waited for, and what they and its blocks did."""
        call = work.ops.call
        last = np.maximum.accumulate(np.arange(call.size) * (call >= 0))
        return cls(work, activity, _waits_by_device(work), *_last_sources(work), migrates, call[last])

    def drained_at(self, frame: pl.DataFrame) -> IntArray:
        """When blocking calls drained one device: the start of the first gap that follows each of them."""
        gaps = _Gaps.of(frame, self)
        call = _drains(gaps, self)[0]
        return np.asarray(gaps.start_ns[(call >= 0) & (np.diff(call, prepend=-1) != 0)], np.int64)

    def cut(self, frame: pl.DataFrame) -> Pieces:
        """Cut every gap of one device, given as `device_gaps` has them, into stretches of one cause, in order of start.

        The host's part is split by the innermost activity of the launching thread, and the holes in which nothing was
        traced. A stretch [0, 100) with the segments [10, 40) and [40, 70) has the holes [0, 10) and [70, 100).
        """
        calls, did, called = self.work.calls, self.activity.all, self.activity.by_table[API_CALLS]
        gaps = _Gaps.of(frame, self)
        sync_call, sync_end = _drains(gaps, self)
        latency_end, call_end, dependency_end, dependency, rest = _device_parts(gaps, self)
        columns = [
            gaps.start_ns, sync_end, gaps.host_end_ns, latency_end, call_end, dependency_end, gaps.end_ns,
            gaps.timeline, gaps.thread, found_at(calls.row, gaps.call), gaps.launch_ns,
            found_at(calls.thread, sync_call), found_at(calls.row, sync_call), found_at(calls.start_ns, sync_call),
            dependency, rest,
        ]  # fmt: skip
        return Pieces(
            *cut(
                [np.asarray(column, np.int64) for column in columns],
                [did.timeline, did.start_ns, did.end_ns, did.thread, did.cause],
                [called.timeline, called.start_ns, called.end_ns, called.row],
                [CAUSE_CODE[name] for name in ("sync", "unrecorded_code", "launch_latency", "cuda_call")],
            )
        )


def _waits_by_device(work: RankWork) -> dict[int, tuple[IntArray, IntArray]]:
    """`GapCutter.drained`: calls that were made before the end of what they waited for; of one end, the last to return
    comes last."""
    calls, blocks, releases = work.calls, work.blocks, work.releases
    released = blocks.end_ns[releases.block]
    waited = np.flatnonzero(calls.start_ns[releases.call] < released)
    waited = waited[np.lexsort((calls.end_ns[releases.call[waited]], released[waited]))]
    device = work.ops.device[blocks.op[releases.block[waited]]]
    return {
        int(number): (released[own], releases.call[own])
        for number in np.unique(device)
        for own in (waited[device == number],)
    }


def _drains(gaps: _Gaps, known: GapCutter) -> tuple[IntArray, IntArray]:
    """The call whose wait drained the device before each gap (-1: none), and until when it had not returned.

    Such a call is released by work that ends up to 20 us before the gap, and returns before the next launch. For a gap
    [100, 190) with the launch at 180::

        waits from  released at  returns at  in the gap until
        40          100          105         105
        40          85           95          100: it was over
        110         100          120         none: it did not wait for that work
    """
    calls, timeline_of = known.work.calls, known.activity.timeline_of
    drain, until = np.full(gaps.start_ns.size, -1, np.int64), gaps.start_ns.copy()
    if not gaps.op.size or (device := int(known.work.ops.device[gaps.op[0]])) not in known.drained:
        return drain, until
    released, waiting = known.drained[device]
    before = places(released, gaps.start_ns, True) - 1  # the last one before the gap began
    call = waiting[before]
    drains = (before >= 0) & (gaps.start_ns - released[before] <= replay.CLOCK_SLACK_US.ns)
    drains &= calls.end_ns[call] <= gaps.host_end_ns
    drains &= timeline_of[calls.thread[call]] == gaps.timeline
    gap, call = np.flatnonzero(drains), call[drains]
    drain[gap], until[gap] = call, np.maximum(calls.end_ns[call], gaps.start_ns[gap])
    return drain, until


def _device_parts(gaps: _Gaps, known: GapCutter) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Until when each gap is latency, the rest of the launch call, and a dependency; the two causes that follow."""
    work = known.work
    # However often a trace shows it, a start so late is no latency of a launch: nothing on the host explains it.
    longest = int(replay.LATE_AT_MOST.value * replay.LATENCY_AT_MOST_US.ns)
    usual_start = gaps.launch_ns + np.minimum(work.costs.latency_late_ns(gaps.op), longest)
    latency_end = np.clip(np.where(gaps.launched, usual_start, gaps.start_ns), gaps.host_end_ns, gaps.end_ns)
    # A launch call that has not returned is still being made: it loads a module, or waits for a lock.
    returned = np.where(gaps.launched, found_at(work.calls.end_ns, gaps.call), gaps.start_ns)
    call_end = np.clip(returned, latency_end, gaps.end_ns)
    source_end, source_class = _sources(gaps, known)
    dependency_end = np.clip(source_end, call_end, gaps.end_ns)
    dependency = np.array([CAUSE_CODE[name] for name in _CLASS_CAUSE], np.int64)[source_class]
    usual_ns = np.where(_beside_copy(gaps, work), assumed.GAP_MOST_US.ns, ordinary_gap_ns(work.costs.gap_late_ns))
    ordinary = gaps.end_ns - dependency_end <= usual_ns
    rest = np.where(ordinary, CAUSE_CODE["kernel_gap"], CAUSE_CODE["unexplained"])
    rest = np.where(known.migrates[gaps.op], CAUSE_CODE["migration"], rest)
    return latency_end, call_end, dependency_end, dependency, np.where(gaps.in_graph, CAUSE_CODE["graph_gap"], rest)


def _beside_copy(gaps: _Gaps, work: RankWork) -> BoolArray:
    """Whether a copy ends the gap, or ended before it: a copy engine and the multiprocessors take longer to follow each
    other than kernels do."""
    op_class = work.ops.op_class
    return np.asarray((op_class[gaps.op] == COPY) | (op_class[np.maximum(gaps.op - 1, 0)] == COPY), np.bool_)


def ordinary_gap_ns(late_ns: int) -> int:
    """The longest ordinary gap before queued work, by a late one of the trace, within what is known of GPUs."""
    return int(np.clip(late_ns, assumed.GAP_LEAST_US.ns, assumed.GAP_MOST_US.ns))


def _sources(gaps: _Gaps, known: GapCutter) -> tuple[IntArray, IntArray]:
    """When the last event that the op's block waited for came, and the class of the op that raised it.

    Where it waited for none, the time is the least integer, which cuts no dependency.
    """
    blocks = known.work.blocks
    end = np.full(gaps.block.size, np.iinfo(np.int64).min, np.int64)
    source = np.zeros(gaps.block.size, np.int64)
    if known.sink.size:
        row = np.minimum(np.searchsorted(known.sink, gaps.block), known.sink.size - 1)
        waited = known.sink[row] == gaps.block
        source[waited] = known.source[row[waited]]
        end[waited] = blocks.end_ns[source[waited]]
    return end, known.work.ops.op_class[blocks.op[source]].astype(np.int64)


def _last_sources(work: RankWork) -> tuple[IntArray, IntArray]:
    """The blocks that waited for events, ascending, and the source that ended last for each.

    Sorted by sink and by the end of the source, the last row of each sink is kept, here rows 1 and 3::

        row  sink  source  end of the source
        0    4     1       20
        1    4     2       30
        2    7     2       30
        3    7     5       65
    """
    source, sink = work.events.source, work.events.sink
    order = np.lexsort((np.arange(sink.size), work.blocks.end_ns[source], sink))
    source, sink = source[order], sink[order]
    last = np.append(sink[1:] != sink[:-1], True) if sink.size else np.zeros(0, np.bool_)
    return sink[last], source[last]
