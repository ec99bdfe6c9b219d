"""How launches keep ahead of the GPU: latency, run-ahead, depth of the queues, and gaps in which the host was late."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge.assumptions import idle
from timesink.measures.steps import steps
from timesink.measures.timeline import Device, DeviceTimeline, device_gaps, device_timeline, of_device
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import Int32Array, Int64Array, median, slices
from timesink.model.intervals import begun_in
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_UNITS: Final = pl.Schema(
    dict.fromkeys(("rank", "device"), pl.Int32())
    | dict.fromkeys(("stream", "op_start_ns", "call", "op", "op_count"), pl.Int64())
    | dict.fromkeys(("call_start_ns", "call_end_ns", "queue_depth"), pl.Int64())
)


class DeviceLaunches(Record, eq=False):
    """Launches onto one GPU. A graph launch is one launch, timed to the first op it starts.

    Medians in ns, None where nothing was launched: `latency_p50_ns` (op start less end of the call, never below 0,
    since an op may start before its call returns), `run_ahead_p50_ns` (op start less start of the call),
    `interval_p50_ns` (start to start of consecutive launching calls). `empty_queue_ratio`: share of launches made while
    every earlier launch onto their stream had started. `host_late_ratio`: time of gaps before the call that ends the
    gap began, over the span. `launches_per_step`: None without steps.
    """

    rank: int
    device: int
    launch_count: int
    latency_p50_ns: float | None
    run_ahead_p50_ns: float | None
    interval_p50_ns: float | None
    empty_queue_ratio: float
    host_late_ratio: float
    launches_per_step: float | None


def launches(trace: Trace) -> Mapping[Device, DeviceLaunches]:
    """Measure launches onto every device that did any work, in order of (rank, device)."""
    return {device: of_device for device, (of_device, _) in _launches_and_ahead(trace).items()}


def launched_ahead(trace: Trace) -> dict[Device, Int64Array]:
    """Per device, ascending: when those ops began whose launch was far ahead, with `AHEAD_BY` launches of their stream
    waiting."""
    return {device: ahead_ns for device, (_, ahead_ns) in _launches_and_ahead(trace).items()}


@remembered
def _launches_and_ahead(trace: Trace) -> dict[Device, tuple[DeviceLaunches, Int64Array]]:
    windows = steps(trace).windows
    host_late_ns = dict.fromkeys(device_timeline(trace).by_device, 0)
    for gaps in device_gaps(trace).slices():
        if gaps.height:
            host_late_ns[gaps.item(0, "rank"), gaps.item(0, "device")] += int(gaps["host_late_ns"].sum())
    by_device = {}
    for device, units in _units_by_device(trace):
        own = windows.filter(of_device(device))
        measured = _measure(device_timeline(trace)[device], units, host_late_ns[device], own)
        ahead_ns = np.sort(units.op_start_ns[units.queue_depth >= idle.AHEAD_BY.whole], kind="stable")
        by_device[device] = measured, ahead_ns
    return by_device


def launch_units(trace: Trace) -> pl.DataFrame:
    """One row per launching call and device, in order of rank, device and call start. It is made anew each time: a long
    trace has nearly as many launches as ops.

    Columns: rank, device, stream, call, op (its first op), op_count, call_start_ns, call_end_ns, op_start_ns,
    queue_depth (earlier launches onto the stream that had not started when the call began).
    """
    ops = trace.get(DEVICE_OPS).select("rank", "device", "stream", pl.col("start_ns").alias("op_start_ns"))
    names = _UNITS.names()[4:]
    parts = [
        ops[units.op].with_columns(pl.Series(name, getattr(units, name), pl.Int64) for name in names)
        for _, units in _units_by_device(trace)
    ]
    return pl.concat([pl.DataFrame(schema=_UNITS), *parts])


class _Units(Record, eq=False):
    """Launching calls of one device, in order of their start: rows of the two tables. Times are looked up when asked
    for, since a long trace has millions of launches."""

    ops: pl.DataFrame
    calls: pl.DataFrame
    op: Int32Array
    call: Int32Array
    op_count: Int32Array
    queue_depth: Int32Array

    @property
    def call_start_ns(self) -> Int64Array:
        return self.calls["start_ns"].to_numpy()[self.call]

    @property
    def call_end_ns(self) -> Int64Array:
        return self.calls["end_ns"].to_numpy()[self.call]

    @property
    def op_start_ns(self) -> Int64Array:
        return self.ops["start_ns"].to_numpy()[self.op]


def _units_by_device(trace: Trace) -> Iterator[tuple[Device, _Units]]:
    """The launches of one device after another."""
    ops, calls, call_of_op = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace).call
    stream, op_start, call_start = (
        frame[name].to_numpy() for frame, name in ((ops, "stream"), (ops, "start_ns"), (calls, "start_ns"))
    )
    first = 0  # row of `device_ops`, which is sorted by rank and device
    for device, line in device_timeline(trace).by_device.items():
        op, call, count = _first_ops(call_of_op[first : first + line.op_count])
        order = np.argsort(call_start[call], kind="stable").astype(np.int32)
        op, call, count = op[order] + first, call[order], count[order]
        depth = _queue_depths(stream[op], call, call_start, op, op_start)
        yield device, _Units(ops, calls, op, call, count, depth)
        first += line.op_count


def _first_ops(call: Int32Array) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Of a device's ops: the first op of each launching call, the call, and how many ops it launched; calls ascending.

    `call` is the row of `api_calls` that launched each op, -1 for none. Written backwards into a table by call, the
    first op of a call is the last to be written and stays. `call` = [7, -1, 5, 7] gives::

        first op  call  ops
        2         5     1
        0         7     2
    """
    linked = np.flatnonzero(call >= 0).astype(np.int32)
    if not linked.size:
        return linked, linked, linked
    lowest = int(call[linked].min())
    number = call[linked] - lowest
    count = np.bincount(number).astype(np.int32)
    first = np.full(count.size, -1, np.int32)
    first[number[::-1]] = linked[::-1]
    launching = np.flatnonzero(count).astype(np.int32)
    return first[launching], launching + np.int32(lowest), count[launching]


def _queue_depths(
    stream: Int64Array, call: Int32Array, call_start: Int64Array, op: Int32Array, op_start: Int64Array
) -> Int32Array:
    """For each launch, how many earlier launches onto its stream had not started when its call began.

    Launches come in order of the start of their call, `call_start[call]`. Of the k launches made onto the stream
    before, those whose op had started by then are counted by bisection in the sorted starts; the rest waits in the
    queue. On one stream::

        call_start  op_start  launched before  of them started  depth
        0           2         0                0                0
        3           50        1                1                0
        5           60        2                1                1
        55          70        3                2                1
    """
    depth = np.zeros(stream.size, np.int32)
    for number in np.unique(stream):
        rows = np.flatnonzero(stream == number).astype(np.int32)
        starts = np.sort(op_start[op[rows]], kind="stable")
        for some in slices(0, rows.size):
            started = places(starts, call_start[call[rows[some]]], True)
            depth[rows[some]] = np.maximum(np.arange(some.start, some.stop) - started, 0)
    return depth


def _measure(line: DeviceTimeline, units: _Units, host_late_ns: int, windows: pl.DataFrame) -> DeviceLaunches:
    """Launches of one device. `windows`: the kept steps on it."""
    call_start, op_start = units.call_start_ns, units.op_start_ns
    return DeviceLaunches(
        rank=line.rank,
        device=line.device,
        launch_count=units.op.size,
        latency_p50_ns=_median(np.maximum(op_start - units.call_end_ns, 0)),
        run_ahead_p50_ns=_median(op_start - call_start),
        interval_p50_ns=_median(np.diff(call_start)),
        empty_queue_ratio=float(np.mean(units.queue_depth == 0)) if units.op.size else 0.0,
        host_late_ratio=host_late_ns / line.span_ns if line.span_ns else 0.0,
        launches_per_step=_per_step(op_start, windows),
    )


def _median(values_ns: Int64Array) -> float | None:
    return median(values_ns, overwrite_input=True) if values_ns.size else None


def _per_step(op_start: Int64Array, windows: pl.DataFrame) -> float | None:
    """Launches whose first op starts in a kept step's window, per step."""
    if not windows.height:
        return None
    return float(begun_in(op_start, windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()).mean())
