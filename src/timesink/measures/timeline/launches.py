"""How launches keep ahead of the GPU: latency, run-ahead, queue depth, and gaps in which the host was late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.idle.gaps import device_gaps
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.links import launch_links
from timesink.measures.timeline.timeline import Device, DeviceTimeline, device_timeline
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered

_UNITS: Final = pl.Schema(
    {
        **dict.fromkeys(("rank", "device"), pl.Int32()),
        **dict.fromkeys(("stream", "op_start_ns", "call", "op", "op_count"), pl.Int64()),
        **dict.fromkeys(("call_start_ns", "call_end_ns", "queue_depth"), pl.Int64()),
    }
)


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
    windows = steps(trace).windows
    gaps = _gap_sums(trace)
    found: dict[Device, DeviceLaunches] = {}
    for key, units in _units_by_device(trace):
        here = (pl.col("rank") == key[0]) & (pl.col("device") == key[1])
        found[key] = _device(device_timeline(trace)[key], units, gaps[key], windows.filter(here))
    return Launches(found)


def launch_units(trace: Trace) -> pl.DataFrame:
    """One row per launching call and device, in order of rank, device and call start. It is made anew each time: a long
    trace has nearly as many launches as ops.

    Columns: rank, device, stream, call, op (its first op), op_count, call_start_ns, call_end_ns, op_start_ns,
    queue_depth (earlier launches onto the stream that had not started when the call began).
    """
    ops = trace.get(DEVICE_OPS).select("rank", "device", "stream", pl.col("start_ns").alias("op_start_ns"))
    parts = [
        ops[units.op].with_columns(
            pl.Series("call", units.call, pl.Int64),
            pl.Series("op", units.op, pl.Int64),
            pl.Series("op_count", units.op_count, pl.Int64),
            pl.Series("call_start_ns", units.called_ns),
            pl.Series("call_end_ns", units.returned_ns),
            pl.Series("queue_depth", units.queue_depth, pl.Int64),
        )
        for _, units in _units_by_device(trace)
    ]
    return pl.concat([pl.DataFrame(schema=_UNITS), *parts])


def launched_ahead(trace: Trace, depth: int) -> dict[Device, Int64Array]:
    """Per device: when the ops began that were launched behind at least `depth` others of their stream, ascending."""
    return {key: np.sort(units.started_ns[units.queue_depth >= depth]) for key, units in _units_by_device(trace)}


@dataclass(frozen=True, slots=True, eq=False)
class _Units:
    """Launching calls of one device, in order of their start: rows of the two tables, and what is told of each."""

    ops: pl.DataFrame
    calls: pl.DataFrame
    op: Int32Array
    call: Int32Array
    op_count: Int32Array
    queue_depth: Int32Array

    @property
    def called_ns(self) -> Int64Array:
        return self.calls["start_ns"].to_numpy()[self.call]

    @property
    def returned_ns(self) -> Int64Array:
        return self.calls["end_ns"].to_numpy()[self.call]

    @property
    def started_ns(self) -> Int64Array:
        return self.ops["start_ns"].to_numpy()[self.op]


def _units_by_device(trace: Trace) -> Iterator[tuple[Device, _Units]]:
    """The launches of one device after another."""
    ops, calls, link = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace).call
    begin = 0
    for key, line in device_timeline(trace).by_device.items():
        op, call, count = _first_ops(link[begin : begin + line.op_count])
        order = np.argsort(calls["start_ns"].to_numpy()[call], kind="stable")
        op, call = op[order] + begin, call[order]
        units = _Units(ops, calls, op, call, count[order], np.zeros(op.size, np.int32))
        _count_queued(ops["stream"].to_numpy()[op], units)
        yield key, units
        begin += line.op_count


def _first_ops(call: Int64Array) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Of the ops of a device, launched by these calls (-1 for none): the first of each call, the call, and how many."""
    linked = np.flatnonzero(call >= 0).astype(np.int32)
    if not linked.size:
        return linked, linked, linked
    low = int(call[linked].min())
    shifted = call[linked] - low
    count = np.bincount(shifted).astype(np.int32)
    first = np.full(count.size, -1, np.int32)
    first[shifted[::-1]] = linked[::-1]
    held = np.flatnonzero(count).astype(np.int32)
    return first[held], held + np.int32(low), count[held]


def _count_queued(stream: Int64Array, units: _Units) -> None:
    """Fill in the depth of the queue that each launch found."""
    launched, started = units.called_ns, units.started_ns
    for number in np.unique(stream):
        mine = np.flatnonzero(stream == number)
        before = np.searchsorted(np.sort(started[mine]), launched[mine], side="right")
        units.queue_depth[mine] = np.maximum(np.arange(mine.size) - before, 0)


@dataclass(slots=True)
class _GapSums:
    """What the gaps of one device sum to; the parts before a launch call began are kept as they are."""

    host_late: list[Intervals]
    launch_ns: int = 0
    queued_ns: int = 0
    unknown_ns: int = 0

    def add(self, gaps: pl.DataFrame) -> None:
        late = gaps.filter(pl.col("host_late_ns") > 0)
        until = (late["start_ns"] + late["host_late_ns"]).to_numpy()
        self.host_late.append(Intervals.union_of(late["start_ns"].to_numpy(), until))
        self.launch_ns += int(gaps["launch_ns"].sum())
        self.queued_ns += int(gaps["queued_ns"].sum())
        unknown = gaps.filter(pl.col("call").is_null())
        self.unknown_ns += int((unknown["end_ns"] - unknown["start_ns"]).sum())


def _gap_sums(trace: Trace) -> dict[Device, _GapSums]:
    found = {key: _GapSums([]) for key in device_timeline(trace).by_device}
    for gaps in device_gaps(trace).slices():
        if gaps.height:
            found[gaps.item(0, "rank"), gaps.item(0, "device")].add(gaps)
    return found


def _device(line: DeviceTimeline, units: _Units, gaps: _GapSums, windows: pl.DataFrame) -> DeviceLaunches:
    host_late = Intervals.union_all(gaps.host_late)
    depth, started = units.queue_depth, units.started_ns
    return DeviceLaunches(
        rank=line.rank,
        device=line.device,
        launch_count=len(units.op),
        op_count=line.op_count,
        unlinked_count=line.op_count - int(units.op_count.sum()),
        latency=spread(np.maximum(started - units.returned_ns, 0)),
        run_ahead=spread(started - units.called_ns),
        interval=spread(np.diff(units.called_ns)),
        queue_depth_max=int(depth.max(initial=0)),
        empty_queue_ratio=float(np.mean(depth == 0)) if depth.size else 0.0,
        host_late=host_late,
        host_late_ratio=host_late.total_ns / line.span_ns if line.span_ns else 0.0,
        launch_latency_ns=gaps.launch_ns,
        queued_ns=gaps.queued_ns,
        unknown_ns=gaps.unknown_ns,
        launches_per_step=_per_step(started, windows),
    )


def spread(values_ns: Int64Array) -> Spread:
    """Summarise a quantity."""
    if not values_ns.size:
        return Spread(0, 0, 0.0, 0.0, 0)
    middle, high = np.quantile(values_ns, [0.5, 0.9])
    return Spread(values_ns.size, int(values_ns.min()), float(middle), float(high), int(values_ns.max()))


def _per_step(started: Int64Array, windows: pl.DataFrame) -> float | None:
    """Launches whose first op starts in a kept step's window, per step."""
    if not windows.height:
        return None
    at = np.sort(started)
    inside = np.searchsorted(at, windows["end_ns"].to_numpy()) - np.searchsorted(at, windows["start_ns"].to_numpy())
    return float(inside.mean())
