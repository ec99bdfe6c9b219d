"""Figures of the report: bars of steps and the heat-map of ranks for templates, timelines and series for its script."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from timesink.diagnosis.verdicts import StepBudget
from timesink.knowledge.step_parts import part_words
from timesink.model.arrays import Int64Array
from timesink.model.record import dataclass
from timesink.untrusted.scrub import scrub
from timesink.views.figures import Flame, FlameChange, Runs, StepSeries, Timeline
from timesink.views.page import Report, Sheet

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


def bars(budgets: Sequence[StepBudget], *, to_scale: bool = False) -> tuple[Bar, ...]:
    """The first devices' bars, each filling the width, or to the scale of the longest."""
    longest_ns = max((budget.period_ns for budget in budgets), default=0.0)
    return tuple(
        Bar(
            *(budget.rank, budget.device, budget.steps, budget.period_ns),
            tuple(_boxes(budget, WIDTH * budget.period_ns / longest_ns if to_scale else WIDTH)),
        )
        for budget in budgets[:SHOWN_BARS]
        if budget.period_ns > 0
    )


def _boxes(budget: StepBudget, whole: float) -> list[Box]:
    boxes: list[Box] = []
    x = 0.0
    for part in budget.parts:
        ratio = part.time_ns / budget.period_ns
        boxes.append(Box(round(x, 2), round(whole * ratio, 2), part.kind, part_words(part.kind), part.time_ns, ratio))
        x += whole * ratio
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


@dataclass(frozen=True, slots=True)
class Shape:
    """A histogram: the outline of its bars in a picture of 100 by 24, and what it reaches from and to, in ns."""

    path: str
    low_ns: float
    high_ns: float


def shape(cell: str) -> Shape:
    """The histogram of a cell: shortest and longest in ns, then counts, with spaces between."""
    low, high, *counts = map(float, cell.split())
    wide, most = 100 / len(counts), max(counts)
    bars = (f"M{wide * at:.0f} 24v-{max(24 * count / most, 1):.0f}h3V24z" for at, count in enumerate(counts) if count)
    return Shape("".join(bars), low, high)


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


def island(report: Report) -> dict[str, Any]:
    """What the page's script reads beside the packed timeline: `windows` in it by the key of their finding, and the
    `series` of steps."""
    origin_ns = report.timeline.start_ns if report.timeline else 0
    windows = {
        str(position): {
            "from": shown.window.start_ns - origin_ns,
            "to": shown.window.end_ns - origin_ns,
            "rank": shown.window.rank,
            "device": shown.window.device,
            "lane": shown.lane,
            "row": shown.row,
        }
        for position, shown in report.windows.items()
    }
    return {"windows": windows, "series": [_series(line) for line in report.series]}


def packed(timeline: Timeline) -> str:
    """The timeline as JSON, deflated, in base64: an event takes 3 to 6 bytes.

    Columns of times hold differences: `gap` from the end of the run before (of the lane's first from the timeline's
    start), `length`, `idle` of it, and `back` from the start to what caused it. `count` is 1 less than the events.
    Each row is a text of JSON in this JSON: a page reads those that it draws.
    """
    lanes = [
        {
            "kind": lane.kind,
            "label": scrub(lane.label),
            "rank": lane.rank,
            "device": lane.device,
            "rows": [_json(_row(runs, timeline.start_ns)) for runs in lane.rows],
        }
        for lane in timeline.lanes
    ]
    used = _used(timeline)
    whole = {
        "offset": timeline.start_ns - timeline.origin_ns,
        "length": timeline.end_ns - timeline.start_ns,
        "texts": [scrub(text) if at in used else "" for at, text in enumerate(timeline.texts)],
        "short": {str(at): scrub(text) for at, text in timeline.short.items() if at in used},
        "mixes": [[number for pair in mix for number in pair] for mix in timeline.mixes],
        "kinds": [scrub(kind) for kind in timeline.kinds],
        "lanes": lanes,
        "merged": timeline.merged_below_ns,
    }
    return _deflated(whole)


def _used(timeline: Timeline) -> frozenset[int]:
    """The places of the texts that a box shows: what is joined has no details."""
    seen = [np.array([name for mix in timeline.mixes for name, _ in mix], np.int64)]
    seen += [np.unique(part) for lane in timeline.lanes for runs in lane.rows for part in (runs.name, runs.detail)]
    return frozenset(np.unique(np.concatenate(seen)).tolist())


def packed_flames(flames: Iterable[Flame | FlameChange]) -> str:
    """Flame graphs by their key, packed as a timeline is: names, parents (-1 for none) and total times of nodes."""
    return _deflated({flame.key: _tree(flame) for flame in flames})


def _tree(flame: Flame | FlameChange) -> dict[str, Any]:
    tree = flame.tree
    nodes: dict[str, Any] = {"names": [scrub(name) for name in tree.names], "parent": tree.parent.tolist()}
    if isinstance(flame, FlameChange):
        return nodes | {
            "before": flame.tree.before_ns.round(1).tolist(),
            "after": flame.tree.after_ns.round(1).tolist(),
        }
    kinds = {scrub(name): kind for name, kind in flame.kinds.items()}
    return nodes | {"total": flame.tree.total_ns.tolist(), "kinds": kinds}


def _deflated(plain: Mapping[str, Any]) -> str:
    """JSON, deflated, in base64: letters and digits alone."""
    return base64.b64encode(zlib.compress(_json(plain).encode("ascii"), 9)).decode("ascii")


def _json(plain: Mapping[str, Any]) -> str:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _row(runs: Runs, origin_ns: int) -> dict[str, int | list[int]]:
    """`n` runs; columns of one number throughout hold it once."""
    before = np.concatenate(([origin_ns], runs.end_ns[:-1]))
    columns = {
        "gap": runs.start_ns - before,
        "length": runs.end_ns - runs.start_ns,
        "idle": runs.end_ns - runs.start_ns - runs.busy_ns,
        "count": runs.count - 1,
        "kind": runs.kind,
        "name": runs.name,
        "detail": runs.detail,
        "lane": runs.from_lane,
        "back": np.where(runs.from_lane >= 0, runs.start_ns - runs.from_ns, 0),
    }
    return {"n": runs.start_ns.size} | {key: _column(column) for key, column in columns.items()}


def _column(values: Int64Array) -> list[int]:
    kept = values[:1] if (values == values[:1]).all() else values
    return list(map(int, kept))


def _series(line: StepSeries) -> dict[str, Any]:
    return {
        "rank": line.rank,
        "number": line.numbers,
        "period": line.period_ns,
        "p50": line.p50_ns,
        "p90": line.p90_ns,
        "p99": line.p99_ns,
        "spikes": [[step, cause.replace("_", " ")] for step, cause in line.spikes],
        "parts": [[kind, part_words(kind), times] for kind, times in line.parts],
    }
