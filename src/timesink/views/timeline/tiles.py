"""Answers about a timeline of any size: the boxes of a stretch at a resolution, names found, causes, budgets.

A row is kept at several levels: below every event by itself, above it what begins within one bin of a power of two of
nanoseconds as one run. An answer takes the coarsest level whose bins are no longer than a pixel, so its size goes with
the width of the screen and not with the number of events. Times that go in and out count from the timeline's start.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from timesink.model.arrays import Float64Array
from timesink.model.intervals import Intervals
from timesink.records import Record, field_names
from timesink.views.figures import Runs, Timeline
from timesink.views.timeline.runs import binned, chosen, touching

_FINEST_NS: Final = 128  # events are hardly shorter
_WORTH: Final = 0.7  # a level of more of the one below is left out
_FEW: Final = 4096  # a row of no more needs no levels
MOST_RUNS: Final = 300_000  # of an answer: 16 MB; a screen has fewer pixels of rows
MOST_FOUND: Final = 2000  # places of names that are stepped through
MOST_EFFECTS: Final = 64  # lines of one drawing
SHOWN_KERNELS: Final = 6  # as in a page

Place = tuple[int, int]
"""A row of a lane."""


class Tile(Record, eq=False):
    """The boxes of some rows in a stretch. `is_whole` where every one is an event by itself."""

    rows: tuple[tuple[Place, Runs], ...]
    is_whole: bool


class Tiles:
    """One timeline that holds every event, and what is asked of it."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.length_ns = timeline.end_ns - timeline.start_ns
        self._whole = {
            (at, depth): runs for at, lane in enumerate(timeline.lanes) for depth, runs in enumerate(lane.rows)
        }
        self._coarser: dict[Place, tuple[tuple[int, Runs], ...]] = {}
        self._found = [
            timeline.short.get(at, "").lower() + "\n" + text.lower() for at, text in enumerate(timeline.texts)
        ]

    def tile(self, wanted: Iterable[Place], from_ns: int, to_ns: int, pixel_ns: float) -> Tile:
        """Those rows between two instants, for a drawing in which a pixel is so long; places that are not there are
        left out. Of more runs than `MOST_RUNS` it is coarser than asked for."""
        places = [place for place in dict.fromkeys(wanted) if place in self._whole]
        while True:
            levels = [self._level(place, pixel_ns) for place in places]
            cuts = [self._touching(runs, from_ns, to_ns) for _, runs in levels]
            if sum(cut.stop - cut.start for cut in cuts) <= MOST_RUNS or pixel_ns > self.length_ns:
                break
            pixel_ns = max(2 * pixel_ns, _FINEST_NS)
        rows = tuple((place, chosen(runs, cut)) for place, (_, runs), cut in zip(places, levels, cuts, strict=True))
        return Tile(rows, all(not width for width, _ in levels))

    def search(self, text: str) -> dict[str, Any]:
        """How many events have a name that holds the text, and the first of them in order of time."""
        wanted = text.strip().lower()
        if not wanted:
            return {"events": 0, "hits": [], "unseen": 0}
        has = np.array([*(wanted in name for name in self._found), False], np.bool_)  # the last one is for no name
        events, unseen, hits = 0, 0, []
        for place, runs in self._rows():
            at = np.flatnonzero(has[np.maximum(runs.name, -1)])
            events += int(runs.count[at].sum())
            unseen += int(runs.count[runs.name < 0].sum())
            hits += [(int(runs.start_ns[one]), *place, one) for one in at[:MOST_FOUND].tolist()]
        found = [self._event((lane, depth), one) for _, lane, depth, one in sorted(hits)[:MOST_FOUND]]
        return {"events": events, "hits": found, "unseen": unseen}

    def around(self, place: Place, start_ns: int) -> dict[str, Any]:
        """What caused the event of that row that begins then, what it caused, and what holds it on its thread."""
        known: dict[str, Any] = {"cause": None, "effects": [], "inside": []}
        runs = self._whole.get(place)
        at = None if runs is None else _beginning(runs, start_ns + self.timeline.start_ns)
        if runs is None or at is None:
            return known
        kind, start = self.timeline.lanes[place[0]].kind, int(runs.start_ns[at])
        cause = self._holding(int(runs.from_lane[at]), int(runs.from_ns[at]))
        host = (place[0], start) if kind == "call" else (int(runs.from_lane[at]), int(runs.from_ns[at]))
        inside = []
        if kind == "call" or (kind == "stream" and cause):
            stacks = [self._stack(self._beside(host[0], other), host[1]) for other in ("op", "range")]
            inside = [self._event(*stack[-1]) for stack in stacks if stack]
        effects = list(self._effects(place[0], start)) if kind in ("call", "op") else []
        return {"cause": None if cause is None else self._event(*cause), "effects": effects, "inside": inside}

    def budget(self, rank: int, device: int, from_ns: int, to_ns: int) -> dict[str, Any]:
        """Where the time of a device goes between two instants, idle time by cause, and its longest kernels."""
        unions = {kind: Intervals.none() for kind in ("compute", "communication", "copy")}
        size = len(self.timeline.texts) + 1  # the first place is for names that are not known
        causes, kernels = np.zeros((2, size)), np.zeros((2, size))
        start, end = from_ns + self.timeline.start_ns, to_ns + self.timeline.start_ns
        for (at, _), runs in self._rows():
            lane = self.timeline.lanes[at]
            if (lane.rank, lane.device) != (rank, device) or lane.kind not in ("stream", "idle"):
                continue
            part = chosen(runs, touching(runs, start, end))
            first, last = np.maximum(part.start_ns, start), np.minimum(part.end_ns, end)
            sums = causes if lane.kind == "idle" else kernels
            sums[0] += np.bincount(part.name + 1, weights=last - first, minlength=size)
            sums[1] += np.bincount(part.name + 1, weights=part.count, minlength=size)
            if lane.kind == "stream":
                for number, kind in enumerate(self.timeline.kinds):
                    of_kind = part.kind == number
                    name = kind if kind in unions else "compute"
                    unions[name] = unions[name] | Intervals.union_of(first[of_kind], last[of_kind])
        compute, communication = unions["compute"], unions["communication"] - unions["compute"]
        copy = unions["copy"] - unions["communication"] - compute
        times = {"compute": compute.total_ns, "communication": communication.total_ns, "copy": copy.total_ns}
        times["idle"] = max(end - start - sum(times.values()), 0)
        return {"times": times, "causes": _longest(causes), "kernels": _longest(kernels)[:SHOWN_KERNELS]}

    def text(self, number: int) -> tuple[str, str | None]:
        """A text of the timeline, and its short form."""
        return self.timeline.texts[number], self.timeline.short.get(number)

    def _rows(self) -> Iterator[tuple[Place, Runs]]:
        """Every row of events at its lowest level."""
        lanes = self.timeline.lanes
        return ((place, runs) for place, runs in self._whole.items() if lanes[place[0]].kind != "ranks")

    def _level(self, place: Place, pixel_ns: float) -> tuple[int, Runs]:
        """The coarsest level of a row for such a pixel, and the width of its bins.

        Levels are made when a row is first shown: folded rows need none. Two threads that ask at once make the same.
        """
        whole = self._whole[place]
        if place not in self._coarser:
            self._coarser[place] = tuple(_levels(whole, self.timeline.start_ns, self.length_ns))
        return next((level for level in reversed(self._coarser[place]) if level[0] <= pixel_ns), (0, whole))

    def _touching(self, runs: Runs, from_ns: int, to_ns: int) -> slice:
        cut = touching(runs, from_ns + self.timeline.start_ns, to_ns + self.timeline.start_ns)
        return slice(cut.start, max(cut.start, cut.stop))

    def _event(self, place: Place, at: int) -> dict[str, int]:
        """One event as the page knows it."""
        runs, origin_ns = self._whole[place], self.timeline.start_ns
        start, end, busy, *known, cause, caused_ns = (int(getattr(runs, key)[at]) for key in field_names(Runs))
        return {
            "lane": place[0],
            "depth": place[1],
            "start": start - origin_ns,
            "end": end - origin_ns,
            "busy": busy,
            **dict(zip(("count", "kind", "name", "detail"), known, strict=True)),
            "fromLane": cause,
            "from": caused_ns - origin_ns if cause >= 0 else -1,
        }

    def _stack(self, lane: int, time_ns: int) -> list[tuple[Place, int]]:
        """Everything of a lane that holds an instant, the outermost first."""
        depths = len(self.timeline.lanes[lane].rows) if lane >= 0 else 0
        found = []
        for depth in range(depths):
            runs = self._whole[lane, depth]
            at = int(np.searchsorted(runs.end_ns, time_ns, "right"))
            if at < runs.start_ns.size and runs.start_ns[at] <= time_ns:
                found.append(((lane, depth), at))
        return found

    def _holding(self, lane: int, time_ns: int) -> tuple[Place, int] | None:
        """What begins then in that lane, else the innermost that runs then."""
        stack = self._stack(lane, time_ns)
        begins = (one for one in stack if self._whole[one[0]].start_ns[one[1]] == time_ns)
        return next(begins, stack[-1] if stack else None)

    def _effects(self, lane: int, start_ns: int) -> Iterator[dict[str, int]]:
        left = MOST_EFFECTS
        for place, runs in self._rows():
            at = np.flatnonzero((runs.from_ns == start_ns) & (runs.from_lane == lane))[:left].tolist()
            left -= len(at)
            yield from (self._event(place, one) for one in at)

    def _beside(self, lane: int, kind: str) -> int:
        """The lane of another kind of the same thread: labels end in what a lane shows."""
        own = self.timeline.lanes[lane]

        thread = own.label.rpartition(": ")[0]
        for at, other in enumerate(self.timeline.lanes):
            if (other.kind, other.rank, other.label.rpartition(": ")[0]) == (kind, own.rank, thread):
                return at
        return -1


def _longest(sums: Float64Array) -> list[tuple[int, float, int]]:
    """The names that have any time, the longest first: number, time and count."""
    order = np.argsort(-sums[0], kind="stable")[: np.count_nonzero(sums[0])]
    return [(at - 1, float(sums[0][at]), int(sums[1][at])) for at in order.tolist()]


def _levels(runs: Runs, origin_ns: int, length_ns: int) -> Iterator[tuple[int, Runs]]:
    """The width of the bins and the row in them, from fine to coarse."""
    width_ns = _FINEST_NS
    while width_ns < length_ns and runs.start_ns.size > _FEW:
        coarser = binned(runs, width_ns, origin_ns)
        if coarser.start_ns.size <= _WORTH * runs.start_ns.size:
            yield width_ns, coarser
            runs = coarser
        width_ns *= 2


def _beginning(runs: Runs, start_ns: int) -> int | None:
    """The run that begins then."""
    at = int(np.searchsorted(runs.start_ns, start_ns))
    return at if at < runs.start_ns.size and runs.start_ns[at] == start_ns else None
