"""The index of a watched folder: one row per capture, with a link to its report."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.render.html.shell import Assets, document
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.untrusted.scrub import scrub_sentence, scrub_values
from timesink.views.watched import Watched


def render_index(title: str, rows: Sequence[Watched]) -> str:
    """The index as one HTML document, in the order of the rows."""
    good = [_cells(row) for row in rows if not row.error]
    bad = [scrub_values({"name": row.name, "error": row.error}) for row in rows if row.error]
    values = {"title": scrub_sentence(title), "rows": good, "bad": bad}
    return document("watched.html.j2", Assets(plot=False, script=False), values, None)


def _cells(row: Watched) -> dict[str, object]:
    step_ms, idle = row.figures.get("step_p50_ms"), row.figures.get("idle_ratio")
    cells: dict[str, object] = scrub_values(
        {
            "name": row.name,
            "recorded": row.recorded,
            "step": "" if step_ms is None else time_text(step_ms * NS_PER_MS),
            "idle": "" if idle is None else share_text(idle),
            "bottleneck": row.bottleneck.replace("_", " "),
            "statement": row.statement,
            "saves": list(row.saves),
            "left": row.left,
        }
    )
    return {**cells, "report": row.report}
