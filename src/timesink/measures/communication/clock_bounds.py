"""Between which limits each clock's offset must lie: causality of collectives, propagated until nothing tightens.

Nobody leaves a collective before everybody has come. So there is an instant m at which all are inside, and for each
rank start <= m + offset <= end by its own clock. These are difference constraints; with one clock as reference,
shortest paths (Bellman-Ford over ranks and collectives) give the tightest limits they imply. Of a message only half
of that is true: nobody has received it before its sender began to send. Clocks may drift against each other by at most
`drift_ratio`: then a limit at one collective is a limit at another, wider by drift times their distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from timesink.model.arrays import BoolArray, Int64Array

# "No limit known": far beyond any offset, and far enough from the ends of int64 to be added to.
UNKNOWN: Final = 1 << 58
_ROUNDS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """One row per clock and collective or message: who was in which one from when to when, by that clock.

    `holds`: nobody else leaves before this one has come; `held`: it leaves only after those. Both in a collective; of a
    message its sender holds and its receiver is held.
    """

    clock: Int64Array
    instance: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    holds: BoolArray
    held: BoolArray

    @property
    def clocks(self) -> int:
        """How many clocks there are; the reference is clock 0."""
        return int(self.clock.max()) + 1 if self.clock.size else 0


def offset_bounds(visits: Visits, drift_ratio: float) -> tuple[Int64Array, Int64Array]:
    """Lowest and highest offset of each row's clock against clock 0, at that collective; -+UNKNOWN where none follows.

    The offset is what the clock shows minus what clock 0 shows. A lowest above a highest says that the rows contradict
    each other: matched wrongly, or drifting faster than assumed.
    """
    if not visits.clock.size:
        return visits.start_ns, visits.end_ns
    base = np.full(visits.clocks, np.iinfo(np.int64).max)
    np.minimum.at(base, visits.clock, visits.start_ns)  # clocks may differ by decades: each counts from its first call
    begun = base[visits.clock]
    start, end = visits.start_ns - begun, visits.end_ns - begun
    rows = _Rows.of(visits, start, drift_ratio)
    apart = begun - base[0]
    high = _highest_offsets(rows, _Side(end, visits.held), _Side(start, visits.holds))
    low = -_highest_offsets(rows, _Side(-start, visits.holds), _Side(-end, visits.held))
    return np.where(low > -UNKNOWN, low + apart, -UNKNOWN), np.where(high < UNKNOWN, high + apart, UNKNOWN)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Visits by clock and time; `group` lists them by instance, `first` begins each instance there."""

    order: Int64Array
    clock: Int64Array
    widening: Int64Array
    group: Int64Array
    first: Int64Array
    which: Int64Array

    @classmethod
    def of(cls, visits: Visits, start_ns: Int64Array, drift_ratio: float) -> _Rows:
        order = np.lexsort((start_ns, visits.clock))
        instance = visits.instance[order]
        group = np.argsort(instance, kind="stable")
        begins = np.concatenate(([True], np.diff(instance[group]) > 0))
        widening = np.rint(start_ns[order] * drift_ratio).astype(np.int64)
        return cls(order, visits.clock[order], widening, group, np.flatnonzero(begins), np.cumsum(begins) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """A time of each visit, and whether it counts."""

    time_ns: Int64Array
    counts: BoolArray


def _highest_offsets(rows: _Rows, leaving: _Side, entering: _Side) -> Int64Array:
    """Shortest paths from clock 0: offset <= (offset' - entering') + leaving for any two in one collective.

    With times negated and their roles exchanged the same sum bounds the negated offset, hence the offset from below.
    """
    leave, enter = leaving.time_ns[rows.order], entering.time_ns[rows.order]
    leaves, enters = leaving.counts[rows.order], entering.counts[rows.order]
    bound = np.where(rows.clock == 0, 0, UNKNOWN).astype(np.int64)
    for _ in range(_ROUNDS):
        reach = np.where((bound < UNKNOWN) & enters, bound - enter, UNKNOWN)
        earliest = np.minimum.reduceat(reach[rows.group], rows.first)
        through = np.empty_like(bound)
        through[rows.group] = earliest[rows.which]
        tighter = np.where((through < UNKNOWN) & leaves, np.minimum(bound, through + leave), bound)
        tighter = _spread_over_time(rows.clock, np.where(rows.clock == 0, 0, tighter), rows.widening)
        if np.array_equal(tighter, bound):
            break
        bound = tighter
    back = np.empty_like(bound)
    back[rows.order] = bound
    return back


def _spread_over_time(clock: Int64Array, bound: Int64Array, widening: Int64Array) -> Int64Array:
    """Each bound, or a neighbour's on the same clock widened by the drift between them; rows lie in time order."""
    forward = _running_minimum(clock, bound - widening) + widening
    backward = _running_minimum(clock[::-1], (bound + widening)[::-1])[::-1] - widening
    spread = np.minimum(bound, np.minimum(forward, backward))
    return np.where(spread > UNKNOWN // 2, UNKNOWN, spread)


def _running_minimum(group: Int64Array, value: Int64Array) -> Int64Array:
    """The running minimum, begun anew at each group; rows of a group are adjacent."""
    value = value.copy()
    first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1]))) if group.size else group
    place = np.arange(group.size)
    begun = np.repeat(first, np.diff(np.concatenate((first, [group.size]))))
    step = 1
    while step < group.size and (place - begun).max(initial=0) >= step:
        inside = np.flatnonzero(place - begun >= step)
        value[inside] = np.minimum(value[inside], value[inside - step])
        step *= 2
    return value
