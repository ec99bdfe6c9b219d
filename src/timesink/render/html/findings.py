"""Findings as the report shows them: grouped as in every report, with the rule's own warning and a timeline.

Our own Markdown (the pages of rules) as HTML: paragraphs, lists, code; raw HTML in it stays text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from timesink.render.parts import Group, grouped
from timesink.views.figures import Report, TimelineWindow
from timesink.views.page import Column, Sheet


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


LONGEST_ITEMS = 20
_COLUMNS = (
    Column("lane", "lane", is_name=True),
    Column("name", "what", is_name=True),
    Column("start_ns", "from window's start", unit="ns"),
    Column("length_ns", "length", unit="ns"),
)


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
    window = report.windows.get(position)
    return ShownFinding(
        group=group,
        misleads=section(group.card.doc, "When it misleads"),
        key=None if window is None else str(position),
        window=window,
        longest=None if window is None else _longest(window),
    )


def _longest(window: TimelineWindow) -> Sheet:
    rows = [
        (lane.label, item.name, max(item.start_ns, window.start_ns) - window.start_ns, item.end_ns - item.start_ns)
        for lane in window.lanes
        for item in lane.items
    ]
    kept = sorted(rows, key=lambda row: (-row[3], row[2], row[0], row[1]))[:LONGEST_ITEMS]
    return Sheet("longest", "Longest in this window", _COLUMNS, tuple(kept))
