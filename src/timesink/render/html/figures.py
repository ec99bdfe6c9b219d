"""Figures of the report: bars of steps and the heat-map of ranks for templates, timelines and series for its script."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import StepBudget
from timesink.knowledge.kernel_names import short_names
from timesink.knowledge.step_parts import part_words
from timesink.untrusted import scrub
from timesink.views import Report, Sheet
from timesink.views.figures import Flame, FlameChange, Runs, StepSeries, Timeline

WIDTH = 1000
SHOWN_BARS = 8
SHADES = 9
_LEVEL = 6  # of zlib: the hardest search takes ten times as long and wins 7 %


def bars(budgets: Sequence[StepBudget], *, to_scale: bool = False) -> list[Mapping[str, Any]]:
    """The mean step of the first devices as a bar each, which fills `WIDTH` or is to the scale of the longest; of each
    of its boxes where it lies, what it is, its time per step and share of it."""
    longest_ns = max((budget.period_ns for budget in budgets), default=0.0)
    shown: list[Mapping[str, Any]] = []
    for budget in budgets[:SHOWN_BARS]:
        if budget.period_ns <= 0:
            continue
        whole, x = WIDTH * budget.period_ns / longest_ns if to_scale else WIDTH, 0.0
        boxes: list[Mapping[str, Any]] = []
        for part in budget.parts:
            ratio = part.time_ns / budget.period_ns
            place = {"x": round(x, 2), "width": round(whole * ratio, 2), "time_ns": part.time_ns, "ratio": ratio}
            boxes.append({**place, "kind": part.kind, "title": part_words(part.kind)})
            x += whole * ratio
        known = {"rank": budget.rank, "device": budget.device, "steps": budget.steps, "period_ns": budget.period_ns}
        shown.append({**known, "boxes": boxes})
    return shown


def heat_rows(budgets: Sequence[StepBudget]) -> Mapping[str, Any] | None:
    """The heat-map, where there are several devices to tell apart: one row per device, one column per part, each share
    with its shade, 0 (none) to `SHADES` (the largest of its column)."""
    if len(budgets) < 2:
        return None
    kinds = list(dict.fromkeys(part.kind for budget in budgets for part in budget.parts))
    ratios = [
        {part.kind: part.time_ns / budget.period_ns for part in budget.parts if budget.period_ns} for budget in budgets
    ]
    largest = {kind: max(row.get(kind, 0.0) for row in ratios) for kind in kinds}
    rows = []
    for budget, row in zip(budgets, ratios, strict=True):
        shares = ((row.get(kind, 0.0), largest[kind]) for kind in kinds)
        cells = [{"ratio": ratio, "shade": round(SHADES * ratio / most) if most else 0} for ratio, most in shares]
        rows.append((budget.rank, budget.device, budget.period_ns, cells))
    return {"titles": [part_words(kind) for kind in kinds], "rows": rows}


def shape(cell: str) -> Mapping[str, Any]:
    """The histogram of a cell, shortest and longest in ns, then counts, with spaces between: the outline of its bars in
    a picture of 100 by 24, and what it reaches from and to."""
    low, high, *counts = map(float, cell.split())
    wide, most = 100 / len(counts), max(counts)
    bars = (f"M{wide * at:.0f} 24v-{max(24 * count / most, 1):.0f}h3V24z" for at, count in enumerate(counts) if count)
    return {"path": "".join(bars), "low_ns": low, "high_ns": high}


def scales(sheet: Sheet) -> tuple[float, ...]:
    """Per column the size that fills a bar, the largest; 0 where the column has no bars."""
    return tuple(
        max((abs(row[at]) for row in sheet.rows if isinstance(row[at], int | float)), default=0.0)  # type: ignore[arg-type]
        if column.has_bar
        else 0.0
        for at, column in enumerate(sheet.columns)
    )


def short_kernels(sheet: Sheet) -> Mapping[str, str]:
    """The short names of the kernels of a table, each of one kernel of it."""
    columns = [at for at, column in enumerate(sheet.columns) if column.is_kernel]
    return short_names(name for row in sheet.rows for at in columns if isinstance(name := row[at], str))


def island(report: Report) -> dict[str, Any]:
    """What the page's script reads beside the packed timeline: `windows` in it by the key of their finding, and the
    `series` of steps."""
    origin_ns, windows = report.timeline.start_ns if report.timeline else 0, {}
    for position, shown in report.windows.items():
        window = shown.window
        times = {"from": window.start_ns - origin_ns, "to": window.end_ns - origin_ns}
        place = {"rank": window.rank, "device": window.device, "lane": shown.lane, "row": shown.row}
        windows[str(position)] = times | place
    return {"windows": windows, "series": [_series(line) for line in report.series]}


def packed(timeline: Timeline) -> str:
    """The timeline as JSON, deflated, in base64: an event takes 3 to 6 bytes.

    Columns of times hold differences: `gap` from the end of the run before (of the lane's first from the timeline's
    start), `length`, `idle` of it, and `back` from the start to what caused it. `count` is 1 less than the events.
    Each row is a text of JSON in this JSON: a page reads those that it draws.
    """
    seen = [np.array([name for mix in timeline.mixes for name, _ in mix], np.int64)]
    seen += [np.unique(part) for lane in timeline.lanes for runs in lane.rows for part in (runs.name, runs.detail)]
    used = frozenset(np.unique(np.concatenate(seen)).tolist())  # texts that a box shows: what is joined has no details
    lanes = []
    for lane in timeline.lanes:
        rows = [_row(runs, timeline.start_ns) for runs in lane.rows]
        of = {"kind": lane.kind, "label": scrub(lane.label), "rank": lane.rank, "device": lane.device}
        lanes.append({**of, "rows": rows})
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


def packed_flames(flames: Iterable[Flame | FlameChange]) -> str:
    """Flame graphs by their key, packed as a timeline is: names, parents (-1 for none) and total times of nodes."""
    return _deflated({flame.key: _tree(flame) for flame in flames})


def _tree(flame: Flame | FlameChange) -> dict[str, Any]:
    tree = flame.tree
    nodes: dict[str, Any] = {"names": [scrub(name) for name in tree.names], "parent": tree.parent.tolist()}
    if isinstance(flame, FlameChange):
        sides = {"before": flame.tree.before_ns, "after": flame.tree.after_ns}
        return nodes | {side: time_ns.round(1).tolist() for side, time_ns in sides.items()}
    kinds = {scrub(name): kind for name, kind in flame.kinds.items()}
    return nodes | {"total": flame.tree.total_ns.tolist(), "kinds": kinds}


def _deflated(plain: Mapping[str, Any]) -> str:
    """JSON, deflated, in base64: letters and digits alone."""
    return base64.b64encode(zlib.compress(_json(plain).encode("ascii"), _LEVEL)).decode("ascii")


def _json(plain: Mapping[str, Any]) -> str:
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _row(runs: Runs, origin_ns: int) -> str:
    """`n` runs, as JSON by Polars, five times as quick as by Python; columns of one number throughout hold it once."""
    length = runs.end_ns - runs.start_ns
    columns = {
        "gap": runs.start_ns - np.concatenate(([origin_ns], runs.end_ns[:-1])),
        "length": length,
        "idle": length - runs.busy_ns,
        "count": runs.count - 1,
        **{key: getattr(runs, key) for key in ("kind", "name", "detail")},
        "lane": runs.from_lane,
        "back": np.where(runs.from_lane >= 0, runs.start_ns - runs.from_ns, 0),
    }
    alike = ((key, column) for key, column in columns.items() if (column == column[:1]).all())
    written = {key: ",".join(map(str, column[:1])) for key, column in alike}
    differing = pl.DataFrame({key: column for key, column in columns.items() if key not in written})
    if differing.width:
        written |= differing.select(pl.all().cast(pl.String).str.join(",")).row(0, named=True)
    lists = (f'"{key}":[{written[key]}]' for key in columns)
    return f'{{"n":{runs.start_ns.size},{",".join(lists)}}}'


def _series(line: StepSeries) -> dict[str, Any]:
    return {
        "rank": line.rank,
        "number": line.numbers,
        "label": line.labels,
        "period": line.period_ns,
        "p50": line.p50_ns,
        "p90": line.p90_ns,
        "p99": line.p99_ns,
        "spikes": [[step, cause.replace("_", " ")] for step, cause in line.spikes],
        "parts": [[kind, part_words(kind), times] for kind, times in line.parts],
    }
