"""What of each collective was waiting for a rank whose host was late: host time of another rank.

Recording slows every host, and a rank waits longer for one that it made later. Such a wait is as much of the profiler's
as the host's time is, and is left without it in the same share.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from timesink.measures.communication import may_communicate
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.job import OP_KEY
from timesink.measures.timeline import Device, device_timeline
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS
from timesink.model.trace import Trace, remembered


@remembered
def waited_for_hosts(trace: Trace) -> Mapping[int, tuple[Int64Array, Int64Array]]:
    """By rank the rows of `device_ops` of collectives that waited for a late host, ascending, and how long, in ns.

    At most as long as the last rank's GPU computed nothing since its collective before, while its host was at work that
    was recorded; less what that GPU computed more than the waiting one:

        waits     computes 0 to 30, collective from 30: waits 70
        is last   computes 0 to 20, launches 20 to 80, computes 80 to 100, collective from 100
                  60 of the 70 are its host's, 10 are of computing 40 instead of 30
    """
    if not may_communicate(trace) or not (calls := collective_waits(trace).calls).height:
        return {}
    began = pl.col("end_ns").cum_max().shift(1).over("rank", "device", order_by="start_ns")
    calls = calls.with_columns(pl.min_horizontal(began, "start_ns").alias("before_ns"))
    late = calls.filter(pl.col("arrival_ns") == pl.col("ready_ns")).unique("instance", keep="first")
    late = late.select(
        "instance", pl.col("rank", "device", "before_ns", "start_ns", "work_before_ns").name.prefix("l_")
    )
    waited = calls.filter(pl.col("wait_ns") > 0).join(late, on="instance")
    parts = []
    for (rank, device), own in waited.partition_by("l_rank", "l_device", as_dict=True).items():
        at_work = _host_alone(trace, (int(rank), int(device)))
        alone_ns = at_work.covered_ns(own["l_before_ns"].fill_null(0).to_numpy(), own["l_start_ns"].to_numpy())
        more = (pl.col("l_work_before_ns") - pl.col("work_before_ns")).clip(0)
        host = pl.min_horizontal((pl.col("wait_ns") - more).clip(0), pl.Series(alone_ns))
        parts.append(own.select(*OP_KEY, host.alias("host_ns")))
    every = pl.concat(parts).filter(pl.col("host_ns") > 0) if parts else calls.clear().select(*OP_KEY, host_ns="end_ns")
    ops = trace[DEVICE_OPS].select(OP_KEY).with_row_index("row")
    found = ops.join(every, on=OP_KEY, nulls_equal=True).unique("row", keep="first").sort("row")
    return {
        int(rank): (own["row"].cast(pl.Int64).to_numpy(), own["host_ns"].to_numpy())
        for (rank,), own in found.partition_by("rank", as_dict=True).items()
    }


def _host_alone(trace: Trace, device: Device) -> Intervals:
    """When a GPU computed nothing while its host was at work, as far as that was recorded: by a profiler of operators;
    another records calls alone, and slows all of the host's time."""
    rank, line = device[0], device_timeline(trace).by_device.get(device)
    if line is None:
        return Intervals.none()
    idle = Intervals.one(line.span_start_ns, line.span_end_ns) - line.compute
    if not trace.get(HOST_OPS).height:
        return idle
    rows = [frame.filter(pl.col("rank") == rank) for frame in map(trace.get, (API_CALLS, HOST_OPS, FRAMES))]
    start, end = (np.concatenate([one[name].to_numpy() for one in rows]) for name in ("start_ns", "end_ns"))
    return idle & Intervals.union_of(start, end)
