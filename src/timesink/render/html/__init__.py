"""The report for a browser: one file that loads nothing, runs nothing but its own script, and shows names as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from timesink import __version__
from timesink.diagnosis.verdicts import Diagnosis
from timesink.model.trace import Trace
from timesink.render import Style
from timesink.render.brief import next_commands
from timesink.render.html.figures import bars, heat_rows, island, packed, packed_flames
from timesink.render.html.sections import (
    change_sheet,
    flame_sheet,
    lane_sheet,
    prose,
    shown_findings,
    step_sheet,
)
from timesink.render.html.shell import Assets, document
from timesink.render.json import named
from timesink.render.parts import clear_text, device_sheet, not_applicable_text, steps_text, undecided_parts
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.untrusted import scrub_sentence, scrub_values
from timesink.views import Page, Report
from timesink.views.figures import Timeline

if TYPE_CHECKING:
    from timesink.views.timeline.flames import Compared
    from timesink.views.verify import WindowRow


__all__ = ["html_report", "render", "render_comparison", "render_diagnosis", "render_page", "render_prose"]
__all__ += ["timeline_page"]


def html_report(trace: Trace, diagnosis: Diagnosis, *, full: bool = False) -> str:
    """The page of `timesink report`: the diagnosis of this trace with its timeline, steps, kernels and operators.

    `full` keeps every event in the timeline, however large the page gets; else a page has 2 MB at most.
    """
    from timesink.views.report import report_of  # which needs every measure; the other pages here need none

    return render(report_of(trace, diagnosis, full=full))


def render(report: Report, *, live: bool = False) -> str:
    """A report as one HTML document; a live one asks the server that it comes from for the boxes of its timeline."""
    diagnosis = report.diagnosis
    return document(
        "report.html.j2",
        Assets(any(len(line.numbers) > 1 for line in report.series), True, report.timeline is not None, live),
        {
            "title": f"timesink: {diagnosis.bottleneck.value}",
            "version": __version__,
            "diagnosis": diagnosis,
            "steps_text": steps_text(diagnosis.steps),
            "bars": bars(report.budgets),
            "heat": heat_rows(report.budgets),
            "devices": device_sheet(diagnosis.devices) if diagnosis.devices else None,
            "findings": shown_findings(report),
            "type_next": [line for line in next_commands(diagnosis) if not line.startswith("timesink report ")],
            "timeline": report.timeline,
            "capture": Markup(packed(report.timeline)) if report.timeline else None,
            "flames": [(flame, flame_sheet(flame)) for flame in report.flames],
            "areas": (report.areas, flame_sheet(report.areas)) if report.areas else None,
            "packed_flames": Markup(packed_flames([*report.flames, *([report.areas] if report.areas else [])])),
            "lanes": lane_sheet(report.timeline) if report.timeline else None,
            "series": report.series,
            "step_sheet": step_sheet(report.series),
            "kernels": report.kernels,
            "operators": report.operators,
            "appendices": report.sections,
            "undecided": undecided_parts(diagnosis),
            "clear": clear_text(diagnosis),
            "not_applicable": not_applicable_text(diagnosis),
        },
        island(report),
    )


def timeline_page(timeline: Timeline, *, live: bool = False, awaits: bool = False) -> str:
    """A timeline alone, as one HTML document; `live` as of `render`. One that `awaits` asks its server for the link of
    the report with findings, and shows it when there is one."""
    shown = {"timeline": timeline, "capture": Markup(packed(timeline)), "lanes": lane_sheet(timeline)}
    return document(
        "timeline.html.j2",
        Assets(plot=False, script=True, timeline=True, live=live),
        {"title": "timesink: timeline", "awaits": awaits, **shown},
        {"windows": {}, "series": []},
    )


def render_diagnosis(diagnosis: Diagnosis, _style: Style) -> str:
    """A diagnosis alone, where its trace is not at hand: no timelines, no step series, no kernels."""
    return render(Report(diagnosis))


def render_page(page: Page, _style: Style) -> str:
    """A page of tables, sortable."""
    return document("page.html.j2", Assets(plot=False, script=True), {"title": page.title, "page": page}, None)


def render_comparison(page: Page, figures: Compared) -> str:
    """Two captures: their steps side by side, what changed by call path, a usual step of each, and the tables."""
    return document(
        "compare.html.j2",
        Assets(plot=False, script=True, timeline=True),
        {
            "title": page.title,
            "page": page,
            "bars": bars(figures.budgets, to_scale=True),
            "changes": [(change, change_sheet(change)) for change in figures.changes],
            "packed_flames": Markup(packed_flames(figures.changes)),
            "steps": [(step, Markup(packed(step.timeline)), lane_sheet(step.timeline)) for step in figures.steps],
        },
        {"windows": {}, "series": []},
    )


def render_prose(title: str, markdown: str) -> str:
    """A page of our own Markdown, such as that of a rule."""
    return document("prose.html.j2", Assets(plot=False, script=False), {"title": title, "body": prose(markdown)}, None)


def render_index(title: str, rows: Sequence[WindowRow]) -> str:
    """The index as one HTML document, in the order of the rows."""
    good, bad = [], []
    for row in rows:
        if row.error:
            bad.append(scrub_values({"name": row.name, "error": row.error}))
            continue
        step_ms, idle = row.figures.get("step_p50_ms"), row.figures.get("idle_ratio")
        cells: dict[str, object] = scrub_values(
            {
                **named(row, "name recorded statement left"),
                "step": "" if step_ms is None else time_text(step_ms * NS_PER_MS),
                "idle": "" if idle is None else share_text(idle),
                "bottleneck": row.bottleneck.replace("_", " "),
                "saves": list(row.saves),
            }
        )
        good.append({**cells, "report": row.report})
    values = {"title": scrub_sentence(title), "rows": good, "bad": bad}
    return document("windows.html.j2", Assets(plot=False, script=False), values, None)
