"""Where a finding shows: the typical step of it, narrowed to the neighbourhood of its longest claimed stretch."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import Finding
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline import Device, device_timeline, of_device
from timesink.model.arrays import Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.views.figures import Lane, MarkedWindow, Timeline, TimelineWindow
from timesink.views.timeline.runs import within

_LONGEST: Final = 20  # a screenful
Event = tuple[str, int, int]
"""Name, start and end of an event."""

AROUND: Final = 60  # a window is at most this many times as long as the longest stretch claimed in it ...
SHORTEST_NS: Final = 1_000_000  # ... but not shorter than this


def window_of(trace: Trace, finding: Finding) -> TimelineWindow | None:
    """The window of a finding's typical step; None where the finding claims no device time and names no device."""
    device = _device(finding)
    if device is None or device not in device_timeline(trace).by_device:
        return None
    claimed = finding.claim.intervals.get(device, Intervals.none())
    starts, ends = step_windows(trace, device)
    at = _typical(claimed.covered_ns(starts, ends))
    start, end = _narrowed(claimed, int(starts[at]), int(ends[at]))
    numbers = steps(trace).windows.filter(of_device(device) & (pl.col("start_ns") == int(starts[at])))["step"]
    step = int(numbers[0]) if len(numbers) else None
    return TimelineWindow(*device, start, end, step, claimed.clip(start, end).total_ns)


def marked(timeline: Timeline, number: int, window: TimelineWindow) -> MarkedWindow:
    """The window with the row of the timeline that holds what its finding claims, and its longest events."""
    device = (window.rank, window.device)
    found = [
        (lane.label, name, max(start, window.start_ns) - window.start_ns, end - start)
        for lane in lanes_of(timeline, device)
        for name, start, end in events_of(timeline, lane, window)
    ]
    found.sort(key=lambda event: (-event[3], event[1], event[0], event[2]))
    lane, row = timeline.marks.get((*device, number), (-1, -1))
    return MarkedWindow(window, lane, row, tuple(found[:_LONGEST]))


def lanes_of(timeline: Timeline, device: Device) -> list[Lane]:
    """What ran on a device, why it was idle, and the threads of its rank."""
    return [
        lane
        for lane in timeline.lanes
        if lane.kind not in ("finding", "step") and lane.rank == device[0] and lane.device in (None, device[1])
    ]


def events_of(timeline: Timeline, lane: Lane, window: TimelineWindow) -> Iterator[Event]:
    """The events of a lane that touch the window, but for those that are joined to others."""
    for runs in lane.rows:
        for at in within(runs, window.start_ns, window.end_ns):
            yield timeline.texts[int(runs.name[at])], int(runs.start_ns[at]), int(runs.end_ns[at])


def _device(finding: Finding) -> Device | None:
    """The device with the most claimed time; else the one the finding names."""
    claimed = finding.claim.intervals
    if any(len(part) for part in claimed.values()):
        return max(sorted(claimed), key=lambda device: claimed[device].total_ns)
    rank, device = finding.where.rank, finding.where.device
    return None if rank is None or device is None else (rank, device)


def _typical(claimed_ns: Int64Array) -> int:
    """The step whose claimed time is nearest to the median of the steps that have any; the first of equals."""
    some = claimed_ns[claimed_ns > 0]
    return int(np.argmin(np.abs(claimed_ns - median(some)))) if some.size else claimed_ns.size // 2


def _narrowed(claimed: Intervals, start_ns: int, end_ns: int) -> tuple[int, int]:
    """The step, cut to a neighbourhood of its longest claimed stretch where that is much shorter."""
    inside = claimed.clip(start_ns, end_ns)
    if not len(inside):
        return start_ns, end_ns
    longest = int(np.argmax(inside.lengths_ns))
    width = min(max(AROUND * int(inside.lengths_ns[longest]), SHORTEST_NS), end_ns - start_ns)
    middle = (int(inside.start_ns[longest]) + int(inside.end_ns[longest])) // 2
    first = min(max(middle - width // 2, start_ns), end_ns - width)
    return first, first + width
