"""The host side of the graph: a rank's CUDA calls, the points they make on threads, and threads that wait for others.

A thread that only works while another waits for it, such as one of autograd's, is a worker; each stretch of its work is
a burst, which begins with a fork and ends with a join on the thread that waits, the burst's owner.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge.assumptions import replay
from timesink.knowledge.calls import CAPTURE_MODE, LAUNCH, POLLS, call_kinds
from timesink.knowledge.ranges import AUTOGRAD
from timesink.model.arrays import BoolArray, Int8Array, Int32Array, Int64Array, IntArray
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of, thread_slices
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.records import Record, field_names, replace

_BUSIEST: Final = 24  # threads that are looked at


def thread_rows(frame: pl.DataFrame, rank: int, threads: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """The rows of a rank's threads in a host table: number of the thread, first row, and one past the last.

    `threads` are the (process, thread) pairs that numbers stand for; rows of other threads are passed over.
    """
    number = {pair: n for n, pair in enumerate(threads)}
    for (_, process, thread), first, last in thread_slices(frame, rank):
        if (process, thread) in number:
            yield number[process, thread], first, last


def recorded_time(
    frames: Iterable[pl.DataFrame], rank: int, threads: Sequence[tuple[int, int]], near_ns: int | None = None
) -> dict[int, Intervals]:
    """When each thread of a rank was in any row of these host tables, by the number of the thread; with `near_ns`, when
    it was within so long of where one begins or ends, be it inside or not."""
    recorded: dict[int, Intervals] = {}
    for frame in frames:
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        for thread, first, last in thread_rows(frame, rank, threads):
            begins, ends = start[first:last], end[first:last]
            if near_ns is not None:
                sides = np.concatenate((begins, ends))
                begins, ends = sides - near_ns, sides + near_ns
            part = Intervals.union_of(begins, ends)
            recorded[thread] = part | recorded[thread] if thread in recorded else part
    return recorded


class Calls(Record, eq=False):
    """CUDA calls of one rank, one row each, in the order of `api_calls`.

    `row` is the row of `api_calls`; `thread` numbers the (process, thread) pairs of `threads`; `kind` is a `CallKind`;
    `correlation` is -1 where none was recorded.
    """

    row: Int32Array
    thread: Int32Array
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


def read_calls(trace: Trace, rank: int) -> Calls:
    """The calls of a rank, with what each of them can make the host do."""
    frame, first_row = calls_of_rank(trace.get(API_CALLS), rank)
    threads = tuple(sorted({(process, thread) for (_, process, thread), _, _ in thread_slices(frame)}))
    thread = np.zeros(frame.height, np.int32)
    for number, first, last in thread_rows(frame, rank, threads):
        thread[first:last] = number
    return Calls(
        row=np.arange(first_row, first_row + frame.height, dtype=np.int32),
        thread=thread,
        kind=call_kinds(frame["name"]),
        start_ns=frame["start_ns"].to_numpy(),
        end_ns=frame["end_ns"].to_numpy(),
        correlation=frame["correlation"].fill_null(-1).to_numpy(),
        threads=threads,
    )


def calls_of_rank(calls: pl.DataFrame, rank: int) -> tuple[pl.DataFrame, int]:
    """The calls of a rank, which are neighbours in their table, and the row of the first."""
    first, last = slice_of(calls, ("rank",), (rank,))
    return calls[first:last], first


class Bursts(Record, eq=False):
    """One row per stretch in which thread `worker` worked and thread `owner` waited, from `fork_ns` to `join_ns`.

    The owner's last act before is the fork, its first act after is the join.
    """

    owner: Int64Array
    worker: Int64Array
    fork_ns: Int64Array
    join_ns: Int64Array

    def __len__(self) -> int:
        return int(self.owner.size)


def find_bursts(trace: Trace, rank: int, threads: Sequence[tuple[int, int]]) -> Bursts:
    """Bursts of a rank's worker threads; `threads` are the (process, thread) pairs that numbers stand for.

    No profiler records which thread wakes which. A worker is a thread that autograd's own events name, or one that
    alternates with another often enough; its owner is the thread of the same process in whose silences it works.
    Nobody waits for a watcher.
    """
    # ranges and frames do not count as activity: they enclose waiting
    activity = recorded_time((trace.get(API_CALLS), trace.get(HOST_OPS)), rank, threads)
    for watcher in _watchers(trace, rank, threads):
        del activity[watcher]
    busiest = sorted(activity, key=lambda t: (-len(activity[t]), t))[:_BUSIEST]
    autograd = _autograd_threads(trace, rank, threads)
    parts: list[tuple[int, int, Int64Array, Int64Array]] = []
    workers: set[int] = set()
    for worker in sorted(busiest, key=lambda t: (t not in autograd, t)):
        owners = [o for o in busiest if o != worker and o not in workers and threads[o][0] == threads[worker][0]]
        best = _best_owner(worker, owners, activity, worker in autograd)
        if best is not None:
            workers.add(worker)
            parts.append((best[0], worker, best[1], best[2]))
    if not parts:
        return Bursts(*(np.empty(0, np.int64) for _ in field_names(Bursts)))
    owner, worker_of, fork, join = zip(*parts, strict=True)
    sizes = [times.size for times in fork]
    return Bursts(
        np.repeat(owner, sizes).astype(np.int64),
        np.repeat(worker_of, sizes).astype(np.int64),
        np.concatenate(fork),
        np.concatenate(join),
    )


def _best_owner(
    worker: int, owners: Sequence[int], activity: Mapping[int, Intervals], proven: bool
) -> tuple[int, Int64Array, Int64Array] | None:
    """The thread in whose silences the worker's activity falls, the one with most bursts; forks and joins.

    `proven`: autograd's own events name the worker. Of activity 20-30, 70-80 and silences 10-50, 60-90 of another
    thread, both intervals are inside, in two bursts with forks at 10 and 60 and joins at 50 and 90.
    """
    candidates: list[tuple[int, int, Int64Array, Int64Array]] = []
    work = activity[worker]
    for owner in owners:
        other = activity[owner]
        if not len(work) or len(other) < 2 or (not proven and other.start_ns[0] > work.start_ns[0]):
            continue
        silence_start, silence_end = other.end_ns[:-1], other.start_ns[1:]
        at = places(silence_start, work.start_ns, True) - 1
        inside = (at >= 0) & (work.end_ns <= silence_end[np.maximum(at, 0)])
        known_ns = work.total_ns
        if proven:  # a recording may begin or end within a burst: beyond all that the owner did, nothing is known
            known_ns = work.lengths_ns[(work.end_ns > other.start_ns[0]) & (work.start_ns < other.end_ns[-1])].sum()
        if (
            known_ns < replay.KNOWN_SHARE.value * work.total_ns
            or work.lengths_ns[inside].sum() < replay.INSIDE_SHARE.value * known_ns
        ):
            continue
        silences = np.unique(at[inside])
        if silences.size >= (1 if proven else replay.BURSTS_WITHOUT_PROOF.value):
            candidates.append((-int(silences.size), owner, silence_start[silences], silence_end[silences]))
    if not candidates:
        return None
    _, owner, fork, join = min(candidates, key=lambda candidate: candidate[:2])
    return owner, fork, join


def _watchers(trace: Trace, rank: int, threads: Sequence[tuple[int, int]]) -> set[int]:
    """Numbers of the threads that ask whether work is done and launch and compute nothing, as NCCL's watchdog does,
    which disturbs no capture by that; a loader's thread that pins memory asks, too, and is waited for."""
    calls, computing = trace.get(API_CALLS), {one for one, _, _ in thread_rows(trace.get(HOST_OPS), rank, threads)}
    found = set()
    for thread, first, last in thread_rows(calls, rank, threads):
        names = calls["name"][first:last].unique()
        asks = matches(names, POLLS).any() and matches(names, CAPTURE_MODE).any()
        if asks and thread not in computing and not matches(names, LAUNCH).any():
            found.add(thread)
    return found


def _autograd_threads(trace: Trace, rank: int, threads: Sequence[tuple[int, int]]) -> set[int]:
    """Numbers of the threads on which autograd ran operators of its backward pass."""
    frame = trace.get(HOST_OPS)
    return {
        thread
        for thread, first, last in thread_rows(frame, rank, threads)
        if matches(frame["name"].slice(first, last - first).unique(), AUTOGRAD).any()
    }


class HostPoints(Record, eq=False):
    """Every begin and end of a call, and every fork and join of a burst, sorted by thread and time: host nodes.

    `call` is the call's number, or negative for a mark; `ends` tells an end (or a join) from a begin (or a fork).
    `begin_of` and `end_of` are the points of each call, `fork_of` and `join_of` those of each burst. `cut` marks points
    before which the thread was only waiting for a fork, so that no work links them to the point before.
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


def host_points(trace: Trace, rank: int, calls: Calls, bursts: Bursts) -> HostPoints:
    """Points of all threads. Between two of them a thread does one thing, traced or not.

    Splitting at CUDA calls alone is enough: only they launch work, and only they wait for it.
    """
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
    first_ns: dict[int, int] = {}
    last_ns: dict[int, int] = {}
    for table in (HOST_OPS, RANGES):
        frame = trace.get(table)
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        for thread, low, high in thread_rows(frame, rank, calls.threads):
            earliest, latest = int(start[low]), int(end[low:high].max())
            first_ns[thread] = min(first_ns.get(thread, earliest), earliest)
            last_ns[thread] = max(last_ns.get(thread, latest), latest)
    outer: list[tuple[int, int]] = []
    for thread in sorted(first_ns):
        own = calls.thread == thread
        if first_ns[thread] < calls.start_ns[own].min():
            outer.append((thread, first_ns[thread]))
        if last_ns[thread] > calls.end_ns[own].max():
            outer.append((thread, last_ns[thread]))
    threads, times = np.array(outer, np.int64).reshape(-1, 2).T
    return threads, times


def _order(thread: IntArray, time: Int64Array, ends: BoolArray, count: int) -> IntArray:
    """By thread, time; at one instant a call's end comes before the next begin, but never before its own begin.

    A fork closes what was done before it, a join opens what comes after. The points come as `count` begins and `count`
    ends of calls, then the marks. At one instant the order is:

        0 end of a call that began earlier   1 begin of an empty call   2 its end   3 fork   4 join   5 begin of a call
    """
    full = np.zeros(time.size, bool)
    full[: 2 * count] = np.tile(time[count : 2 * count] > time[:count], 2)
    rank = np.where(ends, np.where(full, 0, 2), np.where(full, 5, 1))  # the order of what happens at one instant
    rank[2 * count :] = np.where(ends[2 * count :], 4, 3)  # the order of what happens at one instant
    return np.lexsort((rank, time, thread))


def _with_cuts(points: HostPoints, bursts: Bursts) -> HostPoints:
    """Between two bursts a worker waits, and during one its owner does: no work links those points.

    Cut are the first point of each thread, the first point of each burst on its worker, and each join, unless the point
    before it is another join.
    """
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
