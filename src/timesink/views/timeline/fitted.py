"""A timeline made to fit a page: short events that follow one another closely share a run that knows what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from timesink.model.record import dataclass, field, replace
from timesink.views.figures import Lane, Runs, Timeline
from timesink.views.timeline.runs import binned, joined, joined_below_ns

MOST_RUNS: Final = 120_000  # of a page of at most 2 MB
LIVE_RUNS: Final = 30_000  # of a page that asks a server for finer ones
STRIP_RUNS: Final = 60_000  # of them in the strips of all ranks
_MIXED: Final = -2  # the name of the first mix


@dataclass(slots=True)
class _Mixes:
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
        pair, place = np.unique(group[held] * names + before.name[held] + 1, return_inverse=True)
        count = np.bincount(place, weights=before.count[held]).astype(np.int64)
        name = after.name.copy()
        begin = np.flatnonzero(np.diff(pair // names, prepend=-1))
        for first, last in zip(begin.tolist(), [*begin[1:].tolist(), pair.size], strict=True):
            name[pair[first] // names] = _MIXED - self._number(pair[first:last] % names - 1, count[first:last])
        return replace(after, name=name)

    def _number(self, names: np.ndarray, counts: np.ndarray) -> int:
        number = self.numbers.setdefault(names.tobytes() + counts.tobytes(), len(self.mixes))
        if number == len(self.mixes):
            self.mixes.append(tuple(zip(names.tolist(), counts.tolist(), strict=True)))
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
