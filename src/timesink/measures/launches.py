"""How launches keep ahead of the GPU: latency, run-ahead, queue depth, and gaps in which the host was late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.gaps import device_gaps
from timesink.measures.links import launch_links
from timesink.measures.memo import remembered
from timesink.measures.steps import steps
from timesink.measures.timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, 90th percentile and extremes of a quantity in nanoseconds; all 0 where `count` is 0."""

    count: int
    min_ns: int
    p50_ns: float
    p90_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLaunches:
    """Launches onto one GPU. A graph launch is one launch, timed to the first op it starts.

    `latency`: op start less end of the call, never below 0 (an op may start before its call returns). `run_ahead`: op
    start less start of the call; its minimum is how much later the host could be at no cost. `empty_queue_ratio` (q0):
    share of launches made while every earlier launch onto their stream had started. `interval`: start to start of
    consecutive launching calls of the device. `host_late`: parts of gaps before the call that ends the gap began;
    `host_late_ratio` is their share of the span. `launch_latency_ns` and `queued_ns` are the other two parts of gaps,
    `unknown_ns` gaps whose ending op has no launch record.
    """

    rank: int
    device: int
    launch_count: int
    op_count: int
    unlinked_count: int
    latency: Spread
    run_ahead: Spread
    interval: Spread
    queue_depth_max: int
    empty_queue_ratio: float
    host_late: Intervals
    host_late_ratio: float
    launch_latency_ns: int
    queued_ns: int
    unknown_ns: int
    launches_per_step: float | None

    @property
    def host_late_ns(self) -> int:
        """Gap time before the launch call that ends the gap."""
        return self.host_late.total_ns


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Per (rank, device), in that order."""

    by_device: Mapping[Device, DeviceLaunches]

    def __getitem__(self, device: Device) -> DeviceLaunches:
        return self.by_device[device]

    def __iter__(self) -> Iterator[DeviceLaunches]:
        return iter(self.by_device.values())


@remembered
def launches(trace: Trace) -> Launches:
    """Measure launches onto every device that did any work."""
    units = launch_units(trace)
    gaps = device_gaps(trace).frame
    windows = steps(trace).windows
    found: dict[Device, DeviceLaunches] = {}
    for key, line in device_timeline(trace).by_device.items():
        here = (pl.col("rank") == key[0]) & (pl.col("device") == key[1])
        mine = units.filter(here)
        found[key] = _device(key, (line.op_count, line.span_ns), mine, gaps.filter(here), windows.filter(here))
    return Launches(found)


@remembered
def launch_units(trace: Trace) -> pl.DataFrame:
    """One row per launching call and device, in order of rank, device and call start.

    Columns: rank, device, stream, call, op (its first op), op_count, call_start_ns, call_end_ns, op_start_ns,
    queue_depth (earlier launches onto the stream that had not started when the call began).
    """
    ops, calls, (op, call, op_count) = trace.get(DEVICE_OPS), trace.get(API_CALLS), _first_ops(trace)
    timed = (
        ops.select("rank", "device", "stream", pl.col("start_ns").alias("op_start_ns"))[op]
        .with_columns(
            pl.Series("call", call),
            pl.Series("op", op),
            pl.Series("op_count", op_count),
            pl.Series("call_start_ns", calls["start_ns"].to_numpy()[call]),
            pl.Series("call_end_ns", calls["end_ns"].to_numpy()[call]),
        )
        .sort("rank", "device", "call_start_ns", "call")
    )
    return timed.with_columns(pl.Series("queue_depth", _queue_depth(timed)))


def _first_ops(trace: Trace) -> tuple[Array, Array, Array]:
    """First device op of each (device, launching call), that call, and how many ops it launched there."""
    call = launch_links(trace).call
    firsts, owners, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    begin = 0
    for line in device_timeline(trace):
        mine = call[begin : begin + line.op_count]
        linked = np.flatnonzero(mine >= 0)
        if linked.size:
            low = int(mine[linked].min())
            shifted = mine[linked] - low
            count = np.bincount(shifted)
            first = np.full(count.size, -1, np.int64)
            first[shifted[::-1]] = linked[::-1]
            held = np.flatnonzero(count)
            firsts.append(first[held] + begin)
            owners.append(held + low)
            counts.append(count[held])
        begin += line.op_count
    return np.concatenate(firsts), np.concatenate(owners), np.concatenate(counts)


def _queue_depth(units: pl.DataFrame) -> Array:
    depth = np.zeros(units.height, np.int64)
    numbered = units.select("rank", "device", "stream").with_columns(pl.int_range(pl.len()).alias("row"))
    launched, started = units["call_start_ns"].to_numpy(), units["op_start_ns"].to_numpy()
    for (rows,) in numbered.group_by("rank", "device", "stream").agg("row").select("row").iter_rows():
        mine = np.asarray(rows, np.int64)
        before = np.searchsorted(np.sort(started[mine]), launched[mine], side="right")
        depth[mine] = np.maximum(np.arange(mine.size) - before, 0)
    return depth


def _device(
    key: Device, line: tuple[int, int], units: pl.DataFrame, gaps: pl.DataFrame, windows: pl.DataFrame
) -> DeviceLaunches:
    op_count, span_ns = line
    late = gaps.filter(pl.col("host_late_ns") > 0)
    host_late = Intervals.union_of(late["start_ns"].to_numpy(), (late["start_ns"] + late["host_late_ns"]).to_numpy())
    called, ended = units["call_start_ns"].to_numpy(), units["call_end_ns"].to_numpy()
    started, depth = units["op_start_ns"].to_numpy(), units["queue_depth"].to_numpy()
    unknown = gaps.filter(pl.col("call").is_null())
    return DeviceLaunches(
        rank=key[0],
        device=key[1],
        launch_count=units.height,
        op_count=op_count,
        unlinked_count=op_count - int(units["op_count"].sum()),
        latency=spread(np.maximum(started - ended, 0)),
        run_ahead=spread(started - called),
        interval=spread(np.diff(called)),
        queue_depth_max=int(depth.max(initial=0)),
        empty_queue_ratio=float(np.mean(depth == 0)) if depth.size else 0.0,
        host_late=host_late,
        host_late_ratio=host_late.total_ns / span_ns if span_ns else 0.0,
        launch_latency_ns=int(gaps["launch_ns"].sum()),
        queued_ns=int(gaps["queued_ns"].sum()),
        unknown_ns=int((unknown["end_ns"] - unknown["start_ns"]).sum()),
        launches_per_step=_per_step(started, windows),
    )


def spread(values_ns: Array) -> Spread:
    """Summarise a quantity."""
    if not values_ns.size:
        return Spread(0, 0, 0.0, 0.0, 0)
    middle, high = np.quantile(values_ns, [0.5, 0.9])
    return Spread(values_ns.size, int(values_ns.min()), float(middle), float(high), int(values_ns.max()))


def _per_step(started: Array, windows: pl.DataFrame) -> float | None:
    """Launches whose first op starts in a kept step's window, per step."""
    if not windows.height:
        return None
    at = np.sort(started)
    inside = np.searchsorted(at, windows["end_ns"].to_numpy()) - np.searchsorted(at, windows["start_ns"].to_numpy())
    return float(inside.mean())
