"""A heat map as one SVG: a row of cells each, the darker the longer. Plain marks, no script, no outside file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from timesink.units import time_text
from timesink.untrusted.scrub import scrub
from timesink.views.figures import HeatChart

_WIDTH: Final = 860
_LEFT: Final = 90
_TOP: Final = 50
_BOTTOM: Final = 40
_ROWS: Final = (8, 22)  # pixels of a row: enough for a name where there are few
_LEAST_BLUE: Final = (240, 245, 250)
_MOST_BLUE: Final = (26, 95, 168)


def heat_svg(chart: HeatChart) -> str:
    """The chart as SVG text; its names are untrusted."""
    height = min(max(400 // max(len(chart.rows), 1), _ROWS[0]), _ROWS[1])
    whole = _TOP + height * len(chart.rows) + _BOTTOM
    known = [value for row in chart.values_ns for value in row if value is not None]
    most = max(known, default=0.0)
    legend = f"white: none; darkest: {time_text(most)}; grey: not known"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {whole}" role="img" font-family="sans-serif" '
        f'font-size="11"><title>{escape(scrub(chart.title))}</title>',
        f'<rect width="{_WIDTH}" height="{whole}" fill="#ffffff"/>',
        _text(_LEFT, 18, chart.title, size=13),
        _text(_LEFT, 36, legend),
        *_cells(chart, height, most),
        _text(8, 36, chart.row_title),
        _text(_LEFT, whole - 8, chart.column_title),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _cells(chart: HeatChart, height: int, most: float) -> Iterator[str]:
    wide = (_WIDTH - _LEFT - 10) / max(len(chart.columns), 1)
    named = max(round(12 / height), 1)  # a name needs twelve pixels
    for at, (name, row) in enumerate(zip(chart.rows, chart.values_ns, strict=True)):
        top = _TOP + at * height
        if at % named == 0:
            yield _text(8, top + height / 2 + 4, name)
        for place, value in enumerate(row):
            told = "not known" if value is None else time_text(value)
            tip = escape(scrub(f"{chart.row_title} {name}, {chart.column_title} {chart.columns[place]}: {told}"))
            yield (
                f'<rect x="{_LEFT + place * wide:.1f}" y="{top}" width="{max(wide - 0.5, 0.5):.1f}" '
                f'height="{height - 0.5}" fill="{_shade(value, most)}"><title>{tip}</title></rect>'
            )
    named = max(round(40 / wide), 1)
    for place in range(0, len(chart.columns), named):
        yield _text(_LEFT + place * wide, _TOP + height * len(chart.rows) + 14, chart.columns[place])


def _shade(value: float | None, most: float) -> str:
    if value is None:
        return "#d9d9d9"
    share = value / most if most else 0.0
    red, green, blue = (round(low + (high - low) * share) for low, high in zip(_LEAST_BLUE, _MOST_BLUE, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}" if share else "#ffffff"


def _text(x: float, y: float, words: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="#333333">{escape(scrub(words))}</text>'
