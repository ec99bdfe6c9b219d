"""Memory over time as bands of classes on top of one another, and the segments of a snapshot as a map."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from timesink.render.svg.pen import LINE, QUIET, colour, keys, line, picture, points, rect, series, text, told
from timesink.units import bytes_text, time_text
from timesink.views.figures import FREE, MapChart, MemoryChart

_WIDTH, _HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 220, 36, 34
_ROW: Final = 16  # pixels of a line of the map


def memory_svg(chart: MemoryChart) -> str:
    """The bands as SVG."""
    highest = max((sum(at) for at in zip(*(band.bytes for band in chart.bands), strict=True)), default=0) or 1
    places = _places(chart)
    below = [0] * len(places)
    shapes, names = [], []
    for band in chart.bands:
        above = [low + size for low, size in zip(below, band.bytes, strict=True)]
        edge = [(x, _y(value, highest)) for x, value in zip(places, above, strict=True)]
        edge += [(x, _y(value, highest)) for x, value in zip(reversed(places), reversed(below), strict=True)]
        words = f"{band.name}: {bytes_text(max(band.bytes))}"
        fill = series(band.number)
        tip = told(f"{band.name}: at most {bytes_text(max(band.bytes))}")
        shapes.append(f'<polygon fill="{fill}" points="{points(edge)}">{tip}</polygon>')
        names.append((words, fill))
        below = above
    legend = keys(_WIDTH - _RIGHT + 12, _TOP, names[::-1])
    return picture(chart.title, (_WIDTH, _HEIGHT), [*_axes(chart, highest), *shapes, *legend])


def _places(chart: MemoryChart) -> list[float]:
    count = len(chart.bands[0].bytes) if chart.bands else 0
    return [_LEFT + (_WIDTH - _LEFT - _RIGHT) * at / max(count - 1, 1) for at in range(count)]


def _axes(chart: MemoryChart, highest: int) -> Iterator[str]:
    right, low = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for part in range(5):
        y = _y(highest * part / 4, highest)
        yield line((_LEFT, y), (right, y))
        yield text(_LEFT - 6, y + 4, bytes_text(highest * part / 4), anchor="end")
    for part in range(5):
        when = chart.time_ns[round((len(chart.time_ns) - 1) * part / 4)]
        yield text(_LEFT + (right - _LEFT) * part / 4, low + 14, time_text(when), anchor="middle")
    words = "allocator events, in order, with the time since the first"
    yield text((_LEFT + right) / 2, _HEIGHT - 6, words, anchor="middle", fill=QUIET)


def _y(value: float, highest: int) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / highest


def map_svg(chart: MapChart) -> str:
    """The segments one after the other, line by line, each cell in the colour of what holds most of it."""
    height = _TOP + _ROW * len(chart.lines) + 30
    wide = (_WIDTH - _LEFT - _RIGHT) / chart.cells
    marks = []
    for number, cells in enumerate(chart.lines):
        top, at = _TOP + number * _ROW, 0
        for (segment, code), some in groupby(cells, key=lambda cell: cell):
            count = len(list(some))
            tip = f"{chart.names[code]}, about {bytes_text(count * chart.cell_bytes)}: {chart.segments[segment]}"
            box = (_LEFT + at * wide, top, count * wide, _ROW - 3)
            edge = f' stroke="{LINE}" stroke-width="0.6"' if code == FREE else ""
            marks.append(rect(box, _fill(code), tip, edge))
            at += count
        starts = [at for at in range(1, len(cells)) if cells[at][0] != cells[at - 1][0]]
        marks += [
            line((_LEFT + at * wide, top - 1), (_LEFT + at * wide, top + _ROW - 2), colour("ink")) for at in starts
        ]
        marks.append(text(_LEFT - 6, top + 10, bytes_text(number * chart.cells * chart.cell_bytes), anchor="end"))
    shown = [
        (f"{chart.names[code]}: {bytes_text(size)}", _fill(code))
        for code, size in sorted(chart.bytes_of.items(), key=lambda item: -item[1])
    ]
    marks += keys(_WIDTH - _RIGHT + 12, _TOP, shown)
    marks.append(text(_LEFT, height - 8, chart.note, fill=QUIET))
    return picture(chart.title, (_WIDTH, max(height, _TOP + 18 * len(shown) + 20)), marks)


def _fill(code: int) -> str:
    return colour("card") if code == FREE else series(code)
