"""Memory over time as one SVG: bands of categories on top of one another. Plain marks, no script, no outside file."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from timesink.scrub import scrub
from timesink.units import bytes_text

WIDTH, HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 200, 36, 30
# Okabe and Ito's colours, which colour-blind readers tell apart, and greys for what is left.
_COLOURS = (
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


@dataclass(frozen=True, slots=True)
class Band:
    """One category: its name, and its bytes at every column of the picture."""

    name: str
    bytes: tuple[int, ...]


def memory_svg(title: str, bands: tuple[Band, ...]) -> str:
    """The picture. Bands have equally many columns; the first lies at the bottom. Names are untrusted."""
    count = len(bands[0].bytes) if bands else 0
    heights = [sum(band.bytes[at] for band in bands) for at in range(count)]
    highest = max(heights, default=0) or 1
    below = [0] * count
    shapes = []
    for number, band in enumerate(bands):
        above = [low + size for low, size in zip(below, band.bytes, strict=True)]
        colour = _COLOURS[number % len(_COLOURS)]
        label = escape(scrub(band.name))
        tip = f"<title>{label}: at most {escape(bytes_text(max(band.bytes)))}</title>"
        shapes.append(f'<polygon fill="{colour}" points="{_outline(below, above, highest)}">{tip}</polygon>')
        shapes.append(_key(number, len(bands), colour, f"{label} {bytes_text(max(band.bytes))}"))
        below = above
    return "\n".join([_head(title), *_axis(highest), *shapes, "</svg>\n"])


def _head(title: str) -> str:
    text = escape(scrub(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{text}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/><text x="{_LEFT}" y="20" font-size="14">{text}</text>'
    )


def _axis(highest: int) -> list[str]:
    marks = []
    for part in range(5):
        y = _y(highest * part / 4, highest)
        marks.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#d0d0d0"/>')
        marks.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{bytes_text(highest * part / 4)}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) // 2
    marks.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">allocator events, in order</text>')
    return marks


def _outline(below: list[int], above: list[int], highest: int) -> str:
    count = len(above)
    forward = [f"{_x(at, count)},{_y(value, highest)}" for at, value in enumerate(above)]
    back = [f"{_x(at, count)},{_y(below[at], highest)}" for at in reversed(range(count))]
    return " ".join([*forward, *back])


def _key(number: int, count: int, colour: str, text: str) -> str:
    y = _TOP + 18 * (count - 1 - number)
    x = WIDTH - _RIGHT + 12
    return (
        f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="{y + 10}">{text}</text>'
    )


def _x(at: int, count: int) -> float:
    return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * (at / max(count - 1, 1)), 1)


def _y(value: float, highest: int) -> float:
    return round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * value / highest, 1)
