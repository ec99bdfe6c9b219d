"""Launches that return only when the kernel they launched has ended, as under ``CUDA_LAUNCH_BLOCKING=1``."""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.nesting import key_slices
from timesink.model.record import dataclass
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True, eq=False)
class BlockingLaunches:
    """On one device: `ratio` of the `count` kernels with a launch of their own whose launch outlasted them, and `rows`
    of these in `device_ops`. `host` is the time of (process, thread) in which those calls waited for them: a launch
    that does not wait returns as its kernel is about to start, so half-way there. `idle` is the idle time after each
    kernel that work launched meanwhile would have filled: as long as the wait, or as the gap."""

    device: Device
    count: int
    ratio: float
    rows: Int64Array
    host: dict[tuple[int, int], Intervals]
    idle: Intervals


@remembered
def blocking_launches(trace: Trace) -> tuple[BlockingLaunches, ...]:
    """Per device with kernels whose launches are recorded."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    alone = (links.call >= 0) & ~links.shared & (ops["kind"] == "kernel").to_numpy()
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    returned = np.zeros(ops.height, np.int64)
    returned[alone] = calls["end_ns"].to_numpy()[links.call[alone]]
    found = []
    for (rank, device), first, last in key_slices(ops, ("rank", "device")):
        rows = first + np.flatnonzero(alone[first:last])
        if rows.size:
            awaited = rows[returned[rows] >= end[rows]]
            asked = (calls["start_ns"].to_numpy()[links.call[awaited]] + start[awaited]) // 2
            waited = np.maximum(returned[awaited] - asked, 0)
            following = np.append(start[1:], end[-1:])[awaited]
            latest = np.minimum(following, end[awaited] + waited)
            idle = Intervals.union_of(end[awaited], np.maximum(latest, end[awaited]))
            ratio = awaited.size / rows.size
            waits = calls[links.call[awaited]].select("process", "thread", "end_ns", start_ns=pl.Series(asked))
            host = intervals_by(waits, "process", "thread")  # from when each call would have returned to when it did
            found.append(BlockingLaunches((rank, device), rows.size, ratio, awaited, host, idle))
    return tuple(found)


def launches_block(trace: Trace) -> bool:
    """Whether more launches wait for their kernels than do not, on any device."""
    return any(device.ratio > 0.5 for device in blocking_launches(trace))
