"""Device work that a step can do without, with the idle time in which the host was on its way to launch it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.idle.blame import idle_blame
from timesink.measures.kernels.fusion import LAUNCHING_CAUSES
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import BoolArray, Int32Array, Int64Array
from timesink.model.intervals import Intervals, begun_in
from timesink.model.nesting import key_slices, thread_slices
from timesink.model.record import dataclass
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered

WAITING_CAUSES: Final = (*LAUNCHING_CAUSES, "sync", "os_call")
"""The same, and waits: where these go with the work."""


HostTimes = Mapping[tuple[int, int], Intervals]
NOTHING: Final[HostTimes] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class ExtraWork:
    """On one device: `rows` of `device_ops`, ascending, and `per_step`, how many of them a steady step has. `host` is
    time of (process, thread) that is there for them alone: from launch to launch of those that follow each other, and
    what a measure adds. `idle` are the gaps that they ended, and what else of the device's idle time is while the host
    does that."""

    device: Device
    rows: Int64Array
    per_step: float
    host: HostTimes
    idle: Intervals


def extra_work(
    trace: Trace, flags: BoolArray, host: HostTimes = NOTHING, causes: Collection[str] = LAUNCHING_CAUSES
) -> tuple[ExtraWork, ...]:
    """Per device with any flagged row of `device_ops`; idle time counts where it is blamed on one of `causes`."""
    ops, blame = trace.get(DEVICE_OPS), idle_blame(trace)
    host = together(host, _launching(trace, flags))
    busy_host = Intervals.union_all(host.values())
    found = []
    for (rank, device), first, last in key_slices(ops, ("rank", "device")):
        rows = first + np.flatnonzero(flags[first:last])
        if rows.size:
            ended, all_idle = (
                Intervals.of(part.filter(pl.col("cause").is_in(list(causes))))
                for part in (blame.ended_by(rows), blame.on((rank, device)))
            )
            idle = ended | (all_idle & busy_host)
            found.append(ExtraWork((rank, device), rows, _per_step(trace, (rank, device), rows), host, idle))
    return tuple(found)


@remembered
def launch_order(trace: Trace) -> Int32Array:
    """Rows of `device_ops` with a launch of their own, in the order in which each thread launched them."""
    links, calls = launch_links(trace), trace.get(API_CALLS)
    rows = np.flatnonzero((links.call >= 0) & ~links.shared)
    launched = np.full(calls.height, -1, np.int32)  # by each call, which are in order of thread and start
    launched[links.call[rows]] = rows
    call = np.flatnonzero(launched >= 0)
    if not (np.diff(calls["start_ns"].to_numpy()[call]) == 0).any():
        return launched[call]
    where = calls.select("rank", "process", "thread", "start_ns")[call]  # of calls at one moment the op decides
    order = where.with_columns(pl.Series("row", launched[call]))
    return order.sort("rank", "process", "thread", "start_ns", "row")["row"].to_numpy()


def _launching(trace: Trace, flags: BoolArray) -> HostTimes:
    """By (process, thread): from the first to the last launch of flagged rows that follow each other."""
    calls, order, kind = trace.get(API_CALLS), launch_order(trace), trace.get(DEVICE_OPS)["kind"]
    order = order[flags[order] | (kind[order] != "set").to_numpy()]  # a memset belongs to the kernel after it
    call, flagged = launch_links(trace).call[order], np.flatnonzero(flags[order])
    if not flagged.size:
        return {}
    start, end = (calls[name].to_numpy()[call[flagged]] for name in ("start_ns", "end_ns"))
    threads = list(thread_slices(calls))
    thread = np.searchsorted([first for _, first, _ in threads], call[flagged], side="right") - 1
    begins = np.flatnonzero(np.append(True, (np.diff(flagged) != 1) | (np.diff(thread) != 0)))
    started, over, thread = start[begins], np.maximum.reduceat(end, begins), thread[begins]
    launching: dict[tuple[int, int], Intervals] = {}
    edges = [0, *(np.flatnonzero(np.diff(thread)) + 1).tolist(), thread.size]  # calls are in order of thread
    for first, last in pairwise(edges):
        _, *key = threads[thread[first]][0]
        own = Intervals.union_of(started[first:last], over[first:last])
        launching[key[0], key[1]] = launching.get((key[0], key[1]), Intervals.none()) | own
    return launching


def _per_step(trace: Trace, device: Device, rows: Int64Array) -> float:
    starts = trace.get(DEVICE_OPS)["start_ns"].to_numpy()[rows]
    return float(np.mean(begun_in(starts, *step_windows(trace, device))))


def together(some: HostTimes, others: HostTimes) -> HostTimes:
    """The times of both."""
    return {key: some.get(key, Intervals.none()) | others.get(key, Intervals.none()) for key in {**some, **others}}
