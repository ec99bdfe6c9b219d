"""What every picture is drawn with: one head, one set of colours, and marks. Names from traces are escaped.

A colour is the name of one of a page's colours with its light shade, so a picture in a page follows the page into the
dark; `standing_alone` leaves the light shade, for a file of its own, where nothing knows the names.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from timesink.records import Record
from timesink.untrusted import scrub

_COLOURS: Final = json.loads(files("timesink.render.svg").joinpath("colours.json").read_text(encoding="utf-8"))
LIGHT: Final[Mapping[str, str]] = _COLOURS["light"]
DARK: Final[Mapping[str, str]] = _COLOURS["dark"]
# Okabe and Ito's colours, which colour-blind readers tell apart, and what stands out from them.
SERIES: Final = sum(name.startswith("s-") for name in LIGHT)
_LONGEST_TIP: Final = 500  # characters: the sentence of a sheet, and a name


def style_of(colours: Mapping[str, str]) -> str:
    """The colours as CSS variables."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


def colour(name: str) -> str:
    """One of `LIGHT`, for an attribute of a mark."""
    return f"var(--{name},{LIGHT[name]})"


def series(number: int) -> str:
    """The colour of the n-th of several that are told apart; they come round again."""
    return colour(f"s-{number % SERIES}")


INK: Final = colour("ink")
QUIET: Final = colour("quiet")
LINE: Final = colour("line")
OVER_LINES: Final = f' paint-order="stroke" stroke="{colour("bg")}" stroke-width="3"'
"""Of words: the ground's colour around them, so that lines do not cross them."""


def standing_alone(picture: str) -> str:
    """The picture as a file of its own, with the light colours in it."""
    for name, light in LIGHT.items():
        picture = picture.replace(colour(name), light)
    return picture


def picture(title: str, size: tuple[int, int], marks: Iterable[str]) -> str:
    """A picture of so many pixels. Nothing in it runs or loads; it grows and shrinks with its place."""
    width, height = size
    shown = escape(scrub(title))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{shown}" font-family="sans-serif" font-size="11" fill="{INK}">'
        f'<rect width="{width}" height="{height}" fill="{colour("bg")}"/>'
    )
    return "\n".join([head, text(8, 18, title, more=' font-size="13"'), *marks, "</svg>\n"])


def text(x: float, y: float, words: str, *, anchor: str = "", fill: str = "", more: str = "") -> str:
    """Words at a place; `anchor` is middle or end, `more` are further attributes."""
    more += "".join(f' {name}="{value}"' for name, value in (("text-anchor", anchor), ("fill", fill)) if value)
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(scrub(words), quote=False)}</text>'


def line(start: tuple[float, float], end: tuple[float, float], stroke: str = LINE, dash: str = "") -> str:
    """A straight line, dashed where `dash` says how."""
    style = f'stroke="{stroke}"' + (f' stroke-dasharray="{dash}"' if dash else "")
    return f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" {style}/>'


def rect(place: tuple[float, float, float, float], fill: str, tip: str = "", more: str = "") -> str:
    """A box at x, y of a width and a height; `tip` is what a page says of it, `more` are further attributes."""
    x, y, width, height = place
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" fill="{fill}"{more}'
    return f"{box}>{told(tip)}</rect>" if tip else f"{box}/>"


def told(tip: str) -> str:
    """What a page says of the mark around it, at a pointer and by keys."""
    return f"<title>{escape(scrub(tip, _LONGEST_TIP), quote=False)}</title>"


def points(places: Iterable[tuple[float, float]]) -> str:
    """Places as polygons and polylines take them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


class Plot(Record):
    """Where a chart is drawn: the picture's width and height, and its margins, all in pixels."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    @property
    def end(self) -> int:
        """Where the right margin begins."""
        return self.width - self.right

    @property
    def low(self) -> int:
        """Where the bottom margin begins."""
        return self.height - self.bottom

    @property
    def wide(self) -> int:
        """The width between the margins."""
        return self.width - self.left - self.right

    def y(self, value: float, highest: float) -> float:
        """How far down a value lies, of which `highest` reaches to the top."""
        return self.low - (self.low - self.top) * value / highest if highest else float(self.low)

    def scale(self, highest: float, words: Callable[[float], str]) -> Iterator[str]:
        """Five lines from nothing up to the highest value, each with its value in words."""
        for part in range(5):
            y = self.y(highest * part / 4, highest)
            yield line((self.left, y), (self.end, y))
            yield text(self.left - 6, y + 4, words(highest * part / 4), anchor="end")


def keys(x: float, top: float, names: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A legend: name and colour one below the other."""
    for number, (name, fill) in enumerate(names):
        yield rect((x, top + 18 * number, 12, 12), fill)
        yield text(x + 18, top + 18 * number + 10, name)
