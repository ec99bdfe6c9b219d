"""Gaps cut into stretches of one cause each, by what bound the op that ended the gap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.idle.causes import CAUSE_CODE, HostActivity, Segments
from timesink.model.arrays import BoolArray, IntArray
from timesink.model.tables import API_CALLS
from timesink.whatif.graph import RankWork

# A drain ends this soon after the release at most: the gap may begin later, with unrelated work of another stream.
_DRAIN_SLACK_NS: Final = 20_000
# A queued op behind its predecessor: gaps up to the late quantile of such gaps, held within these bounds, are ordinary.
_ORDINARY_GAP_NS: Final = (3_000, 10_000)
_CLASS_CAUSE: Final = ("dependency_compute", "dependency_communication", "dependency_copy")


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """One entry per stretch. `gap` numbers the gaps; `thread`, `call_row` and `sync_row` are -1 where there is none.

    `asked_ns` is the instant at which names are looked up on `timeline`.
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

    @classmethod
    def joined(cls, parts: list[Pieces]) -> Pieces:
        """All parts, one after another."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__slots__))

    def taken(self, keep: BoolArray | IntArray) -> Pieces:
        """The chosen entries."""
        return Pieces(*(getattr(self, name)[keep] for name in Pieces.__slots__))


@dataclass(frozen=True, slots=True, eq=False)
class _Gaps:
    """What is known of each gap: bounds, the call (number, -1 unknown) and block of the op that ended it."""

    start_ns: IntArray
    end_ns: IntArray
    call: IntArray
    block: IntArray
    op: IntArray
    launch_ns: IntArray
    thread: IntArray
    timeline: IntArray


def cut_gaps(gaps: pl.DataFrame, work: RankWork, activity: HostActivity) -> Pieces:
    """Cut every gap, placed before: host part, launch latency, dependency, and what is left on the device."""
    known = _known(gaps, work, activity)
    host_end = np.clip(known.launch_ns, known.start_ns, known.end_ns)
    host_end = np.where((known.call >= 0) & ~_inside_graph(known, work), host_end, known.start_ns)
    sync_call, sync_end = _drains(known, work, activity, host_end)
    sync_row = np.where(sync_call >= 0, work.calls.row[np.maximum(sync_call, 0)], -1) if len(work.calls) else sync_call
    parts = [
        _sync_parts(known, work, sync_call, sync_end, sync_row),
        _host_parts(known, activity, np.maximum(sync_end, known.start_ns), host_end, sync_row),
        *_device_parts(known, work, host_end, sync_row),
    ]
    return Pieces.joined([part.taken(np.flatnonzero(part.end_ns > part.start_ns)) for part in parts])


def with_places(gaps: pl.DataFrame, work: RankWork) -> pl.DataFrame:
    """The gaps with `place`: the op that ended each, by its place among the rank's ops."""
    place = work.ops.places_of(gaps["op"].to_numpy())
    return gaps.with_columns(pl.Series("place", place, pl.Int64))


def _known(gaps: pl.DataFrame, work: RankWork, activity: HostActivity) -> _Gaps:
    ops, calls = work.ops, work.calls
    op = gaps["place"].to_numpy()
    call = ops.call[op]
    some = np.maximum(call, 0)
    nothing = np.full(call.size, -1, np.int64)
    launch = np.where(call >= 0, calls.start_ns[some], -1) if len(calls) else nothing
    thread = np.where(call >= 0, calls.thread[some], -1) if len(calls) else nothing
    timeline = np.where(thread >= 0, activity.timeline_of[np.maximum(thread, 0)], -1) if len(calls) else nothing
    return _Gaps(
        gaps["start_ns"].to_numpy(), gaps["end_ns"].to_numpy(), call, ops.block[op], op, launch, thread, timeline
    )  # fmt: skip


def _inside_graph(known: _Gaps, work: RankWork) -> BoolArray:
    """The op that ended the gap is not the first of its graph launch: no launch could have come in between."""
    return known.end_ns > work.blocks.start_ns[known.block]


def _drains(known: _Gaps, work: RankWork, activity: HostActivity, host_end: IntArray) -> tuple[IntArray, IntArray]:
    """The call whose wait drained the device before each gap (-1: none), and how far the restart is charged to it.

    Without the wait the host would have come to the next launch earlier by as long as it waited: that much of the gap,
    after the call returned, is the wait's doing. What the host needs beyond it would keep the device idle anyway.
    """
    found, until = np.full(known.start_ns.size, -1, np.int64), known.start_ns.copy()
    calls, releases = work.calls, work.releases
    if not releases.call.size:
        return found, until
    released = work.blocks.end_ns[releases.block]
    if not known.start_ns.size:
        return found, until
    near = (released >= known.start_ns.min() - _DRAIN_SLACK_NS) & (released <= known.start_ns.max())
    device = work.ops.device[work.blocks.op[releases.block]]
    waited = np.flatnonzero(near & (calls.start_ns[releases.call] < released))
    gap_device = work.ops.device[known.op]
    for number in np.unique(gap_device):
        mine = np.flatnonzero(gap_device == number)
        pool = waited[device[waited] == number]
        pool = pool[np.lexsort((calls.end_ns[releases.call[pool]], released[pool]))]
        if not pool.size:
            continue
        place = np.searchsorted(released[pool], known.start_ns[mine], side="right") - 1
        pair = pool[np.maximum(place, 0)]
        call = releases.call[pair]
        drains = (place >= 0) & (known.start_ns[mine] - released[pair] <= _DRAIN_SLACK_NS)
        drains &= calls.end_ns[call] <= host_end[mine]
        drains &= activity.timeline_of[calls.thread[call]] == known.timeline[mine]
        drained = mine[drains]
        lost = released[pair[drains]] - calls.start_ns[call[drains]]
        returned = np.maximum(calls.end_ns[call[drains]], known.start_ns[drained])
        found[drained], until[drained] = call[drains], np.minimum(returned + lost, host_end[drained])
    return found, until


def _sync_parts(known: _Gaps, work: RankWork, call: IntArray, until: IntArray, sync_row: IntArray) -> Pieces:
    gap = np.flatnonzero(call >= 0)
    calls = work.calls
    thread = calls.thread[call[gap]]
    return Pieces(
        gap, known.start_ns[gap], until[gap], np.full(gap.size, CAUSE_CODE["sync"], np.int64), known.timeline[gap],
        thread, sync_row[gap], sync_row[gap], calls.start_ns[call[gap]],
    )  # fmt: skip


def _host_parts(known: _Gaps, activity: HostActivity, start: IntArray, end: IntArray, sync_row: IntArray) -> Pieces:
    """The stretch of each gap before its launch, split by the innermost activity of the launching thread."""
    gap = np.flatnonzero(end > start)
    segments = activity.all
    first, count = _overlapping(
        segments.timeline, (segments.start_ns, segments.end_ns), known.timeline[gap], (start[gap], end[gap])
    )
    owner = np.repeat(np.arange(gap.size), count)
    place = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count) + first[owner]
    seg_start = np.maximum(segments.start_ns[place], start[gap[owner]])
    seg_end = np.minimum(segments.end_ns[place], end[gap[owner]])
    call_segments = activity.by_table[API_CALLS]
    filled = Pieces(
        gap[owner], seg_start, seg_end, segments.cause[place], segments.timeline[place], segments.thread[place],
        _call_rows(call_segments, segments.timeline[place], seg_start), sync_row[gap[owner]], seg_start,
    )  # fmt: skip
    # what lies between two segments of a gap, before the first and after the last, is untraced
    bounds_owner = np.concatenate((owner, np.arange(gap.size), np.arange(gap.size)))
    left = np.concatenate((seg_start, end[gap], start[gap]))
    right = np.concatenate((seg_end, end[gap], start[gap]))
    order = np.lexsort((right, left, bounds_owner))
    bounds_owner, left, right = bounds_owner[order], left[order], right[order]
    same = bounds_owner[1:] == bounds_owner[:-1]
    hole_gap = gap[bounds_owner[1:][same]]
    none = np.full(hole_gap.size, -1, np.int64)
    holes = Pieces(
        hole_gap, right[:-1][same], left[1:][same], np.full(hole_gap.size, CAUSE_CODE["untraced"], np.int64),
        known.timeline[hole_gap], known.thread[hole_gap], none, sync_row[hole_gap], right[:-1][same],
    )  # fmt: skip
    return Pieces.joined([filled, holes])


def _overlapping(
    timeline: IntArray, segment: tuple[IntArray, IntArray], wanted: IntArray, window: tuple[IntArray, IntArray]
) -> tuple[IntArray, IntArray]:
    """For each window, the first segment of its timeline that overlaps it, and how many do."""
    if not timeline.size or not wanted.size:
        return np.zeros(wanted.size, np.int64), np.zeros(wanted.size, np.int64)
    origin = min(int(segment[0].min()), int(window[0].min()))
    width = max(int(segment[1].max()), int(window[1].max())) - origin + 1
    base, asked = timeline * width - origin, wanted * width - origin
    first = np.searchsorted(base + segment[1], asked + window[0], side="right")
    last = np.searchsorted(base + segment[0], asked + window[1], side="left")
    return first, np.maximum(last - first, 0)


def _call_rows(segments: Segments, timeline: IntArray, time_ns: IntArray) -> IntArray:
    place = segments.at(timeline, time_ns)
    return np.where(place >= 0, segments.row[np.maximum(place, 0)], -1) if segments.row.size else place


def _device_parts(known: _Gaps, work: RankWork, host_end: IntArray, sync_row: IntArray) -> list[Pieces]:
    """After the launch: latency, then a dependency on another device, then an ordinary gap or one unexplained."""
    linked = (known.call >= 0) & ~_inside_graph(known, work)
    late = np.where(linked, known.launch_ns + work.costs.latency_late_ns(known.op), known.start_ns)
    latency_end = np.clip(late, host_end, known.end_ns)
    source_end, source_class = _sources(known, work)
    # a launch call that has not returned is still being made: it loads a module, or waits for a lock
    call_end = work.calls.end_ns[np.maximum(known.call, 0)] if len(work.calls) else known.start_ns
    made = np.clip(np.where(linked, call_end, known.start_ns), latency_end, known.end_ns)
    held_until = np.clip(source_end, made, known.end_ns)
    dependency = np.array([CAUSE_CODE[name] for name in _CLASS_CAUSE], np.int64)[source_class]
    graph = _inside_graph(known, work)
    ordinary = int(np.clip(work.costs.gap_late_ns, *_ORDINARY_GAP_NS))
    rest_cause = np.where(
        graph,
        CAUSE_CODE["graph_gap"],
        np.where(known.end_ns - held_until <= ordinary, CAUSE_CODE["kernel_gap"], CAUSE_CODE["unexplained"]),
    )
    launch_row = work.calls.row[np.maximum(known.call, 0)] if len(work.calls) else known.call
    none = np.full(known.op.size, -1, np.int64)
    every = np.arange(known.op.size)

    def parts(start: IntArray, end: IntArray, cause: IntArray, thread: IntArray, call_row: IntArray) -> Pieces:
        return Pieces(every, start, end, cause, known.timeline, thread, call_row, sync_row, start)

    latency = np.full(every.size, CAUSE_CODE["launch_latency"], np.int64)
    launch = Pieces(
        every, host_end, latency_end, latency, known.timeline, known.thread, np.where(linked, launch_row, -1), sync_row,
        np.where(linked, known.launch_ns, host_end),
    )  # fmt: skip
    in_call = np.full(every.size, CAUSE_CODE["cuda_call"], np.int64)
    return [
        launch,
        replace(launch, start_ns=latency_end, end_ns=made, cause=in_call),
        parts(made, held_until, dependency, none, none),
        parts(held_until, known.end_ns, rest_cause, none, none),
    ]


def _sources(known: _Gaps, work: RankWork) -> tuple[IntArray, IntArray]:
    """When the last event that the op's block waited for came, and the class of the op that raised it."""
    ends = np.full(known.block.size, np.iinfo(np.int64).min, np.int64)
    source = np.zeros(known.block.size, np.int64)
    if known.block.size and work.events.sink.size:
        raised, sink = _last_raised(work, int(known.block.min()), int(known.block.max()))
        place = np.minimum(np.searchsorted(sink, known.block), max(sink.size - 1, 0))
        found = np.flatnonzero(sink[place] == known.block) if sink.size else place[:0]
        source[found] = raised[place[found]]
        ends[found] = work.blocks.end_ns[source[found]]
    classes = work.ops.op_class[work.blocks.op[source]].astype(np.int64)
    return ends, classes


def _last_raised(work: RankWork, low: int, high: int) -> tuple[IntArray, IntArray]:
    """For the blocks `low` to `high` that waited for an event: the block that raised the last, and the block itself."""
    events = work.events
    within = np.flatnonzero((events.sink >= low) & (events.sink <= high))
    source, sink = events.source[within], events.sink[within]
    order = np.lexsort((np.arange(sink.size), work.blocks.end_ns[source], sink))
    last = order[np.append(sink[order][1:] != sink[order][:-1], True)] if order.size else order
    return source[last], sink[last]
