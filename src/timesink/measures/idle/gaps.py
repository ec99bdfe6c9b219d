"""The stretches in which a GPU did nothing, the op that ended each, and when that op had been launched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.timeline.links import launch_links
from timesink.measures.timeline.timeline import DeviceTimeline, DeviceTimelines, device_timeline
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered

AT_ONCE: Final = 100_000
_SCHEMA: Final = pl.Schema(
    {
        "rank": pl.Int32(),
        "device": pl.Int32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "op": pl.Int64(),
        "process": pl.Int64(),
        "call": pl.Int64(),
        "launch_start_ns": pl.Int64(),
        "host_late_ns": pl.Int64(),
        "launch_ns": pl.Int64(),
        "queued_ns": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceGaps:
    """The gaps, in order of rank, device and start. Only the op that ended each is kept: the rest is looked up in the
    tables, for so many gaps at a time, since a trace may have as many gaps as ops.

    Columns of the frames: rank, device, start_ns, end_ns, op (row of device_ops that ended it; of ops that start
    together the one launched first), process, call (row of api_calls that launched it, null where not recorded),
    launch_start_ns, and the split of the gap by that launch: host_late_ns (before the launch call began), launch_ns
    (from there on, where the call began in the gap), queued_ns (the whole gap, where the op was launched before it
    began: the device waited for something else). The three sum to the gap where the launch is recorded and are null
    where it is not.
    """

    lines: DeviceTimelines
    op: Int32Array
    process_of_op: Int64Array
    call_of_op: Int64Array
    call_start_ns: Int64Array

    @property
    def frame(self) -> pl.DataFrame:
        """All gaps at once."""
        return pl.concat([pl.DataFrame(schema=_SCHEMA), *self.slices()])

    def slices(self, rank: int | None = None) -> Iterator[pl.DataFrame]:
        """All gaps, or those of a rank: at most `AT_ONCE` in a frame, each frame of one device."""
        first = 0
        for line, idle in _idle_slices(self.lines):
            if rank is None or line.rank == rank:
                yield self._told(line, idle, self.op[first : first + len(idle)].astype(np.int64))
            first += len(idle)

    def _told(self, line: DeviceTimeline, idle: Intervals, at: Int64Array) -> pl.DataFrame:
        start, end, call = idle.start_ns, idle.end_ns, self.call_of_op[at]
        linked = call >= 0
        none = np.zeros(call.size, np.int64)
        launch = self.call_start_ns[np.where(linked, call, 0)] if self.call_start_ns.size else none
        queued = launch < start
        late = np.where(queued, 0, np.minimum(launch, end) - start)
        told = {"op": at, "process": self.process_of_op[at]}
        from_launch = {
            "call": call,
            "launch_start_ns": launch,
            "host_late_ns": late,
            "launch_ns": np.where(queued, 0, end - start - late),
            "queued_ns": np.where(queued, end - start, 0),
        }
        known = pl.Series(linked)
        return pl.DataFrame({"start_ns": start, "end_ns": end, **told, **from_launch}).select(
            pl.lit(line.rank, pl.Int32).alias("rank"),
            pl.lit(line.device, pl.Int32).alias("device"),
            *("start_ns", "end_ns", *told),
            *(pl.when(known).then(pl.col(name)).alias(name) for name in from_launch),
        )


@remembered
def device_gaps(trace: Trace) -> DeviceGaps:
    """Find the gaps of every device."""
    ops, call = trace.get(DEVICE_OPS), launch_links(trace).call
    call_start, starts = trace.get(API_CALLS)["start_ns"].to_numpy(), ops["start_ns"].to_numpy()
    lines = device_timeline(trace)
    began = dict(zip(lines.by_device, np.cumsum([0, *(line.op_count for line in lines)]).tolist(), strict=False))
    parts = [np.empty(0, np.int32)]
    for line, idle in _idle_slices(lines):
        first = began[line.rank, line.device]
        at = first + np.searchsorted(starts[first : first + line.op_count], idle.end_ns, side="left")
        parts.append(_launched_first(at, starts, call, call_start).astype(np.int32))
    return DeviceGaps(lines, np.concatenate(parts), ops["process"].to_numpy(), call, call_start)


def _idle_slices(lines: DeviceTimelines) -> Iterator[tuple[DeviceTimeline, Intervals]]:
    for line in lines:
        last = len(line.busy) + 1
        for first in range(0, last, AT_ONCE):
            yield line, line.idle_between(first, min(first + AT_ONCE, last))


def _launched_first(at: Int64Array, starts: Int64Array, call: Int64Array, call_start: Int64Array) -> Int64Array:
    """Among the ops that start at the same instant as `at`, the one launched first; unlinked ops come last."""
    if not call_start.size:
        return at
    launched = np.where(call >= 0, call_start[np.maximum(call, 0)], np.iinfo(np.int64).max)
    best, tied = at.copy(), np.arange(at.size)
    for step in range(1, starts.size):
        tied = tied[at[tied] + step < starts.size]
        tied = tied[starts[at[tied] + step] == starts[at[tied]]]
        if not tied.size:
            break
        sooner = launched[at[tied] + step] < launched[best[tied]]
        best[tied[sooner]] = at[tied[sooner]] + step
    return best
