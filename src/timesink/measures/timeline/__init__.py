"""Device work in time: busy stretches and gaps, who launched it, launches, copies, waits, ranges, and its replay.

When each GPU is busy and with what, and the gaps in which it did nothing: unions over all of its streams.

Every figure is exact: busy + idle = span, and compute + exposed communication + exposed copy + idle = span, to the
nanosecond. Compute hides communication, and both hide copies.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge.op_class import COMMUNICATION, COMPUTE, COPY, class_of_ops
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.nesting import key_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES
from timesink.model.trace import Trace, release_after, remembered
from timesink.records import Record

Device = tuple[int, int]
"""A GPU as (rank, device number)."""

GAPS_AT_ONCE: Final = 100_000
"""A trace may have as many gaps as device ops, so what is known of them is looked up for so many at a time."""

_GAP_COLUMNS: Final = pl.Schema(
    dict.fromkeys(("rank", "device"), pl.Int32())
    | dict.fromkeys(("start_ns", "end_ns", "op", "process", "call", "launch_start_ns", "host_late_ns"), pl.Int64())
)


class DeviceTimeline(Record, eq=False):
    """One GPU. Its span goes from its first op's start to its last op's end.

    The unions `busy`, `compute`, `communication` and `copy` (memsets included) cover all streams: idle means that
    nothing at all ran on the device; a quiet stream is not idle. `exposed_communication` is what no computation hides,
    `exposed_copy` what neither computation nor communication hides. Time before the first and after the last op is not
    counted: the trace does not say that the GPU was free then. In a trace cut to a window, ops count with the part of
    them that is inside it, because what ran next to the other part is not in the trace.
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
    exposed_communication: Intervals
    exposed_copy: Intervals

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
    def compute_ns(self) -> int:
        """Time some compute kernel ran."""
        return self.compute.total_ns

    @property
    def communication_ns(self) -> int:
        """Time some communication kernel ran, hidden or not."""
        return self.communication.total_ns

    @property
    def exposed_communication_ns(self) -> int:
        """Communication that no computation hides."""
        return self.exposed_communication.total_ns

    @property
    def exposed_copy_ns(self) -> int:
        """Copying that neither computation nor communication hides."""
        return self.exposed_copy.total_ns

    @property
    def busy_ratio(self) -> float:
        """Busy time over span, 0 to 1; 0 for an empty span."""
        return self.busy_ns / self.span_ns if self.span_ns else 0.0

    @property
    def idle_ratio(self) -> float:
        """Idle time over span, 0 to 1; 0 for an empty span."""
        return self.idle_ns / self.span_ns if self.span_ns else 0.0

    @property
    def idle(self) -> Intervals:
        """All gaps; an op of no length at either end of the span leaves a gap next to it."""
        return self.idle_between(0, len(self.busy) + 1)

    def idle_between(self, first: int, last: int) -> Intervals:
        """The gaps that end where the busy stretches number `first` to `last` - 1 begin.

        A last gap, number `len(busy)`, goes from the end of the last busy stretch to the end of the span. With two
        busy stretches, [10, 20) and [50, 60), in a span [10, 70)::

            number  from                to                  gap
            0       10 (span start)     10 (stretch 0)      none, it has no length
            1       20 (stretch 0)      50 (stretch 1)      [20, 50)
            2       60 (stretch 1)      70 (span end)       [60, 70)
        """
        busy = self.busy
        start = busy.end_ns[first - 1 : last - 1] if first else np.append(self.span_start_ns, busy.end_ns[: last - 1])
        end = busy.start_ns[first:last]
        if last > len(busy):
            end = np.append(end, self.span_end_ns)
        has_length = end > start
        return Intervals(start[has_length], end[has_length])


class DeviceTimelines(Record, eq=False):
    """Timelines by (rank, device), in that order."""

    by_device: Mapping[Device, DeviceTimeline]

    def __getitem__(self, device: Device) -> DeviceTimeline:
        return self.by_device[device]

    def __iter__(self) -> Iterator[DeviceTimeline]:
        return iter(self.by_device.values())

    def __len__(self) -> int:
        return len(self.by_device)


def of_device(device: Device) -> pl.Expr:
    """The rows of a device."""
    return (pl.col("rank") == device[0]) & (pl.col("device") == device[1])


def device_names(trace: Trace) -> dict[Device, str]:
    """The product of each device that the trace names."""
    rows = trace.get(DEVICES).select("rank", "device", "name").iter_rows()
    return {(rank, device): name for rank, device, name in rows if name is not None}


@remembered
def device_timeline(trace: Trace) -> DeviceTimelines:
    """Timelines of every device op of the trace, those launched before the recording began included.

    TraceLens leaves those out: `device_timeline(trace.linked_only())` follows its convention.
    """
    ops = trace.get(DEVICE_OPS)
    times = ops.select("rank", "device", "start_ns", "end_ns").with_columns(class_of_ops(trace))
    if trace.cut_to is not None:
        times = times.with_columns(pl.col("start_ns", "end_ns").clip(trace.cut_to.start_ns, trace.cut_to.end_ns))
    devices = key_slices(times, ("rank", "device"))
    return DeviceTimelines({(rank, device): _timeline((rank, device), times[a:b]) for (rank, device), a, b in devices})


def _timeline(device: Device, ops: pl.DataFrame) -> DeviceTimeline:
    """The timeline of one device. `ops` has start_ns, end_ns and op_class, in order of start."""
    class_, start, end = ops["op_class"].to_physical().to_numpy(), ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    compute, communication, copy = (
        Intervals.union_of(start[class_ == one], end[class_ == one]) for one in (COMPUTE, COMMUNICATION, COPY)
    )
    return DeviceTimeline(
        *device,
        op_count=ops.height,
        span_start_ns=int(start[0]),
        span_end_ns=int(end.max()),
        busy=Intervals.of(ops),
        compute=compute,
        communication=communication,
        copy=copy,
        exposed_communication=communication - compute,
        exposed_copy=copy - (compute | communication),
    )


def rows_by_device(calls: pl.DataFrame) -> dict[Device, Int64Array]:
    """The numbers of the rows of each (rank, device), ascending."""
    keys = calls.select("rank", "device")
    order = np.lexsort((keys["device"].to_numpy(), keys["rank"].to_numpy()))
    of_device = key_slices(keys[order], ("rank", "device"))
    return {(rank, device): order[low:high] for (rank, device), low, high in of_device}


def covered_by_device(
    rows: pl.DataFrame, intervals: Mapping[Device, Intervals], start: str = "start_ns", end: str = "end_ns"
) -> Int64Array:
    """For each row, how many ns between two of its columns the intervals of its rank and device cover; 0 without."""
    covered, starts, ends = np.zeros(rows.height, np.int64), rows[start].to_numpy(), rows[end].to_numpy()
    for device, own in rows_by_device(rows).items():
        if device in intervals:
            covered[own] = intervals[device].covered_ns(starts[own], ends[own])
    return covered


class DeviceGaps(Record, eq=False):
    """The gaps of every device, in order of rank, device and start.

    Only `op`, the row of `device_ops` that ended each gap, is kept, `first_of` each device from a place on; the frames
    are made from the tables when asked for. Their columns: rank, device, start_ns, end_ns; op (of ops that start
    together, the one launched first), process of that op, call (row of `api_calls` that launched it), launch_start_ns
    (start of that call) and host_late_ns (the part of the gap before that start; 0 where the op was launched before the
    gap began and the device waited for something else). The last three are null where the launch is not recorded.
    """

    lines: DeviceTimelines
    op: Int32Array
    first_of: Mapping[Device, int]
    process_of_op: Int64Array
    call_of_op: Int32Array
    call_start_ns: Int64Array

    @property
    def frame(self) -> pl.DataFrame:
        """All gaps in one frame."""
        return pl.concat([pl.DataFrame(schema=_GAP_COLUMNS), *self.slices()])

    def slices(self, rank: int | None = None) -> Iterator[pl.DataFrame]:
        """All gaps, or those of one rank: at most `GAPS_AT_ONCE` in a frame, each frame of one device."""
        for (of_rank, device), first in self.first_of.items():
            if rank is None or of_rank == rank:
                line, at = self.lines[of_rank, device], first
                for gaps in _gap_slices(line):
                    yield self._with_launches(line, gaps, self.op[at : at + len(gaps)].astype(np.int64))
                    at += len(gaps)

    def _with_launches(self, line: DeviceTimeline, gaps: Intervals, op: Int64Array) -> pl.DataFrame:
        """The frame of some gaps of one device. `op`: the row of `device_ops` that ended each."""
        call = self.call_of_op[op].astype(np.int64)
        launch_start = self.call_start_ns[np.maximum(call, 0)] if self.call_start_ns.size else np.zeros_like(call)
        host_late = np.maximum(np.minimum(launch_start, gaps.end_ns) - gaps.start_ns, 0)
        from_launch = {"call": call, "launch_start_ns": launch_start, "host_late_ns": host_late}
        frame = pl.DataFrame(
            {"start_ns": gaps.start_ns, "end_ns": gaps.end_ns, "op": op, "process": self.process_of_op[op]}
        )
        linked = pl.when(pl.Series(call >= 0))
        told = (linked.then(pl.Series(column)).alias(name) for name, column in from_launch.items())
        device = (pl.lit(line.rank, pl.Int32).alias("rank"), pl.lit(line.device, pl.Int32).alias("device"))
        return frame.select(*device, pl.all(), *told)


@release_after("CPY")
@remembered
def device_gaps(trace: Trace) -> DeviceGaps:
    """Find the gaps of every device and the op that ended each."""
    ops, call_of_op = trace.get(DEVICE_OPS), launch_links(trace).call
    call_start, op_start = trace.get(API_CALLS)["start_ns"].to_numpy(), ops["start_ns"].to_numpy()
    lines, launched = device_timeline(trace), np.append(call_start, np.iinfo(np.int64).max)
    parts, first_of, found = [np.empty(0, np.int32)], {}, 0
    for (rank, device), first, last in key_slices(ops, ("rank", "device")):
        first_of[rank, device] = found
        start, call = op_start[first:last], call_of_op[first:last]
        for gaps in _gap_slices(lines[rank, device]):
            ending = places(start, gaps.end_ns, False)
            parts.append((first + _find_first_launched(ending, start, call, launched)).astype(np.int32))
            found += ending.size
    return DeviceGaps(lines, np.concatenate(parts), first_of, ops["process"].to_numpy(), call_of_op, call_start)


def _gap_slices(line: DeviceTimeline) -> Iterator[Intervals]:
    count = len(line.busy) + 1
    for first in range(0, count, GAPS_AT_ONCE):
        yield line.idle_between(first, min(first + GAPS_AT_ONCE, count))


def _find_first_launched(
    op: Int64Array, op_start: Int64Array, call_of_op: Int32Array, launched: Int64Array
) -> Int64Array:
    """For each row `op`, the op launched first among the rows from it on that start at the same instant.

    `launched` is when each call began, and, in its last place, what comes after all: for ops without a recorded launch.
    Asked for row 1 of these ops, the answer is row 2; for row 0, row 0::

        row  op_start  launched at
        0    10        2
        1    30        25
        2    30        21
        3    30        not recorded
    """
    best, tied = op.copy(), np.arange(op.size)  # `tied`: places in `op` whose start the row `ahead` further on shares
    for ahead in range(1, op_start.size):
        tied = tied[op[tied] + ahead < op_start.size]
        tied = tied[op_start[op[tied] + ahead] == op_start[op[tied]]]
        if not tied.size:
            break
        sooner = tied[launched[call_of_op[op[tied] + ahead]] < launched[call_of_op[best[tied]]]]
        best[sooner] = op[sooner] + ahead
    return best
