"""A heat map: a row of cells each, the darker the longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from timesink.render.svg.pen import LINE, QUIET, colour, picture, rect, text
from timesink.units import time_text
from timesink.views.figures import HeatChart

_WIDTH: Final = 860
_LEFT: Final = 90
_TOP: Final = 50
_BOTTOM: Final = 40
_ROWS: Final = (8, 22)  # pixels of a row: enough for a name where there are few
_FAINTEST: Final = 0.08  # of the darkest: the least that is more than nothing


def heat_svg(chart: HeatChart) -> str:
    """The chart as SVG."""
    height = min(max(400 // max(len(chart.rows), 1), _ROWS[0]), _ROWS[1])
    whole = _TOP + height * len(chart.rows) + _BOTTOM
    most = max((value for row in chart.values_ns for value in row if value is not None), default=0.0)
    marks = [
        text(_LEFT, 36, f"blank: none; darkest: {time_text(most)}; grey: not known", fill=QUIET),
        *_cells(chart, height, most),
        text(8, 36, chart.row_title),
        text(_LEFT, whole - 8, chart.column_title),
    ]
    return picture(chart.title, (_WIDTH, whole), marks)


def _cells(chart: HeatChart, height: int, most: float) -> Iterator[str]:
    wide = (_WIDTH - _LEFT - 10) / max(len(chart.columns), 1)
    named = max(round(12 / height), 1)  # a name needs twelve pixels
    for at, (name, row) in enumerate(zip(chart.rows, chart.values_ns, strict=True)):
        top = _TOP + at * height
        if at % named == 0:
            yield text(8, top + height / 2 + 4, name)
        for place, value in enumerate(row):
            known = "not known" if value is None else time_text(value)
            tip = f"{chart.row_title} {name}, {chart.column_title} {chart.columns[place]}: {known}"
            fill, shade = (LINE, 1.0) if value is None else (colour("accent"), value / most if most else 0.0)
            dark = _FAINTEST + (1 - _FAINTEST) * shade if shade else 0.0
            box = (_LEFT + place * wide, top, max(wide - 0.5, 0.5), height - 0.5)
            yield rect(box, fill, tip, f' fill-opacity="{dark:.3f}"')
    named = max(round(40 / wide), 1)
    for place in range(0, len(chart.columns), named):
        yield text(_LEFT + place * wide, _TOP + height * len(chart.rows) + 14, chart.columns[place])
