"""A roofline: roofs as lines, kernels as points, arrows to where they are later, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from timesink.records import Record
from timesink.render.svg.pen import INK, OVER_LINES, QUIET, Plot, line, picture, points, series, text, told
from timesink.views.figures import Ceiling, RooflineChart

_PLOT = Plot(860, 520, 70, 200, 30, 50)
_DASHES = {"DRAM": "", "L2": "6 3", "L1": "2 3"}
_SIZES = {"DRAM": 5.0, "L2": 4.0, "L1": 3.0}
_NAME_CHARACTERS = 26
_NAME_PIXELS = 14.0  # a line of text, and air
_HEAD = 8.0  # pixels: an arrow's head, as large as the largest point


def roofline_svg(chart: RooflineChart) -> str:
    """The chart as SVG."""
    frame = _Frame.around(chart)
    marks = [*_grid(frame), *_roofs(chart, frame), *_points(chart, frame), *_moves(chart, frame)]
    return picture(chart.title, (_PLOT.width, _PLOT.height), marks)


class _Frame(Record):
    """The first and the last decade shown on each axis, and where a value falls."""

    across: tuple[int, int]
    up: tuple[int, int]

    @classmethod
    def around(cls, chart: RooflineChart) -> _Frame:
        top = [roof.flops for roof in chart.ceilings]
        ridges = [flops / slope.bytes_per_s for slope in chart.slopes for flops in top]
        xs, ys = [point.intensity for point in chart.points] + ridges, [point.flops for point in chart.points] + top
        return cls(_decades(xs), _decades(ys))

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.across[0]) / (self.across[1] - self.across[0])
        return _PLOT.left + share * _PLOT.wide

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.up[0]) / (self.up[1] - self.up[0])
        return _PLOT.low - share * (_PLOT.low - _PLOT.top)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = min(values, default=1.0), max(values, default=10.0)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return first, max(last, first + 1)


def _grid(frame: _Frame) -> Iterator[str]:
    for power in range(frame.across[0], frame.across[1] + 1):
        x = frame.x(10.0**power)
        yield line((x, _PLOT.top), (x, _PLOT.low))
        yield text(x, _PLOT.low + 16, f"{10.0**power:g}", anchor="middle")
    for power in range(frame.up[0], frame.up[1] + 1):
        y = frame.y(10.0**power)
        yield line((_PLOT.left, y), (_PLOT.end, y))
        yield text(_PLOT.left - 6, y + 4, _rate(10.0**power), anchor="end")
    yield text((_PLOT.left + _PLOT.end) / 2, _PLOT.height - 12, "operations per byte", anchor="middle")


def _roofs(chart: RooflineChart, frame: _Frame) -> Iterator[str]:
    top = max((roof.flops for roof in chart.ceilings), default=10.0 ** frame.up[1])
    left, right = 10.0 ** frame.across[0], 10.0 ** frame.across[1]
    floor = 10.0 ** frame.up[0]
    for number, slope in enumerate(chart.slopes):
        start = max(left, floor / slope.bytes_per_s)
        end = min(right, top / slope.bytes_per_s)
        if end > start:
            low = (frame.x(start), frame.y(start * slope.bytes_per_s))
            yield line(low, (frame.x(end), frame.y(end * slope.bytes_per_s)), QUIET, _DASHES.get(slope.level, ""))
            up = start * (end / start) ** (0.04 + 0.08 * number)  # names one above the other
            words = f"{slope.level} {_rate(slope.bytes_per_s, 'B/s')}"
            yield text(frame.x(up) + 6, frame.y(up * slope.bytes_per_s), words, more=OVER_LINES)
    steepest = max((slope.bytes_per_s for slope in chart.slopes), default=top / left)
    for roof in chart.ceilings:
        start = min(max(left, roof.flops / steepest), right)
        y = frame.y(roof.flops)
        stroke, dash = (INK, "") if roof.is_used else (QUIET, "1 4")
        yield line((frame.x(start), y), (frame.x(right), y), stroke, dash)
    for together in _apart(chart.ceilings, frame):
        rates: dict[str, list[str]] = {}
        for roof in together:
            rates.setdefault(_rate(roof.flops), []).append(roof.label)
        words = "; ".join(f"{', '.join(labels)} {rate}" for rate, labels in rates.items())
        fill = INK if any(roof.is_used for roof in together) else QUIET
        y = frame.y(together[0].flops) - 4
        yield text(frame.x(right) - 4, y, words, anchor="end", fill=fill, more=OVER_LINES)


def _apart(roofs: Sequence[Ceiling], frame: _Frame) -> list[list[Ceiling]]:
    """Roofs that are too near one another for a name each share one."""
    groups: list[list[Ceiling]] = []
    for roof in roofs:
        if groups and frame.y(roof.flops) - frame.y(groups[-1][0].flops) < _NAME_PIXELS:
            groups[-1].append(roof)
        else:
            groups.append([roof])
    return groups


def _points(chart: RooflineChart, frame: _Frame) -> Iterator[str]:
    kernels = list(dict.fromkeys(point.kernel for point in chart.points))
    for point in chart.points:
        colour, size = series(kernels.index(point.kernel)), _SIZES.get(point.level, _SIZES["L2"])
        place = f'cx="{frame.x(point.intensity):.1f}" cy="{frame.y(point.flops):.1f}" r="{size:g}" stroke="{colour}"'
        fill = f'fill="{colour if point.level == "DRAM" else "none"}" pointer-events="all"'
        rate = f"{_rate(point.flops)} at {point.intensity:.3g} operations a byte of {point.level}"
        yield f"<circle {place} {fill}>{told(f'{point.facts or point.kernel}; {rate}')}</circle>"
    for index, kernel in enumerate(kernels):
        y = _PLOT.top + 16 * index + 8
        if y > _PLOT.low:
            break
        yield f'<circle cx="{_PLOT.end + 14}" cy="{y - 4}" r="4" fill="{series(index)}"/>'
        short = kernel if len(kernel) <= _NAME_CHARACTERS else f"{kernel[: _NAME_CHARACTERS - 1]}…"
        yield text(_PLOT.end + 24, y, short)
    levels = [level for level in _SIZES if any(point.level == level for point in chart.points)]
    shapes = {"DRAM": "●", "L2": "○", "L1": "∘"}
    legend = "  ".join(f"{shapes[level]} {level}" for level in levels)
    yield text(_PLOT.end + 10, _PLOT.height - 12, legend, fill=QUIET)


def _moves(chart: RooflineChart, frame: _Frame) -> Iterator[str]:
    """An arrow from each kernel's earlier place to its later one; none where they fall together."""
    for before, after in chart.moves:
        x1, y1 = frame.x(before.intensity), frame.y(before.flops)
        x2, y2 = frame.x(after.intensity), frame.y(after.flops)
        length = math.hypot(x2 - x1, y2 - y1)
        if length < _HEAD:
            continue
        along, across = _HEAD * (x2 - x1) / length, _HEAD * (y2 - y1) / length
        base_x, base_y = x2 - along, y2 - across
        corners = ((x2, y2), (base_x - across / 2, base_y + along / 2), (base_x + across / 2, base_y - along / 2))
        yield line((x1, y1), (base_x, base_y), INK)
        tip = f"{before.kernel}: from {_rate(before.flops)} to {_rate(after.flops)}, of {before.level}"
        yield f'<polygon points="{points(corners)}" fill="{INK}">{told(tip)}</polygon>'


def _rate(value: float, unit: str = "op/s") -> str:
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
