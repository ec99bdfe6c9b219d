"""When each GPU is busy, and with what: the union over its streams of kernels, copies and memsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.knowledge.kernels import op_class
from timesink.measures.timeline.links import launch_links
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, Window, remembered

Device = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTimeline:
    """One GPU. Its span runs from its first op's start to its last op's end; busy + idle = span, to the nanosecond.

    The four unions cover all streams: idle here means that nothing at all ran on the device; a quiet stream is not
    idle. Time before the first and after the last op is not counted: the trace does not say the GPU was free then.
    In a trace cut to a window, ops count with what of them lies in it: what ran beside the rest is not in the trace.
    """

    rank: int
    device: int
    op_count: int
    span_start_ns: int
    span_end_ns: int
    busy: Intervals
    compute: Intervals
    communication: Intervals
    copy: Intervals

    @property
    def span_ns(self) -> int:
        """From the first start to the last end."""
        return self.span_end_ns - self.span_start_ns

    @property
    def busy_ns(self) -> int:
        """Time anything ran."""
        return self.busy.total_ns

    @property
    def idle_ns(self) -> int:
        """Time nothing ran, within the span."""
        return self.span_ns - self.busy_ns

    @property
    def idle(self) -> Intervals:
        """The gaps between busy stretches; an op of no length at either end of the span leaves a gap beside it."""
        return self.idle_between(0, len(self.busy) + 1)

    def idle_between(self, first: int, last: int) -> Intervals:
        """The gaps that end before the busy stretches `first` to `last`, counted from 0, the latter left out.

        After the last of the stretches comes one more gap, up to the end of the span.
        """
        busy = self.busy
        start = busy.end_ns[first - 1 : last - 1] if first else np.append(self.span_start_ns, busy.end_ns[: last - 1])
        end = busy.start_ns[first:last]
        if last > len(busy):
            end = np.append(end, self.span_end_ns)
        free = end > start
        return Intervals(start[free], end[free])


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTimelines:
    """Timelines by (rank, device), in that order. `linked_only` says which convention they follow."""

    by_device: Mapping[Device, DeviceTimeline]
    linked_only: bool

    def __getitem__(self, device: Device) -> DeviceTimeline:
        return self.by_device[device]

    def __iter__(self) -> Iterator[DeviceTimeline]:
        return iter(self.by_device.values())

    def __len__(self) -> int:
        return len(self.by_device)

    @property
    def span_ns(self) -> int:
        """Spans of all devices, summed."""
        return sum(line.span_ns for line in self)

    @property
    def idle_ns(self) -> int:
        """Idle time of all devices, summed."""
        return sum(line.idle_ns for line in self)


@remembered
def device_timeline(trace: Trace) -> DeviceTimelines:
    """Timelines of every device op in the trace, those launched before the window opened included."""
    ops = trace.get(DEVICE_OPS)
    return DeviceTimelines(_timelines(_slim(ops, trace.window)), linked_only=False)


@remembered
def linked_timeline(trace: Trace) -> DeviceTimelines:
    """Timelines of the device ops whose launch the trace also holds: TraceLens' default convention.

    It leaves out work queued before the window opened, which `device_timeline` counts; the spans differ accordingly.
    """
    linked = launch_links(trace).linked
    if linked.all():
        return DeviceTimelines(device_timeline(trace).by_device, linked_only=True)
    ops = _slim(trace.get(DEVICE_OPS), trace.window).filter(pl.Series(linked))
    return DeviceTimelines(_timelines(ops), linked_only=True)


def _slim(ops: pl.DataFrame, window: Window | None) -> pl.DataFrame:
    slim = ops.select("rank", "device", "start_ns", "end_ns").with_columns(op_class(ops))
    if window is None:
        return slim
    return slim.with_columns(pl.col("start_ns", "end_ns").clip(window.start_ns, window.end_ns))


def _timelines(ops: pl.DataFrame) -> dict[Device, DeviceTimeline]:
    found: dict[Device, DeviceTimeline] = {}
    for rank, device, first, count in _runs(ops):
        rows = ops.slice(first, count)
        classes = {name: Intervals.of(rows.filter(pl.col("op_class") == name)) for name in ("compute", "communication")}
        copies = Intervals.of(rows.filter(pl.col("op_class") == "copy"))
        found[rank, device] = DeviceTimeline(
            rank=rank,
            device=device,
            op_count=count,
            span_start_ns=int(rows["start_ns"].to_numpy()[0]),
            span_end_ns=int(np.max(rows["end_ns"].to_numpy())),
            busy=Intervals.of(rows),
            compute=classes["compute"],
            communication=classes["communication"],
            copy=copies,
        )
    return found


def _runs(ops: pl.DataFrame) -> Iterator[tuple[int, int, int, int]]:
    """(rank, device, first row, rows) of each device; `device_ops` is sorted by rank and device."""
    runs = ops.lazy().group_by("rank", "device", maintain_order=True).len().collect()
    first = 0
    for rank, device, count in runs.iter_rows():
        yield rank, device, first, count
        first += count
