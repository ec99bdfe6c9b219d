"""The stretches in which a GPU did nothing, the op that ended each, and when that op had been launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.links import Rows, launch_links
from timesink.measures.memo import remembered
from timesink.measures.timeline import Device, device_timeline
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace

_SCHEMA = pl.Schema(
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
    """`frame`: one row per gap, in order of rank, device and start.

    Columns: rank, device, start_ns, end_ns, op (row of device_ops that ended it; of ops that start together the one
    launched first), process, call (row of api_calls that launched it, null where not recorded), launch_start_ns, and
    the split of the gap by that launch: host_late_ns (before the launch call began), launch_ns (from there on, where
    the call began in the gap), queued_ns (the whole gap, where the op was launched before it began: the device waited
    for something else). The three sum to the gap where the launch is recorded and are null where it is not.
    """

    frame: pl.DataFrame


@remembered
def device_gaps(trace: Trace) -> DeviceGaps:
    """List the gaps of every device."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    parts = [pl.DataFrame(schema=_SCHEMA)]
    call_start = calls["start_ns"].to_numpy()
    starts = ops["start_ns"].to_numpy()
    first = 0
    for line in device_timeline(trace):
        idle = line.idle
        rows = slice(first, first + line.op_count)
        at = first + np.searchsorted(starts[rows], idle.end_ns, side="left")
        at = _launched_first(at, starts, links.call, call_start)
        call = links.call[at]
        parts.append(_rows((line.rank, line.device), ops, (idle.start_ns, idle.end_ns, at, call), call_start))
        first += line.op_count
    return DeviceGaps(pl.concat(parts))


def _launched_first(
    at: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], call: Rows, call_start: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
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


def _rows(device: Device, ops: pl.DataFrame, gap: tuple[Rows, Rows, Rows, Rows], call_start: Rows) -> pl.DataFrame:
    start, end, at, call = gap
    linked = call >= 0
    launch = call_start[np.where(linked, call, 0)] if call_start.size else np.zeros(call.size, np.int64)
    queued = launch < start
    late = np.where(queued, 0, np.minimum(launch, end) - start)
    columns = {
        "start_ns": start,
        "end_ns": end,
        "op": at,
        "process": ops["process"].to_numpy()[at],
        "call": call,
        "launch_start_ns": launch,
        "host_late_ns": late,
        "launch_ns": np.where(queued, 0, end - start - late),
        "queued_ns": np.where(queued, end - start, 0),
    }
    from_launch = ("call", "launch_start_ns", "host_late_ns", "launch_ns", "queued_ns")
    known = pl.Series(linked)
    return pl.DataFrame(columns).select(
        pl.lit(device[0], pl.Int32).alias("rank"),
        pl.lit(device[1], pl.Int32).alias("device"),
        *(pl.when(known).then(pl.col(name)).alias(name) if name in from_launch else pl.col(name) for name in columns),
    )
