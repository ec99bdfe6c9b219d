"""Sections of the report: findings with the rule's own warning, and the tables of kernels, operators and steps."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from timesink.knowledge.step_parts import part_words
from timesink.render.brief import saved_share, short_advice, short_saving
from timesink.render.parts import grouped, short_place
from timesink.views import Field, Report, Sheet, declare, listed, sheet_of, without_columns
from timesink.views.figures import Flame, FlameChange, StepSeries, Timeline


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


def shown_findings(report: Report) -> list[Mapping[str, Any]]:
    """Every group of findings, in the order of the report: its line of the list as the text has it, the rule's own
    warning, the `key` of its timeline in the data, the window, and the longest events in it as the timeline's table
    twin; None where it has no window."""
    groups, several = grouped(report.diagnosis), len(report.diagnosis.devices) > 1
    which = groups[0].first.which if groups else ""
    series = {line.rank: line for line in reversed(report.series)}
    at = {id(finding): position for position, (_, finding) in enumerate(report.diagnosis.findings)}
    shown: list[Mapping[str, Any]] = []
    for group in groups:
        first, misleads = group.first, section(group.card.doc, "When it misleads")
        line = {"saves": short_saving(first), "share": saved_share(first, which), "do": short_advice(first.advice)}
        line |= {"where": short_place(first.where, several), "of": f"of {which} {first.period}".replace("  ", " ")}
        known: dict[str, Any] = {
            "group": group,
            "misleads": misleads,
            "key": None,
            "window": None,
            "longest": None,
            **line,
        }
        if marked := report.windows.get(at[id(first)]):
            longest = listed("sections.longest", marked.longest)
            number, steps = marked.window.step, series.get(marked.window.rank)
            step = None if number is None else f"step {number}" if steps is None else steps.name_of(number)
            known |= {"key": str(at[id(first)]), "window": marked.window, "longest": longest, "step": step}
        shown.append(known)
    return shown


SHOWN_STEPS = 50
_DEVICE = ("rank", "device")  # columns that say nothing where all rows have the same


def flame_sheet(flame: Flame) -> Sheet:
    """The call paths of a flame graph with most time by themselves."""
    columns = "path: call path [name], own_ns: by itself [bar], share [ratio]"
    return sheet_of(flame.key, flame.title, flame.costliest, columns)


def change_sheet(change: FlameChange) -> Sheet:
    """The call paths that changed most by themselves."""
    columns = "path: call path [name], before_ns: before, after_ns: after, delta_ns: change [bar change]"
    return sheet_of(change.key, change.title, change.largest, columns)


def lane_sheet(timeline: Timeline) -> Sheet:
    """How many events each lane of the timeline holds, and for how long its outermost ones run."""
    rows = (
        (lane.rank, lane.label, sum(int(row.count.sum()) for row in lane.rows), int(lane.rows[0].busy_ns.sum()))
        for lane in timeline.lanes
        if lane.kind != "ranks"
    )
    return without_columns(listed("sections.lanes", rows), _DEVICE)


def step_sheet(series: Sequence[StepSeries]) -> Sheet | None:
    """The times behind the step picture: all of them, or the slowest."""
    kinds = list(dict.fromkeys(kind for line in series for kind, _ in line.parts))
    rows: list[tuple[Any, ...]] = []
    for line in series:
        causes, own = dict(line.spikes), dict(line.parts)
        for at, (step, period) in enumerate(zip(line.numbers, line.period_ns, strict=True)):
            cause = causes[step].replace("_", " ") if step in causes else None
            rows.append(
                (line.rank, line.name_of(step), period, cause, *(own[kind][at] if kind in own else 0 for kind in kinds))
            )
    if not rows:
        return None
    spike, parts = (
        Field("spike", "stands out, because of"),
        (Field(f"{kind}_ns", part_words(kind), "ns") for kind in kinds),
    )
    note = ""
    if len(rows) > SHOWN_STEPS:
        note = f"the {SHOWN_STEPS} slowest of {len(rows)} steps"
        rows = sorted(rows, key=lambda row: (-row[2], row[0], row[1]))[:SHOWN_STEPS]
    columns = declare("rank, step [name], period_ns: time", spike, *parts)
    return without_columns(sheet_of("steps", "Step times", rows, columns, note), _DEVICE)
