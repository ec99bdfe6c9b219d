"""The host side of the graph: the threads' CUDA calls as points, and the threads that work on another's behalf."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from timesink.knowledge.calls import call_kinds
from timesink.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array, IntArray
from timesink.model.nesting import key_slices, thread_slices
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.whatif.handovers import Bursts


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """CUDA calls of one rank, in the order of `api_calls`. `thread` numbers (process, thread) pairs from 0.

    `row` is the row of `api_calls`; `correlation` is -1 where none was recorded.
    """

    row: Int32Array
    thread: Int32Array
    process: IntArray
    kind: Int8Array
    start_ns: Int64Array
    end_ns: Int64Array
    correlation: IntArray
    threads: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return int(self.row.size)

    @property
    def lengths_ns(self) -> Int64Array:
        """How long each call took."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, eq=False)
class HostPoints:
    """Every begin and end of a call, and every fork and join of a burst, sorted by thread and time: host nodes.

    `call` is the call's number, or negative for a mark; `ends` tells an end (or a join) from a begin (or a fork).
    `begin_of` and `end_of` are the points of each call. `cut` marks points before which the thread was only waiting
    for a fork, so that no work links them to the point before.
    """

    thread: IntArray
    time_ns: Int64Array
    call: IntArray
    ends: BoolArray
    begin_of: IntArray
    end_of: IntArray
    fork_of: IntArray
    join_of: IntArray
    cut: BoolArray

    def __len__(self) -> int:
        return int(self.time_ns.size)


def read_calls(trace: Trace, rank: int) -> Calls:
    """The calls of a rank, with what each of them can make the host do."""
    frame, first = _of_rank(trace.get(API_CALLS), rank)
    threads = tuple(sorted({(process, thread) for (_, process, thread), _, _ in thread_slices(frame)}))
    code = {pair: number for number, pair in enumerate(threads)}
    thread = np.zeros(frame.height, np.int32)
    for (_, process, id_), low, high in thread_slices(frame):
        thread[low:high] = code[process, id_]
    return Calls(
        row=np.arange(first, first + frame.height, dtype=np.int32),
        thread=thread,
        process=frame["process"].to_numpy(),
        kind=call_kinds(frame["name"]),
        start_ns=frame["start_ns"].to_numpy(),
        end_ns=frame["end_ns"].to_numpy(),
        correlation=frame["correlation"].fill_null(-1).to_numpy(),
        threads=threads,
    )


def _of_rank(calls: pl.DataFrame, rank: int) -> tuple[pl.DataFrame, int]:
    """The calls of a rank, which stand together in their table, and the row of the first."""
    for (owner,), first, last in key_slices(calls, ("rank",)):
        if owner == rank:
            return calls[first:last], first
    return calls.clear(), 0


def host_points(trace: Trace, rank: int, calls: Calls, bursts: Bursts) -> HostPoints:
    """Points of all threads, threads that only work while another waits tied to it by forks and joins (R1, R6)."""
    outer_thread, outer_ns = _outer_points(trace, rank, calls)
    count, marks, outer = len(calls), len(bursts), outer_ns.size
    time = np.concatenate((calls.start_ns, calls.end_ns, bursts.fork_ns, bursts.join_ns, outer_ns))
    thread: IntArray = np.concatenate((calls.thread, calls.thread, bursts.owner, bursts.owner, outer_thread))
    mark = -1 - np.arange(marks + outer)
    call = np.concatenate((np.arange(count), np.arange(count), mark[:marks], mark))
    ends = np.repeat([False, True, False, True, False], [count, count, marks, marks, outer])
    order = _order(thread, time, ends, count)
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    begin, end, fork, join, _ = np.split(place, np.cumsum([count, count, marks, marks]))
    points = HostPoints(thread[order], time[order], call[order], ends[order], begin, end, fork, join, np.empty(0, bool))
    return _with_cuts(points, bursts)


def _outer_points(trace: Trace, rank: int, calls: Calls) -> tuple[IntArray, Int64Array]:
    """Where the records of each calling thread begin and end, if outside of its calls: work there counts too."""
    number = {pair: n for n, pair in enumerate(calls.threads)}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for table in (HOST_OPS, RANGES):
        frame = trace.get(table)
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        for (owner, process, thread), low, high in thread_slices(frame):
            code = number.get((process, thread))
            if owner == rank and code is not None:
                first[code] = min(first.get(code, int(start[low])), int(start[low]))
                latest = int(end[low:high].max())
                last[code] = max(last.get(code, latest), latest)
    found: list[tuple[int, int]] = []
    for code in sorted(first):
        mine = calls.thread == code
        if first[code] < calls.start_ns[mine].min():
            found.append((code, first[code]))
        if last[code] > calls.end_ns[mine].max():
            found.append((code, last[code]))
    threads, times = np.array(found, np.int64).reshape(-1, 2).T
    return threads, times


def _order(thread: IntArray, time: Int64Array, ends: BoolArray, count: int) -> IntArray:
    """By thread, time; at one instant a call's end comes before the next begin, but never before its own begin.

    A fork closes what was done before it, a join opens what comes after.
    """
    full = np.zeros(time.size, bool)
    full[: 2 * count] = np.tile(time[count : 2 * count] > time[:count], 2)
    rank = np.where(ends, np.where(full, 0, 2), np.where(full, 5, 1))
    rank[2 * count :] = np.where(ends[2 * count :], 4, 3)
    return np.lexsort((rank, time, thread))


def _with_cuts(points: HostPoints, bursts: Bursts) -> HostPoints:
    """Between two bursts a worker waits, and during one its owner does: no work links those points."""
    cut = np.zeros(len(points), bool)
    if len(points):
        cut[0] = True
        cut[1:] = points.thread[1:] != points.thread[:-1]
    for number in range(len(bursts)):
        low, high = burst_points(points, bursts, number)
        if high > low:
            cut[low] = True
    joins = points.join_of
    before = joins - 1
    cut[joins[~((points.call[before] < 0) & points.ends[before])]] = True
    return replace(points, cut=cut)


def burst_points(points: HostPoints, bursts: Bursts, number: int) -> tuple[int, int]:
    """The worker's points of one burst: first, and one past the last."""
    worker = int(bursts.worker[number])
    low, high = np.searchsorted(points.thread, [worker, worker + 1])
    window = (int(bursts.fork_ns[number]), int(bursts.join_ns[number]))
    first, last = low + np.searchsorted(points.time_ns[low:high], window, side="left")
    return int(first), int(last)
