"""A roofline as one SVG picture: roofs as lines, kernels as points, both axes logarithmic.

Memory over time as one SVG: bands of categories on top of one another. Plain marks, no script, no outside file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from xml.sax.saxutils import quoteattr

from timesink.model.record import dataclass
from timesink.render.heat_svg import heat_svg
from timesink.units import bytes_text
from timesink.untrusted.scrub import scrub
from timesink.views.figures import HeatChart, MemoryChart, RooflineChart

_WIDTH, _HEIGHT = 860, 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 200, 30, 50
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
_DASHES = {"DRAM": "", "L2": "6 3", "L1": "2 3"}
_NAME_CHARACTERS = 24


def chart_svg(chart: RooflineChart | MemoryChart | HeatChart) -> str:
    """The chart as SVG text, whichever it is."""
    if isinstance(chart, HeatChart):
        return heat_svg(chart)
    return roofline_svg(chart) if isinstance(chart, RooflineChart) else memory_svg(chart)


_ARROW = "#000000"
_HEAD = 8.0  # pixels: an arrow's head, as large as the largest point


def roofline_svg(chart: RooflineChart) -> str:
    """The picture as SVG text. Names from traces are escaped; nothing in it runs or loads."""
    frame = _Frame.around(chart)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="11" role="img" aria-label={quoteattr(scrub(chart.title))}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 18, scrub(chart.title), size=13),
        *_grid(frame),
        *_roofs(chart, frame),
        *_points(chart, frame),
        *_moves(chart, frame),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


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
        yield _line(x, _TOP, x, bottom, "#dddddd")
        yield _text(x, bottom + 16, f"{10.0**power:g}", anchor="middle")
    for power in range(frame.y_low, frame.y_high + 1):
        y = frame.y(10.0**power)
        yield _line(_LEFT, y, right, y, "#dddddd")
        yield _text(_LEFT - 6, y + 4, _rate(10.0**power), anchor="end")
    yield _text((_LEFT + right) / 2, _HEIGHT - 12, "operations per byte", anchor="middle")


def _roofs(chart: RooflineChart, frame: _Frame) -> Iterator[str]:
    top = max((roof.flops for roof in chart.ceilings), default=10.0**frame.y_high)
    left, right = 10.0**frame.x_low, 10.0**frame.x_high
    floor = 10.0**frame.y_low
    for slope in chart.slopes:
        start = max(left, floor / slope.bytes_per_s)
        end = min(right, top / slope.bytes_per_s)
        if end > start:
            ends = (frame.x(start), frame.y(start * slope.bytes_per_s), frame.x(end), frame.y(end * slope.bytes_per_s))
            yield _line(*ends, "#555555", _DASHES.get(slope.level, ""))
            yield _text(ends[0] + 4, ends[1] - 6, f"{slope.level} {_rate(slope.bytes_per_s, 'B/s')}")
    steepest = max((slope.bytes_per_s for slope in chart.slopes), default=top / left)
    for roof in chart.ceilings:
        start = min(max(left, roof.flops / steepest), right)
        y = frame.y(roof.flops)
        yield _line(frame.x(start), y, frame.x(right), y, "#222222")
        yield _text(frame.x(right) - 4, y - 4, f"{roof.label} {_rate(roof.flops)}", anchor="end")


def _points(chart: RooflineChart, frame: _Frame) -> Iterator[str]:
    kernels = list(dict.fromkeys(point.kernel for point in chart.points))
    shapes = {"DRAM": 5.0, "L2": 4.0, "L1": 3.0}
    for point in chart.points:
        colour = COLOURS[kernels.index(point.kernel) % len(COLOURS)]
        x, y = frame.x(point.intensity), frame.y(point.flops)
        filled = colour if point.level == "DRAM" else "none"
        words = f"{scrub(point.kernel)}: {_rate(point.flops)} at {point.intensity:.3g} op/B of {point.level}"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{shapes.get(point.level, 4.0):g}" stroke="{colour}" '
            f'fill="{filled}"><title>{escape(words, quote=False)}</title></circle>'
        )
    for index, kernel in enumerate(kernels):
        y = _TOP + 16 * index + 8
        if y > _HEIGHT - _BOTTOM:
            break
        yield f'<circle cx="{_WIDTH - _RIGHT + 14}" cy="{y - 4}" r="4" fill="{COLOURS[index % len(COLOURS)]}"/>'
        yield _text(_WIDTH - _RIGHT + 24, y, scrub(kernel, _NAME_CHARACTERS))


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
        yield _line(x1, y1, base_x, base_y, _ARROW)
        yield f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{_ARROW}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{style}/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 11) -> str:
    shown = escape(words, quote=False)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{shown}</text>'


def _rate(value: float, unit: str = "op/s") -> str:
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


WIDTH, HEIGHT = 960, 420
_MEMORY_LEFT, _MEMORY_RIGHT, _MEMORY_TOP, _MEMORY_BOTTOM = 70, 200, 36, 30
# Okabe and Ito's colours, which colour-blind readers tell apart, and greys for what is left.
_CLASS_COLOURS = (
    "#0072b2",
    "#56b4e9",
    "#d55e00",
    "#cc79a7",
    "#009e73",
    "#e69f00",
    "#7a5195",
    "#f0e442",
    "#8c8c8c",
    "#5a5a5a",
    "#bdbdbd",
)


def memory_svg(chart: MemoryChart) -> str:
    """The chart as SVG text. Its title and the names of its bands are untrusted."""
    bands = chart.bands
    count = len(bands[0].bytes) if bands else 0
    heights = [sum(band.bytes[at] for band in bands) for at in range(count)]
    highest = max(heights, default=0) or 1
    below = [0] * count
    shapes = []
    for number, band in enumerate(bands):
        above = [low + size for low, size in zip(below, band.bytes, strict=True)]
        colour = _CLASS_COLOURS[number % len(_CLASS_COLOURS)]
        label = escape(scrub(band.name))
        tip = f"<title>{label}: at most {escape(bytes_text(max(band.bytes)))}</title>"
        shapes.append(f'<polygon fill="{colour}" points="{_outline(below, above, highest)}">{tip}</polygon>')
        shapes.append(_key(number, len(bands), colour, f"{label} {bytes_text(max(band.bytes))}"))
        below = above
    return "\n".join([_head(chart.title), *_axis(highest), *shapes, "</svg>\n"])


def _head(title: str) -> str:
    text = escape(scrub(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{text}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
        f'<text x="{_MEMORY_LEFT}" y="20" font-size="14">{text}</text>'
    )


def _axis(highest: int) -> list[str]:
    marks = []
    for part in range(5):
        y = _y(highest * part / 4, highest)
        marks.append(f'<line x1="{_MEMORY_LEFT}" x2="{WIDTH - _MEMORY_RIGHT}" y1="{y}" y2="{y}" stroke="#d0d0d0"/>')
        marks.append(
            f'<text x="{_MEMORY_LEFT - 6}" y="{y + 4}" text-anchor="end">{bytes_text(highest * part / 4)}</text>'
        )
    middle = (_MEMORY_LEFT + WIDTH - _MEMORY_RIGHT) // 2
    marks.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">allocator events, in order</text>')
    return marks


def _outline(below: list[int], above: list[int], highest: int) -> str:
    count = len(above)
    forward = [f"{_x(at, count)},{_y(value, highest)}" for at, value in enumerate(above)]
    back = [f"{_x(at, count)},{_y(below[at], highest)}" for at in reversed(range(count))]
    return " ".join([*forward, *back])


def _key(number: int, count: int, colour: str, text: str) -> str:
    y = _MEMORY_TOP + 18 * (count - 1 - number)
    x = WIDTH - _MEMORY_RIGHT + 12
    return (
        f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="{y + 10}">{text}</text>'
    )


def _x(at: int, count: int) -> float:
    return round(_MEMORY_LEFT + (WIDTH - _MEMORY_LEFT - _MEMORY_RIGHT) * (at / max(count - 1, 1)), 1)


def _y(value: float, highest: int) -> float:
    return round(HEIGHT - _MEMORY_BOTTOM - (HEIGHT - _MEMORY_BOTTOM - _MEMORY_TOP) * value / highest, 1)
