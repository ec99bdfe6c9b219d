"""What every picture is drawn with: one head, one set of colours, and marks. Names from traces are escaped.

A colour is the name of one of a page's colours with its light shade, so a picture in a page follows the page into the
dark; `standing_alone` leaves the light shade, for a file of its own, where nothing knows the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from timesink.model.record import dataclass
from timesink.untrusted.scrub import scrub

LIGHT: Final[Mapping[str, str]] = {
    "bg": "#fff", "card": "#f5f7fa", "ink": "#17202b", "quiet": "#4c5866", "line": "#d5dce4", "accent": "#1a5fa8",
    "warn": "#9a2f1c", "good": "#1d6b3c", "band": "rgba(214,120,20,.22)", "heat": "26,95,168",
    "k-compute": "#2f74c0", "k-communication": "#7d4fb3", "k-copy": "#0f8b8d", "k-range": "#8fa3b8", "k-op": "#b9c6d4",
    "k-call": "#d9b45a", "k-product": "#2f74c0", "k-attention": "#1f9a76", "k-reduction": "#6a86d8",
    "k-pointwise": "#5aa9d6", "k-kernel": "#7a93ad", "k-finding": "#d67814", "k-step": "#c3cedb", "k-wait": "#b8392b",
    "k-wait2": "#d2674f", "k-host": "#e0892b", "k-host2": "#edb262", "k-host3": "#c9772a", "k-gpu": "#8c96a3",
    "k-gpu2": "#b4bcc6", "k-gpu3": "#6c7683", "box-ink": "#0d1420", "slower": "#c8402f", "faster": "#2f74c0",
    # Okabe and Ito's colours, which colour-blind readers tell apart, and what stands out from them.
    "s-0": "#0072b2", "s-1": "#e69f00", "s-2": "#009e73", "s-3": "#cc79a7", "s-4": "#56b4e9", "s-5": "#d55e00",
    "s-6": "#7a5195", "s-7": "#b8a800", "s-8": "#8c8c8c", "s-9": "#5a5a5a", "s-10": "#bdbdbd",
}  # fmt: skip
DARK: Final[Mapping[str, str]] = {
    "bg": "#10151c", "card": "#18202a", "ink": "#e7ecf2", "quiet": "#a7b3c1", "line": "#2f3a47", "accent": "#7fb6f2",
    "warn": "#f0907c", "good": "#7fd19d", "band": "rgba(240,160,60,.25)", "heat": "110,170,240",
    "k-compute": "#5b9be6", "k-communication": "#b48ae6", "k-copy": "#3fbcbe", "k-range": "#6f8498", "k-op": "#8296aa",
    "k-call": "#c9a650", "k-product": "#5b9be6", "k-attention": "#4cc3a0", "k-reduction": "#8ea5ee",
    "k-pointwise": "#7fc4ea", "k-kernel": "#93a8bf", "k-finding": "#f0a03c", "k-step": "#8a99aa", "k-wait": "#e2624f",
    "k-wait2": "#ee8e78", "k-host": "#e99a44", "k-host2": "#f0bd78", "k-host3": "#cf8440", "k-gpu": "#7d8896",
    "k-gpu2": "#9aa4b0", "k-gpu3": "#697482", "box-ink": "#0b1017", "slower": "#e9705c", "faster": "#5b9be6",
    "s-0": "#3d9bd8", "s-1": "#f0b53a", "s-2": "#2fbf93", "s-3": "#dd95bd", "s-4": "#7fcaf2", "s-5": "#f07d2e",
    "s-6": "#a67fc0", "s-7": "#d8c93a", "s-8": "#9a9a9a", "s-9": "#c4c4c4", "s-10": "#6f6f6f",
}  # fmt: skip
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
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{stroke}"{style}/>'
    )


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


@dataclass(frozen=True, slots=True)
class Plot:
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
