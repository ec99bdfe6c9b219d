"""A roofline: roofs as lines, kernels as points, arrows to where they are later, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from timesink.model.record import dataclass
from timesink.render.svg.pen import INK, OVER_LINES, QUIET, line, picture, points, series, text, told
from timesink.views.figures import Ceiling, Point, RooflineChart

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 200, 30, 50
_DASHES = {"DRAM": "", "L2": "6 3", "L1": "2 3"}
_SIZES = {"DRAM": 5.0, "L2": 4.0, "L1": 3.0}
_NAME_CHARACTERS = 26
_NAME_PIXELS = 11.0  # a line of text
_HEAD = 8.0  # pixels: an arrow's head, as large as the largest point


def roofline_svg(chart: RooflineChart) -> str:
    """The chart as SVG."""
    frame = _Frame.around(chart)
    marks = [*_grid(frame), *_roofs(chart, frame), *_points(chart, frame), *_moves(chart, frame)]
    return picture(chart.title, (_WIDTH, _HEIGHT), marks)


@dataclass(frozen=True, slots=True)
class _Frame:
    """Decades shown on each axis, and where a value falls."""

    x_low: int
    x_high: int
    y_low: int
    y_high: int

    @classmethod
    def around(cls, chart: RooflineChart) -> _Frame:
        top = [roof.flops for roof in chart.ceilings]
        xs = [point.intensity for point in chart.points] + [
            flops / slope.bytes_per_s for slope in chart.slopes for flops in top
        ]
        ys = [point.flops for point in chart.points] + top
        x_low, x_high = _decades(xs)
        y_low, y_high = _decades(ys)
        return cls(x_low, x_high, y_low, y_high)

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.x_low) / (self.x_high - self.x_low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.y_low) / (self.y_high - self.y_low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = min(values, default=1.0), max(values, default=10.0)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return first, max(last, first + 1)


def _grid(frame: _Frame) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for power in range(frame.x_low, frame.x_high + 1):
        x = frame.x(10.0**power)
        yield line((x, _TOP), (x, bottom))
        yield text(x, bottom + 16, f"{10.0**power:g}", anchor="middle")
    for power in range(frame.y_low, frame.y_high + 1):
        y = frame.y(10.0**power)
        yield line((_LEFT, y), (right, y))
        yield text(_LEFT - 6, y + 4, _rate(10.0**power), anchor="end")
    yield text((_LEFT + right) / 2, _HEIGHT - 12, "operations per byte", anchor="middle")


def _roofs(chart: RooflineChart, frame: _Frame) -> Iterator[str]:
    top = max((roof.flops for roof in chart.ceilings), default=10.0**frame.y_high)
    left, right = 10.0**frame.x_low, 10.0**frame.x_high
    floor = 10.0**frame.y_low
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
        yield line(
            (frame.x(start), y), (frame.x(right), y), INK if roof.is_used else QUIET, "" if roof.is_used else "1 4"
        )
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
        colour = series(kernels.index(point.kernel))
        yield (
            f'<circle cx="{frame.x(point.intensity):.1f}" cy="{frame.y(point.flops):.1f}" '
            f'r="{_SIZES.get(point.level, _SIZES["L2"]):g}" stroke="{colour}" '
            f'fill="{colour if point.level == "DRAM" else "none"}" pointer-events="all">{told(_words(point))}</circle>'
        )
    for index, kernel in enumerate(kernels):
        y = _TOP + 16 * index + 8
        if y > _HEIGHT - _BOTTOM:
            break
        yield f'<circle cx="{_WIDTH - _RIGHT + 14}" cy="{y - 4}" r="4" fill="{series(index)}"/>'
        short = kernel if len(kernel) <= _NAME_CHARACTERS else f"{kernel[: _NAME_CHARACTERS - 1]}…"
        yield text(_WIDTH - _RIGHT + 24, y, short)
    levels = [level for level in _SIZES if any(point.level == level for point in chart.points)]
    shapes = {"DRAM": "●", "L2": "○", "L1": "∘"}
    yield text(
        _WIDTH - _RIGHT + 10, _HEIGHT - 12, "  ".join(f"{shapes[level]} {level}" for level in levels), fill=QUIET
    )


def _words(point: Point) -> str:
    place = f"{_rate(point.flops)} at {point.intensity:.3g} operations a byte of {point.level}"
    return f"{point.facts or point.kernel}; {place}"


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
