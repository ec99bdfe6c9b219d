"""Threads that only work while another thread waits for them, such as autograd's, and when each such burst was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, HOST_OPS
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
