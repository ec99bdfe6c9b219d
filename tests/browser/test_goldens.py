"""Reports look as they did when a person last looked at them; the comparison sees faults."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed (pip install pillow)")

from PIL import Image
from tests.browser import gallery
from tests.browser.goldens import DRAWING, FOLDER, LIMIT, PAGES, SHOTS, Shot, difference, taken
from tests.browser.pages import Pages, needs_browser

Open = Callable[..., Any]
WIDE, NARROW = Shot("demo", 1280, "dark"), Shot("demo", 390, "dark")
FAULTS = {
    "no style": "document.querySelector('style').remove()",
    "no timelines": "document.querySelectorAll('figure.timeline').forEach(figure => figure.remove())",
    "no budget": "document.getElementById('budget').remove()",
    "no tiles": "document.querySelector('.tiles').remove()",
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    needs_browser(font=True)
    return Pages(PAGES)


def picture(opened: Open, text: str, shot: Shot, script: str = "0") -> Image.Image:
    page = opened(text, width=shot.width, scheme=shot.scheme).page
    page.evaluate(script)
    return taken(page, shot.width)


@pytest.mark.slow
@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.path.stem)
def test_a_page_looks_as_it_did(opened: Open, pages: dict[str, str], shot: Shot, tmp_path: Path) -> None:
    now = picture(opened, pages[shot.page], shot)
    unlike = difference(Image.open(shot.path), now)
    if unlike > LIMIT:
        seen = tmp_path / shot.path.name
        now.save(seen)
        pytest.fail(f"differs by {unlike:.3f} (limit {LIMIT}): if {seen} is right, python tools/renew_goldens.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shot", "fault"),
    [*((WIDE, fault) for fault in FAULTS), (NARROW, "no style"), (NARROW, "no tiles")],
    ids=lambda value: value if isinstance(value, str) else value.path.stem,
)
def test_a_lost_part_is_a_difference(opened: Open, pages: dict[str, str], shot: Shot, fault: str) -> None:
    assert difference(Image.open(shot.path), picture(opened, pages[shot.page], shot, FAULTS[fault])) > LIMIT


def test_the_other_colour_scheme_is_a_difference() -> None:
    light, dark = (Image.open(shot.path) for shot in SHOTS[:2])
    assert difference(light, dark) > LIMIT


# Of full scale: what a sheet keeps of the same drawing is 0.007 off at most, the defects give 0.011 and more.
DRAWING_LIMIT = 0.009
DEFECTS = {
    "shifted": "svg, canvas { translate: 5% 0 }",
    "without its style": "svg, canvas { filter: grayscale(1) } .picture :is(line, rect, text) { opacity: 0 }",
}
PLANTED_AT = 768


@pytest.mark.slow
@pytest.mark.parametrize("name", gallery.PAGES)
def test_every_drawing_looks_as_it_did_and_a_planted_defect_does_not(opened: Open, name: str) -> None:
    """At three widths and in both schemes; at one of them a drawing that is shifted, and one that lost its style."""
    needs_browser(font=True)
    page = opened(gallery.PAGES[name]()).page
    gallery.opened_alone(page, name)
    unlike = {}
    for width, scheme in product(gallery.WIDTHS, gallery.SCHEMES):
        known = gallery.kept(width, scheme)
        for figure, now in gallery.pictures(page, name, width, scheme).items():
            unlike[figure, width, scheme] = difference(known[figure], now, DRAWING)
    assert not {place: by for place, by in unlike.items() if by > DRAWING_LIMIT}, "python tools/renew_goldens.py"
    known = gallery.kept(PLANTED_AT, "light")
    for defect, style in DEFECTS.items():
        found = gallery.pictures(page, name, PLANTED_AT, "light", style)
        seen = {figure: difference(known[figure], now, DRAWING) for figure, now in found.items()}
        assert min(seen.values()) > DRAWING_LIMIT, (defect, seen)


def test_the_pictures_stay_small_and_each_belongs_to_a_page() -> None:
    files = sorted(FOLDER.iterdir())
    sheets = [gallery.path_of(width, scheme) for width, scheme in product(gallery.WIDTHS, gallery.SCHEMES)]
    assert files == sorted([*sheets, *(shot.path for shot in SHOTS)])
    assert sum(file.stat().st_size for file in files) < 320_000
    assert set(gallery.kept(390, "dark")) == {figure for figures in gallery.FIGURES.values() for figure in figures}
