"""The data that the report's script draws, small: names once, times in nanoseconds from the window's start."""

from __future__ import annotations

from itertools import chain
from typing import Any

from timesink.untrusted.scrub import scrub
from timesink.views.figures import Item, Lane, Report, StepSeries, TimelineWindow


class _Names:
    """Texts by number, each held once."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self.number.setdefault(scrub(text), len(self.number))


def island(report: Report) -> dict[str, Any]:
    """`windows` by the key of their finding, `series` of step times, and the `names` that both refer to by number."""
    names = _Names()
    windows = {str(position): _window(window, names) for position, window in report.windows.items()}
    return {"names": list(names.number), "windows": windows, "series": [_series(line) for line in report.series]}


def _window(window: TimelineWindow, names: _Names) -> dict[str, Any]:
    """`lanes` hold flat sixes: start, length, row, kind, name, detail."""
    kinds = [item.kind for lane in window.lanes for item in lane.items]
    order = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    return {
        "length": window.end_ns - window.start_ns,
        "kinds": list(order),
        "claimed": [[start - window.start_ns, end - start] for start, end in window.claimed],
        "lanes": [_lane(lane, window.start_ns, order, names) for lane in window.lanes],
    }


def _lane(lane: Lane, origin_ns: int, kinds: dict[str, int], names: _Names) -> dict[str, Any]:
    def six(item: Item) -> tuple[int, ...]:
        return (
            item.start_ns - origin_ns,
            item.end_ns - item.start_ns,
            item.row,
            kinds[item.kind],
            names.of(item.name),
            names.of(item.detail) if item.detail else -1,
        )

    return {
        "label": names.of(lane.label),
        "hidden": lane.hidden,
        "rows": 1 + max((item.row for item in lane.items), default=0),
        "items": list(chain.from_iterable(map(six, lane.items))),
    }


def _series(line: StepSeries) -> dict[str, Any]:
    return {
        "rank": line.rank,
        "number": line.numbers,
        "period": line.period_ns,
        "p50": line.p50_ns,
        "p90": line.p90_ns,
        "p99": line.p99_ns,
        "spikes": [[step, cause.replace("_", " ")] for step, cause in line.spikes],
    }
