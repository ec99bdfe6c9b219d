"""Sections of the report: findings with the rule's own warning, and the tables of kernels, operators and steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from timesink.knowledge.step_parts import part_words
from timesink.model.record import dataclass, replace
from timesink.render.parts import Group, grouped
from timesink.views.figures import Flame, FlameChange, MarkedWindow, StepSeries, Timeline, TimelineWindow
from timesink.views.page import DEVICE, RANK, Field, Report, Sheet, figures, names, sheet_of


@cache
def prose(text: str) -> Markup:
    """Markdown as safe HTML. Links are left as text: a report leads nowhere."""
    reader = (
        MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "autolink", "image", "reference"])
    )
    return Markup(reader.render(text))


def section(doc: str, heading: str) -> str:
    """The part of a rule's page under that heading, without the heading; empty where there is none."""
    parts = f"\n{doc}".split("\n## ")
    for part in parts[1:]:
        title, _, body = part.partition("\n")
        if title.strip().lower() == heading.lower():
            return body.strip()
    return ""


_COLUMNS = (*names(lane="lane", name="what"), *figures(start_ns="from window's start", length_ns="length"))


@dataclass(frozen=True, slots=True, eq=False)
class ShownFinding:
    """A group of findings; `key` names its timeline in the data, `longest` is the timeline's table twin."""

    group: Group
    misleads: str
    key: str | None
    window: TimelineWindow | None
    longest: Sheet | None


def shown_findings(report: Report) -> list[ShownFinding]:
    """Every group of findings, in the order of the report."""
    at = {id(finding): position for position, (_, finding) in enumerate(report.diagnosis.findings)}
    return [_shown(group, at[id(group.first)], report) for group in grouped(report.diagnosis)]


def _shown(group: Group, position: int, report: Report) -> ShownFinding:
    marked = report.windows.get(position)
    return ShownFinding(
        group=group,
        misleads=section(group.card.doc, "When it misleads"),
        key=None if marked is None else str(position),
        window=None if marked is None else marked.window,
        longest=None if marked is None else _longest(marked),
    )


def _longest(marked: MarkedWindow) -> Sheet:
    return Sheet("longest", "Longest in this window", _COLUMNS, marked.longest)


SHOWN_STEPS = 50
_KERNELS = (
    RANK,
    DEVICE,
    Field("name", "kernel", is_name=True, is_kernel=True),
    Field("work", "work"),
    Field("time_ratio", "share", unit="ratio", has_bar=True),
    *figures(total_ns="total", count="launches", p50_ns="p50", p90_ns="p90", max_ns="longest"),
    Field("shape", "how long", is_shape=True),
)
_OPERATORS = (
    RANK,
    Field("name", "operator", is_name=True),
    Field("self_device_ns", "self GPU", unit="ns", has_bar=True),
    *figures(total_device_ns="total GPU", calls="calls", kernels="kernels", self_host_ns="self host"),
)
_STEPS = (RANK, *figures(step="step", period_ns="time"), Field("spike", "stands out, because of"))


def kernel_sheet(report: Report) -> Sheet | None:
    """The costliest kernels; None where there are none."""
    if not report.kernels:
        return None
    rows = tuple(
        (
            *(k.rank, k.device, k.name, k.work or None, k.time_ratio, k.total_ns, k.count),
            *(k.p50_ns, k.p90_ns, k.max_ns, " ".join(map(str, (*k.reach_ns, *k.counts))) if k.counts else None),
        )
        for k in report.kernels
    )
    note = (
        "share: of the kernel durations of the device, summed; kernels that ran at once count in full; "
        "work: as far as the name tells; how long: its launches, from half the median to twice it, or further"
    )
    return _needed_columns(Sheet("kernels", "Kernels", _KERNELS, rows, note + _left(report.kernel_count, len(rows))))


def operator_sheet(report: Report) -> Sheet | None:
    """The operators that cost most GPU time; None where there are none."""
    if not report.operators:
        return None
    note = "self: launched by the operator itself, without the operators inside it"
    note += _left(report.operator_count, len(report.operators))
    return _needed_columns(sheet_of("operators", "Operators", report.operators, _OPERATORS, note))


_PATHS = (
    Field("path", "call path", is_name=True),
    Field("own_ns", "by itself", unit="ns", has_bar=True),
    Field("share", "share", unit="ratio"),
)


def flame_sheet(flame: Flame) -> Sheet:
    """The call paths of a flame graph with most time by themselves."""
    return Sheet(flame.key, flame.title, _PATHS, flame.costliest)


_CHANGES = (
    Field("path", "call path", is_name=True),
    *figures(before_ns="before", after_ns="after"),
    Field("delta_ns", "change", unit="ns", has_bar=True, is_change=True),
)


def change_sheet(change: FlameChange) -> Sheet:
    """The call paths that changed most by themselves."""
    return Sheet(change.key, change.title, _CHANGES, change.largest)


_LANES = (
    RANK,
    Field("label", "lane", is_name=True),
    Field("events", "events", unit="1"),
    Field("busy_ns", "busy", unit="ns", has_bar=True),
)


def lane_sheet(timeline: Timeline) -> Sheet:
    """How many events each lane of the timeline holds, and for how long its outermost ones run."""
    rows = tuple(
        (lane.rank, lane.label, sum(int(row.count.sum()) for row in lane.rows), int(lane.rows[0].busy_ns.sum()))
        for lane in timeline.lanes
        if lane.kind != "ranks"
    )
    return _needed_columns(Sheet("lanes", "Lanes of the timeline", _LANES, rows))


def step_sheet(series: Sequence[StepSeries]) -> Sheet | None:
    """The times behind the step picture: all of them, or the slowest."""
    causes = {(line.rank, step): cause.replace("_", " ") for line in series for step, cause in line.spikes}
    parts = [dict(line.parts) for line in series]
    kinds = list(dict.fromkeys(kind for own in parts for kind in own))
    rows: list[tuple[Any, ...]] = [
        (
            *(line.rank, step, period, causes.get((line.rank, step))),
            *(own[kind][at] if kind in own else 0 for kind in kinds),
        )
        for line, own in zip(series, parts, strict=True)
        for at, (step, period) in enumerate(zip(line.numbers, line.period_ns, strict=True))
    ]
    if not rows:
        return None
    columns = (*_STEPS, *(Field(f"{kind}_ns", part_words(kind), unit="ns") for kind in kinds))
    if len(rows) <= SHOWN_STEPS:
        return _needed_columns(Sheet("steps", "Step times", columns, tuple(rows)))
    slowest = sorted(rows, key=lambda row: (-row[2], row[0], row[1]))[:SHOWN_STEPS]
    note = f"the {SHOWN_STEPS} slowest of {len(rows)} steps"
    return _needed_columns(Sheet("steps", "Step times", columns, tuple(slowest), note))


def _needed_columns(sheet: Sheet) -> Sheet:
    """The sheet without empty columns, and without the rank or the GPU where all rows have the same one."""
    kept = [
        at
        for at, column in enumerate(sheet.columns)
        if len(seen := {row[at] for row in sheet.rows}) > 1 or not (column.key in ("rank", "device") or seen == {None})
    ]
    return replace(
        sheet,
        columns=tuple(sheet.columns[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in sheet.rows),
    )


def _left(count: int, shown: int) -> str:
    return f"; the {shown} costliest of {count}" if count > shown else ""
