"""Lower and upper bounds of each clock's offset, from causality in collectives and messages.

Nobody leaves a collective before everybody has arrived. So there is an instant m at which all ranks are inside, and by
the clock of each rank start <= m + offset <= end. These are difference constraints (Cormen et al., "Introduction to
Algorithms", chapter on single-source shortest paths): with one clock as reference, Bellman-Ford over ranks and
collectives gives the tightest bounds they imply. A message gives one of the two constraints: nobody has received it
before its sender began to send. Clocks may drift against each other by at most `drift_ratio`: a bound at one collective
is therefore a bound at another, wider by the drift times the time between them.
"""

from typing import Final, Self

import numpy as np

from timesink.model.arrays import BoolArray, Int64Array
from timesink.records import Record

# "No limit known": far beyond any offset, and far enough from the ends of int64 to be added to.
UNKNOWN: Final = 1 << 58
_ROUNDS: Final = 64  # no more, should the bounds not settle


class Visits(Record, eq=False):
    """One row per clock and collective or message (`instance`): start and end by that clock, in ns.

    `holds` is true where no other participant can leave before this one has arrived, `held` where this one cannot leave
    before those have. Both are true in a collective; in a message the sender holds and the receiver is held.
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
    """Lowest and highest offset (ns) of each row's clock against clock 0, at that row; -+UNKNOWN where unbounded.

    The offset is what the clock shows minus what clock 0 shows. A lowest offset above the highest says that the rows
    contradict each other: they were matched wrongly, or the clocks drift faster than `drift_ratio`.

        clock  instance  start_ns  end_ns
          0        0          0      100
          1        0         40      130    alone: offset between 40 - 100 = -60 and 130 - 0 = 130
          0        1        200      210
          1        1        205      215    alone: between -5 and 15; without drift that holds for both rows of clock 1
    """
    if not visits.clock.size:
        return visits.start_ns, visits.end_ns
    base = np.full(visits.clocks, np.iinfo(np.int64).max)
    np.minimum.at(base, visits.clock, visits.start_ns)  # clocks may differ by decades: each counts from its first start
    begun = base[visits.clock]
    start, end = visits.start_ns - begun, visits.end_ns - begun
    rows = _Rows.of(visits, start, drift_ratio)
    apart = begun - base[0]
    high = _highest_offsets(rows, _Side(end, visits.held), _Side(start, visits.holds))
    low = -_highest_offsets(rows, _Side(-start, visits.holds), _Side(-end, visits.held))
    return np.where(low > -UNKNOWN, low + apart, -UNKNOWN), np.where(high < UNKNOWN, high + apart, UNKNOWN)


class _Rows(Record, eq=False):
    """The index arrays of `_highest_offsets`: visits sorted by clock and time, and how to group them by instance.

    `order` sorts the visits; `clock` and `widening` (drift since the clock's first start, ns) are in that order.
    `group` lists sorted positions by instance, `first` are the places in `group` where an instance begins, and `which`
    numbers the instance of each place. Four visits (clock, instance) = (0, 7), (0, 9), (1, 7), (1, 9), sorted already:

        position    0  1  2  3
        group       0  2  1  3      instance 7 is at positions 0 and 2, instance 9 at 1 and 3
        first       0     2
        which       0  0  1  1
    """

    order: Int64Array
    clock: Int64Array
    widening: Int64Array
    group: Int64Array
    first: Int64Array
    which: Int64Array

    @classmethod
    def of(cls, visits: Visits, start_ns: Int64Array, drift_ratio: float) -> Self:
        order = np.lexsort((start_ns, visits.clock))
        instance = visits.instance[order]
        group = np.argsort(instance, kind="stable")
        begins = np.concatenate(([True], np.diff(instance[group]) > 0))
        widening = np.rint(start_ns[order] * drift_ratio).astype(np.int64)
        return cls(order, visits.clock[order], widening, group, np.flatnonzero(begins), np.cumsum(begins) - 1)


class _Side(Record, eq=False):
    """A time of each visit, and whether it counts."""

    time_ns: Int64Array
    counts: BoolArray


def _highest_offsets(rows: _Rows, leaving: _Side, entering: _Side) -> Int64Array:
    """Shortest paths from clock 0: offset <= (offset' - entering') + leaving for any two participants of an instance.

    Each round takes, per instance, the least `bound - enter` of its participants, adds each one's own `leave`, and
    carries the result along each clock; it ends when nothing tightens. With times negated and their roles exchanged the
    same sum bounds the negated offset, hence the offset from below. The rows of `offset_bounds`' example:

        clock  enter  leave   at first   through the instance   along the clock
          0        0    100          0          0                      0
          1       40    130    UNKNOWN    (0 - 0) + 130 = 130         15
          0      200    210          0          0                      0
          1      205    215    UNKNOWN    (0 - 200) + 215 = 15        15
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
    """Each bound, or that of another row of the same clock plus the drift between the two, whichever is tighter.

    Rows are in order of clock and time; `widening` grows with time, so differences of it are the drift between rows.

        clock  widening  bound   result
          0           0     50       50
          0          10    100       60    50 + (10 - 0)
          1           0    UNKNOWN   30    20 + (10 - 0)
          1          10     20       20
    """
    forward = _running_minimum(clock, bound - widening) + widening
    backward = _running_minimum(clock[::-1], (bound + widening)[::-1])[::-1] - widening
    spread = np.minimum(bound, np.minimum(forward, backward))
    return np.where(spread > UNKNOWN // 2, UNKNOWN, spread)


def _running_minimum(group: Int64Array, value: Int64Array) -> Int64Array:
    """The running minimum, begun anew at each group; rows of a group are adjacent.

    Step s lets every row look s rows back, s doubling: after log2(longest group) steps a row has seen all before it.

        group   0  0  1  1
        value   5  3  4  6
        result  5  3  4  4
    """
    value = value.copy()
    first = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1]))) if group.size else group
    length = np.diff(np.concatenate((first, [group.size])))
    before = np.arange(group.size) - np.repeat(first, length)  # how many rows of its group a row has before it
    step = 1
    while before.max(initial=0) >= step:
        inside = np.flatnonzero(before >= step)
        value[inside] = np.minimum(value[inside], value[inside - step])
        step *= 2
    return value
