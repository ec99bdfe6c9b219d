"""The host side of the graph: the threads' CUDA calls as points, and the threads that work on another's behalf.

Threads that only work while another thread waits for them, such as autograd's, and when each such burst was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.calls import call_kinds
from timesink.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array, IntArray
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import key_slices, thread_slices
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace

AUTOGRAD: Final = r"^autograd::engine::evaluate_function|^CompiledFunctionBackward"
# A worker's activity lies in the owner's silences; the odd hundredth allows for clock jitter at their edges.
_INSIDE_SHARE: Final = 0.98
# Of three bursts, the first and the last may be cut.
_KNOWN_SHARE: Final = 0.25
# Without autograd's own events two alternating threads could be a coincidence; three bursts in a row hardly are.
_BURSTS_WITHOUT_PROOF: Final = 3
_BUSIEST: Final = 24


@dataclass(frozen=True, slots=True, eq=False)
class Bursts:
    """One row per stretch in which thread `worker` worked and thread `owner` waited, from `fork_ns` to `join_ns`.

    The owner's last act before is the fork, its first act after is the join. `proven` says whether autograd's own
    events name the worker; the others are inferred from alternation in time alone.
    """

    owner: Int64Array
    worker: Int64Array
    fork_ns: Int64Array
    join_ns: Int64Array
    proven: BoolArray

    def __len__(self) -> int:
        return int(self.owner.size)

    @classmethod
    def none(cls) -> Bursts:
        """No bursts."""
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty, empty, np.empty(0, bool))


def find_bursts(trace: Trace, rank: int, threads: Sequence[tuple[int, int]]) -> Bursts:
    """Bursts of a rank's worker threads (R6); `threads` are the (process, thread) pairs that numbers stand for."""
    activity = _activity(trace, rank, threads)
    busiest = sorted(activity, key=lambda t: (-len(activity[t]), t))[:_BUSIEST]
    autograd = _autograd_threads(trace, rank, threads)
    parts: list[tuple[int, int, Int64Array, Int64Array, bool]] = []
    workers: set[int] = set()
    for worker in sorted(busiest, key=lambda t: (t not in autograd, t)):
        owners = [o for o in busiest if o != worker and o not in workers and threads[o][0] == threads[worker][0]]
        best = _best_owner(worker, owners, activity, worker in autograd)
        if best is not None:
            workers.add(worker)
            parts.append((best[0], worker, best[1], best[2], worker in autograd))
    if not parts:
        return Bursts.none()
    sizes = [p[2].size for p in parts]
    return Bursts(
        owner=np.repeat([p[0] for p in parts], sizes).astype(np.int64),
        worker=np.repeat([p[1] for p in parts], sizes).astype(np.int64),
        fork_ns=np.concatenate([p[2] for p in parts]),
        join_ns=np.concatenate([p[3] for p in parts]),
        proven=np.repeat([p[4] for p in parts], sizes),
    )


def _best_owner(
    worker: int, owners: Sequence[int], activity: Mapping[int, Intervals], proven: bool
) -> tuple[int, Int64Array, Int64Array] | None:
    """The thread in whose silences the worker's activity lies, the one with most bursts; forks and joins."""
    found: list[tuple[int, int, Int64Array, Int64Array]] = []
    mine = activity[worker]
    for owner in owners:
        other = activity[owner]
        if not len(mine) or len(other) < 2 or (not proven and other.start_ns[0] > mine.start_ns[0]):
            continue
        silence_start, silence_end = other.end_ns[:-1], other.start_ns[1:]
        at = np.searchsorted(silence_start, mine.start_ns, side="right") - 1
        inside = (at >= 0) & (mine.end_ns <= silence_end[np.maximum(at, 0)])
        known_ns = mine.total_ns
        if proven:  # a recording may begin or end within a burst: beyond all that the owner did, nothing is known
            known_ns = mine.lengths_ns[(mine.end_ns > other.start_ns[0]) & (mine.start_ns < other.end_ns[-1])].sum()
        if known_ns < _KNOWN_SHARE * mine.total_ns or mine.lengths_ns[inside].sum() < _INSIDE_SHARE * known_ns:
            continue
        silences = np.unique(at[inside])
        if silences.size >= (1 if proven else _BURSTS_WITHOUT_PROOF):
            found.append((-int(silences.size), owner, silence_start[silences], silence_end[silences]))
    if not found:
        return None
    _, owner, fork, join = min(found, key=lambda f: f[:2])
    return owner, fork, join


def _activity(trace: Trace, rank: int, threads: Sequence[tuple[int, int]]) -> dict[int, Intervals]:
    """When each thread ran an operator or a CUDA call. Ranges and frames do not count: they enclose waiting."""
    number = {pair: n for n, pair in enumerate(threads)}
    found: dict[int, Intervals] = {}
    for table in (API_CALLS, HOST_OPS):
        frame = trace.get(table)
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        for (owner, process, thread), first, last in thread_slices(frame):
            code = number.get((process, thread))
            if owner == rank and code is not None:
                part = Intervals.union_of(start[first:last], end[first:last])
                found[code] = part | found[code] if code in found else part
    return found


def _autograd_threads(trace: Trace, rank: int, threads: Sequence[tuple[int, int]]) -> set[int]:
    number = {pair: n for n, pair in enumerate(threads)}
    names = trace.get(HOST_OPS)["name"]
    return {
        number[process, thread]
        for (owner, process, thread), first, last in thread_slices(trace.get(HOST_OPS))
        if owner == rank
        and (process, thread) in number
        and matches(names.slice(first, last - first).unique(), AUTOGRAD).any()
    }


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
