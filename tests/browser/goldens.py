"""Pictures of reports that a person has looked at, and how unlike them a page may be.

    python tools/renew_goldens.py          # takes all of them anew; look at every one that git shows as changed

A picture is the top of a page at half its size, in fonts that are named. Two are compared as a grid of mean colours, in
bands that may lie a few rows higher or lower: a lost style, chart or colour scheme changes the colours.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tests.browser import gallery
from tests.browser.pages import compare_report, demo_report, hostile_report, kernels_report, launched

FOLDER = Path(__file__).parent / "goldens"
TOP = 1600  # pixels of the page from its top
CELL, BAND, SHIFT = 8, 10, 4  # pixels of the picture; cells; cells
COLOURS = 64
# Of full scale: the same page gives 0.0006 at most, a lost style, budget, row of tiles or the timelines 0.017 and more.
LIMIT = 0.008
FONTS = "body { font-family: 'DejaVu Sans' !important } code { font-family: 'DejaVu Sans Mono' !important }"


@dataclass(frozen=True)
class Shot:
    """A page, a width and a colour scheme."""

    page: str
    width: int
    scheme: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.page}-{self.width}-{self.scheme}.png"


SHOTS = tuple(
    Shot(*parts)
    for parts in (
        ("demo", 1280, "light"),
        ("demo", 1280, "dark"),
        ("demo", 390, "light"),
        ("demo", 390, "dark"),
        ("hostile", 1280, "light"),
        ("hostile", 390, "dark"),
        ("kernels", 1280, "dark"),
        ("compare", 1280, "light"),
    )
)


PAGES: dict[str, Callable[[], str]] = {
    "demo": demo_report,
    "hostile": hostile_report,
    "kernels": kernels_report,
    "compare": compare_report,
}


def taken(page: Any, width: int) -> Image.Image:
    """The top of an open page, half its size."""
    page.evaluate(gallery.PLANTED, FONTS)
    height = min(TOP, page.evaluate("document.documentElement.scrollHeight"))
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_timeout(300)  # the canvases follow the size
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)


@dataclass(frozen=True)
class Sieve:
    """How coarsely pictures are compared: pixels of a cell, cells of a band, and cells it may be moved by."""

    cell: int = CELL
    band: int = BAND
    shift: int = SHIFT


PAGE, DRAWING = Sieve(), Sieve(2, 6, 1)  # a drawing's text is no part of the page's flow


def difference(one: Image.Image, other: Image.Image, sieve: Sieve = PAGE) -> float:
    """How unlike two pictures are: mean distance of their cells' colours, 0 to 1, each band at its best shift."""
    here, there = _grid(one, sieve.cell), _grid(other, sieve.cell)
    if here.shape[1] != there.shape[1]:
        return 1.0
    height = max(here.shape[0], there.shape[0])
    here, there = _padded(here, height), _padded(there, height)
    found = [_band(here, there, top, sieve) for top in range(0, height, sieve.band)]
    return float(np.mean(found))


def _band(here: npt.NDArray[np.float64], there: npt.NDArray[np.float64], top: int, sieve: Sieve) -> float:
    band = here[top : top + sieve.band]
    best = 1.0
    for by in range(-sieve.shift, sieve.shift + 1):
        rows = np.clip(np.arange(top + by, top + by + band.shape[0]), 0, there.shape[0] - 1)
        best = min(best, float(np.abs(band - there[rows]).mean()))
    return best


def _grid(picture: Image.Image, cell: int) -> npt.NDArray[np.float64]:
    small = picture.convert("RGB").resize(
        (max(picture.width // cell, 1), max(picture.height // cell, 1)), Image.Resampling.BOX
    )
    return np.asarray(small, np.float64) / 255


def _padded(grid: npt.NDArray[np.float64], height: int) -> npt.NDArray[np.float64]:
    return np.pad(grid, ((0, height - grid.shape[0]), (0, 0), (0, 0)), mode="edge")


def renew() -> Iterator[str]:
    """Take every picture of a page and of a drawing anew."""
    drawn: dict[tuple[int, str], dict[str, Image.Image]] = {}
    for (_, width, scheme), found in all_drawings():
        drawn.setdefault((width, scheme), {}).update(found)
    for (width, scheme), sheet in drawn.items():
        gallery.keep(width, scheme, sheet)
        yield f"{gallery.path_of(width, scheme)}: {gallery.path_of(width, scheme).stat().st_size:,} bytes"
    yield from _renewed_pages()


def all_drawings() -> Iterator[tuple[tuple[str, int, str], dict[str, Image.Image]]]:
    """By page, width and scheme."""
    with tempfile.TemporaryDirectory() as folder, launched(folder) as browser:
        for name, make in gallery.PAGES.items():
            path = Path(folder) / f"{name}.html"
            path.write_text(make(), encoding="utf-8")
            page = browser.new_page()
            page.goto(path.as_uri())
            gallery.opened_alone(page, name)
            for width, scheme in product(gallery.WIDTHS, gallery.SCHEMES):
                yield (name, width, scheme), gallery.pictures(page, name, width, scheme)
            page.close()


def _renewed_pages() -> Iterator[str]:
    pages = {name: make() for name, make in PAGES.items()}
    with tempfile.TemporaryDirectory() as folder, launched(folder) as browser:
        for shot in SHOTS:
            path = Path(folder) / f"{shot.page}.html"
            path.write_text(pages[shot.page], encoding="utf-8")
            page = browser.new_page()
            page.set_viewport_size({"width": shot.width, "height": 900})
            page.emulate_media(color_scheme=shot.scheme)
            page.goto(path.as_uri())
            picture = taken(page, shot.width).quantize(
                COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
            )
            picture.save(shot.path, optimize=True)
            page.close()
            yield f"{shot.path}: {shot.path.stat().st_size:,} bytes"
