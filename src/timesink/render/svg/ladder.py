"""The ladder of a plan: the step as a bar, and below it what each change takes off and what it leaves."""

from __future__ import annotations

from typing import Final

from timesink.render.svg.pen import INK, QUIET, colour, line, picture, rect, text
from timesink.units import share_text, time_text
from timesink.views.figures import LadderChart

_WIDTH: Final = 860
_LEFT, _RIGHT, _TOP, _ROW = 140, 190, 34, 30  # pixels: names, figures, the title, a bar with its margin
_BAR: Final = 18


def ladder_svg(chart: LadderChart) -> str:
    """The ladder as SVG."""
    scale = (_WIDTH - _LEFT - _RIGHT) / max(chart.step_ns, 1.0)
    left, gone = colour("k-compute"), colour("k-finding")
    marks = [
        text(8, _TOP + 13, "today"),
        rect((_LEFT, _TOP, chart.step_ns * scale, _BAR), left, f"the step takes {time_text(chart.step_ns)}"),
        text(_WIDTH - _RIGHT + 8, _TOP + 13, time_text(chart.step_ns)),
    ]
    for number, rung in enumerate(chart.rungs, 1):
        top = _TOP + number * _ROW
        ends = f"{time_text(rung.low_ns)} to {time_text(rung.high_ns)}"
        saved_ns = rung.before_ns - rung.after_ns
        taken = f"{rung.name} takes {time_text(saved_ns)} off: {share_text(saved_ns / max(chart.step_ns, 1.0))}"
        marks += [
            text(8, top + 13, rung.name),
            rect((_LEFT, top, rung.after_ns * scale, _BAR), left, f"{time_text(rung.after_ns)} is left ({ends})"),
            rect((_LEFT + rung.after_ns * scale, top, saved_ns * scale, _BAR), gone, taken),
            line((_LEFT + rung.low_ns * scale, top + _BAR / 2), (_LEFT + rung.high_ns * scale, top + _BAR / 2), INK),
            text(_WIDTH - _RIGHT + 8, top + 13, f"{time_text(rung.after_ns)} ({ends})"),
        ]
    low = _TOP + (len(chart.rungs) + 1) * _ROW
    marks.append(text(8, low + 12, chart.note, fill=QUIET))
    return picture(chart.title, (_WIDTH, low + 24), marks)
