"""Rows of a timeline: events under one another where they overlap, and short ones joined until a page holds them.

Four events of one thread, of which `b` and `c` lie inside `a`, take two rows. Where events shorter than 10 may be
joined, `b` and `c` are one run of length 9 that is busy for 7:

    row 0   a 0..40   d 50..60          row 0   a 0..40   d 50..60
    row 1   b 5..9    c 11..14     →    row 1   b and c 5..14, count 2, busy 7
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from timesink.model.arrays import BoolArray, Int64Array, distinct
from timesink.records import State, field, field_names, replace
from timesink.views.figures import Lane, Runs, Timeline

DEEPEST: Final = 10  # rows of one lane: deeper ones are joined to the last, as no screen holds more
_NONE: Final = -1


def single(start_ns: Int64Array, end_ns: Int64Array, **columns: Int64Array | int) -> Runs:
    """Events as runs of one each, in any order and overlapping: `laid_out` makes rows of them.

    `columns` are `kind`, `name`, `detail`, `from_lane` and `from_ns`, as arrays or one number for all events.
    """
    optional = ("kind", "name", "detail", "from_lane", "from_ns")
    return Runs(
        start_ns,
        end_ns,
        end_ns - start_ns,
        np.ones_like(start_ns),
        *(np.broadcast_to(np.asarray(columns.get(key, _NONE), np.int64), start_ns.shape) for key in optional),
    )


def laid_out(events: Runs) -> tuple[Runs, ...]:
    """Rows in which nothing overlaps: an event lies below all earlier ones that have not ended, so that nested events
    are at their depth. What would lie below the last row is joined to what it overlaps there.
    """
    left = np.lexsort((-events.end_ns, events.start_ns))
    rows: list[Runs] = []
    while left.size and len(rows) < DEEPEST:
        over = _overlapping(events, left)
        last = len(rows) == DEEPEST - 1
        rows.append(_grouped(chosen(events, left), ~over) if last else chosen(events, left[~over]))
        left = left[over]
    return tuple(rows)


def _overlapping(events: Runs, rows: Int64Array) -> BoolArray:
    """Which of the rows, in order of start, begin before an earlier one has ended."""
    over = np.zeros(rows.size, np.bool_)
    over[1:] = events.start_ns[rows[1:]] < np.maximum.accumulate(events.end_ns[rows])[:-1]
    return over


def chosen(runs: Runs, rows: Int64Array | slice) -> Runs:
    """These rows of the columns."""
    return Runs(*(getattr(runs, name)[rows] for name in field_names(Runs)))


def joined_below_ns(rows: Sequence[Runs], most: int) -> int:
    """The least length below which events must be joined, for the rows to have at most `most` runs; 0 for none.

    Where that many cannot be reached, as rows of one event each cannot be joined, everything that can be is.
    """
    reaches = [_reach_ns(runs) for runs in rows]
    excess = sum(runs.start_ns.size for runs in rows) - most
    every = np.concatenate(reaches) if reaches else np.array([], np.int64)
    if excess <= 0 or not every.size:
        return 0
    at = min(excess, every.size) - 1
    return int(np.partition(every, at)[at]) + 1


def _reach_ns(runs: Runs) -> Int64Array:
    """For each run but the first, the longest of it, of the one before it, and of the gap between them."""
    length = runs.end_ns - runs.start_ns
    gap = runs.start_ns[1:] - runs.end_ns[:-1]
    reach: Int64Array = np.maximum(np.maximum(length[1:], length[:-1]), gap)
    return reach


def joined(runs: Runs, below_ns: int) -> Runs:
    """The runs, neighbours joined where both are shorter than that and nearer than that to one another."""
    if runs.start_ns.size < 2:
        return runs
    first = np.ones(runs.start_ns.size, np.bool_)
    first[1:] = _reach_ns(runs) >= below_ns
    return _grouped(runs, first)


def binned(runs: Runs, width_ns: int, origin_ns: int) -> Runs:
    """The runs, neighbours joined where both are shorter than a bin and begin in the same one: what a drawing shows in
    which a pixel is as long as a bin. Bins count from `origin_ns`."""
    if runs.start_ns.size < 2 or width_ns < 2:
        return runs
    long = runs.end_ns - runs.start_ns >= width_ns
    place = (runs.start_ns - origin_ns) // width_ns
    first = np.ones(runs.start_ns.size, np.bool_)
    first[1:] = long[1:] | long[:-1] | (place[1:] != place[:-1])
    return _grouped(runs, first)


def _grouped(runs: Runs, first: BoolArray) -> Runs:
    """One run for each stretch that begins where `first` is true. It is of the kind of its longest event."""
    if first.all():
        return runs
    begin = np.flatnonzero(first)
    size = np.diff(np.append(begin, first.size))
    most = np.flatnonzero(runs.busy_ns == np.repeat(np.maximum.reduceat(runs.busy_ns, begin), size))
    longest = most[np.searchsorted(most, begin)]
    alone = size == 1
    end_ns = np.maximum.reduceat(runs.end_ns, begin)
    return Runs(
        start_ns=runs.start_ns[begin],
        end_ns=end_ns,
        busy_ns=np.minimum(np.add.reduceat(runs.busy_ns, begin), end_ns - runs.start_ns[begin]),
        count=np.add.reduceat(runs.count, begin),
        kind=runs.kind[longest],
        name=_shared(runs.name, begin),
        detail=np.where(alone, runs.detail[begin], _NONE),
        from_lane=np.where(alone, runs.from_lane[begin], _NONE),
        from_ns=np.where(alone, runs.from_ns[begin], _NONE),
    )


def _shared(values: Int64Array, begin: Int64Array) -> Int64Array:
    """The value that all of a group share, or none."""
    least, most = np.minimum.reduceat(values, begin), np.maximum.reduceat(values, begin)
    return np.where(least == most, least, _NONE)


def touching(runs: Runs, start_ns: int, end_ns: int) -> slice:
    """The runs of a row that touch the window."""
    return slice(int(np.searchsorted(runs.end_ns, start_ns, "right")), int(np.searchsorted(runs.start_ns, end_ns)))


def within(runs: Runs, start_ns: int, end_ns: int) -> Iterator[int]:
    """The places of the single events that touch the window."""
    some = touching(runs, start_ns, end_ns)
    yield from (at for at in range(some.start, some.stop) if runs.count[at] == 1)


MOST_RUNS: Final = 120_000  # of a page of at most 2 MB
LIVE_RUNS: Final = 30_000  # of a page that asks a server for finer ones
STRIP_RUNS: Final = 60_000  # of them in the strips of all ranks
_MIXED: Final = -2  # the name of the first mix


class _Mixes(State):
    """What runs of several names hold, each held once: steps that repeat make runs of the same names."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    mixes: list[tuple[tuple[int, int], ...]] = field(default_factory=list)

    def told(self, before: Runs, after: Runs) -> Runs:
        """The joined runs, those of several names with the number of their mix; `before` are the runs they hold."""
        group = np.searchsorted(np.cumsum(after.count), np.cumsum(before.count))
        several = (after.name == -1) & (after.count > 1)
        held = np.flatnonzero(several[group])
        if not held.size:
            return after
        names = int(before.name.max()) + 2
        pair, place = distinct(group[held] * names + before.name[held] + 1)
        of_run, own = np.divmod(pair, names)
        count = np.bincount(place, weights=before.count[held]).astype(np.int64)
        name, begin = after.name.copy(), np.flatnonzero(np.diff(of_run, prepend=-1))
        content, size = np.stack((own - 1, count), axis=1).tobytes(), 2 * count.itemsize
        bounds = zip((begin * size).tolist(), [*(begin[1:] * size).tolist(), len(content)], strict=True)
        name[of_run[begin]] = [_MIXED - self._number(content[first:last]) for first, last in bounds]
        return replace(after, name=name)

    def _number(self, content: bytes) -> int:
        number = self.numbers.setdefault(content, len(self.mixes))
        if number == len(self.mixes):
            mix = np.frombuffer(content, np.int64).reshape(-1, 2).tolist()
            self.mixes.append(tuple((name, count) for name, count in mix))
        return number


def fitted(timeline: Timeline, most_runs: int) -> Timeline:
    """The timeline with at most so many runs: of what is joined it knows the names, and how often each is there."""
    strips = [runs for lane in timeline.lanes if lane.kind == "ranks" for runs in lane.rows]
    some = sum(runs.start_ns.size for runs in strips)
    width_ns = 0
    if some > min(STRIP_RUNS, most_runs):
        bins = max(min(STRIP_RUNS, most_runs) // len(strips), 1)
        width_ns = -(-(timeline.end_ns - timeline.start_ns) // bins)
        some = bins * len(strips)
    others = [runs for lane in timeline.lanes if lane.kind != "ranks" for runs in lane.rows]
    below_ns = joined_below_ns(others, max(most_runs - some, 1))
    mixes = _Mixes()

    def rows(lane: Lane) -> Iterator[Runs]:
        for runs in lane.rows:
            if lane.kind == "ranks":
                yield binned(runs, width_ns, timeline.start_ns)
            else:
                yield mixes.told(runs, joined(runs, below_ns))

    lanes = tuple(replace(lane, rows=tuple(rows(lane))) for lane in timeline.lanes)
    return replace(timeline, lanes=lanes, merged_below_ns=below_ns, mixes=tuple(mixes.mixes))
