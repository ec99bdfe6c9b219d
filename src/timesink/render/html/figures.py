"""Figures of the report: bars of steps and the heat-map of ranks for templates, timelines and series for its script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from timesink.diagnosis.verdicts import StepBudget
from timesink.knowledge.step_parts import part_words
from timesink.untrusted.scrub import scrub
from timesink.views.figures import Item, Lane, Report, StepSeries, TimelineWindow
from timesink.views.page import Sheet

WIDTH = 1000
SHOWN_BARS = 8
SHADES = 9


@dataclass(frozen=True, slots=True)
class Box:
    """A piece of a bar: where it lies from 0 to `WIDTH`, what it is, its time per step and share of it."""

    x: float
    width: float
    kind: str
    title: str
    time_ns: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One device's mean step."""

    rank: int
    device: int
    steps: int
    period_ns: float
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A share with its shade, 0 (none) to `SHADES` (the largest of its column)."""

    ratio: float
    shade: int


@dataclass(frozen=True, slots=True)
class Heat:
    """One row per device, one column per part, shaded within each column."""

    titles: tuple[str, ...]
    rows: tuple[tuple[int, int, float, tuple[HeatCell, ...]], ...]


def bars(budgets: Sequence[StepBudget]) -> tuple[Bar, ...]:
    """The first devices' bars, each filling the width."""
    return tuple(
        Bar(budget.rank, budget.device, budget.steps, budget.period_ns, tuple(_boxes(budget)))
        for budget in budgets[:SHOWN_BARS]
        if budget.period_ns > 0
    )


def _boxes(budget: StepBudget) -> list[Box]:
    boxes: list[Box] = []
    x = 0.0
    for part in budget.parts:
        ratio = part.time_ns / budget.period_ns
        boxes.append(Box(round(x, 2), round(WIDTH * ratio, 2), part.kind, part_words(part.kind), part.time_ns, ratio))
        x += WIDTH * ratio
    return boxes


def heat_rows(budgets: Sequence[StepBudget]) -> Heat | None:
    """The heat-map, where there are several devices to tell apart."""
    if len(budgets) < 2:
        return None
    kinds = list(dict.fromkeys(part.kind for budget in budgets for part in budget.parts))
    ratios = [
        {part.kind: part.time_ns / budget.period_ns for part in budget.parts} if budget.period_ns else {}
        for budget in budgets
    ]
    largest = {kind: max(row.get(kind, 0.0) for row in ratios) for kind in kinds}
    rows = tuple(
        (
            budget.rank,
            budget.device,
            budget.period_ns,
            tuple(_cell(row.get(kind, 0.0), largest[kind]) for kind in kinds),
        )
        for budget, row in zip(budgets, ratios, strict=True)
    )
    return Heat(tuple(part_words(kind) for kind in kinds), rows)


def scales(sheet: Sheet) -> tuple[float, ...]:
    """Per column the size that fills a bar, the largest; 0 where the column has no bars."""
    return tuple(
        max((abs(row[at]) for row in sheet.rows if isinstance(row[at], int | float)), default=0.0)  # type: ignore[arg-type]
        if column.has_bar
        else 0.0
        for at, column in enumerate(sheet.columns)
    )


def _cell(ratio: float, largest: float) -> HeatCell:
    return HeatCell(ratio, round(SHADES * ratio / largest) if largest else 0)


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
