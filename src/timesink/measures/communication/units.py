"""Collectives that the host launches between the products of a model, and what they cost it.

FSDP gathers the parameters of a unit before its first product and scatters their gradients after its last one. Each
unit costs the host a tenth of a millisecond or more, however small it is: hooks, streams, copies into and out of one
buffer, the collective's own launch. Where units are single products, the device waits for them.

A stretch is the host's time from one launch of a product (or attention, or convolution) to the next; what a
stretch with a collective in it takes beyond the usual stretch without one is what its unit costs.

    launches of a thread     product  product  gather  product  product  scatter  product
    stretch                       10              90        12               80             us
    beyond the usual 11            -              79         -               69
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.idle.blamed_time import launching_time, python_time
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.ranks.job import job
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import median
from timesink.model.intervals import Intervals, begun_in, intervals_by
from timesink.model.record import dataclass
from timesink.model.tables import API_CALLS
from timesink.model.trace import Trace
from timesink.units import NS_PER_US

_PRODUCTS: Final = ("gemm", "attention", "convolution")
# The device notices a late host this long after the host's call began: a launch takes about as long.
_LATENCY_NS: Final = 50 * NS_PER_US


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveUnits:
    """One GPU: `per_step` collectives in a step of the rank, that move `step_bytes` (None: not recorded).

    `host`: per (process, thread), what stretches with a collective take beyond those without. `idle`: where the device
    meanwhile stood idle for want of a launch.
    """

    device: Device
    per_step: float
    step_bytes: float | None
    host: Mapping[tuple[int, int], Intervals]
    idle: Intervals


def collective_units(trace: Trace) -> tuple[CollectiveUnits, ...]:
    """GPUs whose host launches collectives between products, by rank and device."""
    launches = _launches(trace)
    if launches["product"].all():
        return ()
    late = {part.device: part.intervals for part in launching_time(trace)}
    late = {part.device: part.intervals | late.get(part.device, Intervals.none()) for part in python_time(trace)}
    calls = job(trace).calls
    found = []
    for (rank, device), own in launches.partition_by("rank", "device", as_dict=True).items():
        key = (int(rank), int(device))
        host = _beyond_usual(own)
        if not host:
            continue
        mine = calls.filter((pl.col("rank") == key[0]) & (pl.col("device") == key[1]))
        per_step = float(np.mean(begun_in(mine["start_ns"].to_numpy(), *step_windows(trace, key))))
        size = mine["bytes"].mean()
        near = Intervals.union_all(
            Intervals.union_of(part.start_ns, part.end_ns + _LATENCY_NS) for part in host.values()
        )
        idle = late.get(key, Intervals.none()) & near
        found.append(CollectiveUnits(key, per_step, per_step * size if isinstance(size, float) else None, host, idle))
    return tuple(sorted(found, key=lambda units: units.device))


def _launches(trace: Trace) -> pl.DataFrame:
    """Launches of products and of collectives: rank, device, process, thread, start_ns, end_ns, product; by start."""
    kernels = kernel_facts(trace).frame.select("rank", "device", "row", pl.col("family").cast(pl.String))
    kernels = kernels.filter(pl.col("family").is_in((*_PRODUCTS, "communication")))
    call = launch_links(trace).call[kernels["row"].to_numpy()]
    linked = call >= 0
    api = trace.get(API_CALLS).select("process", "thread", "start_ns", "end_ns")[call[linked]]
    kernels = kernels.filter(pl.Series(linked)).select(
        "rank", "device", pl.col("family").is_in(_PRODUCTS).alias("product")
    )
    return kernels.hstack(api.get_columns()).sort("start_ns")


def _beyond_usual(launches: pl.DataFrame) -> dict[tuple[int, int], Intervals]:
    """The last part of each stretch with a collective in it: what it takes beyond the median stretch without one.

    A stretch begins and ends on one thread; while another launches in between, that is a stretch of neither.
    """
    names = ("product", "process", "thread", "start_ns", "end_ns")
    product, process, thread, start, end = (launches[name].to_numpy() for name in names)
    at = np.flatnonzero(product)
    first, last = at[:-1], at[1:]
    on_one = (process[first] == process[last]) & (thread[first] == thread[last])
    holds, length = last - first > 1, start[last] - end[first]
    usual = median(length[on_one & ~holds]) if (on_one & ~holds).any() else 0.0
    longer = np.flatnonzero(on_one & holds & (length > usual))
    finish = launches.select("process", "thread", end_ns="start_ns")[last[longer]]
    beyond = pl.Series((length[longer] - usual).astype(np.int64))
    return intervals_by(finish.with_columns(start_ns=pl.col("end_ns") - beyond), "process", "thread")
