"""Reports look as they did when a person last looked at them; the comparison survives fonts and sees faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL", reason="Pillow is not installed (pip install pillow)")

from PIL import Image
from tests.browser.goldens import FOLDER, LIMITS, PAGES, SHOTS, Shot, difference, taken
from tests.browser.pages import Pages, needs_browser

Open = Callable[..., Any]
WIDE, NARROW = Shot("demo", 1280, "dark"), Shot("demo", 390, "dark")
FONTS = ("DejaVu Sans", "DejaVu Serif", "Noto Serif")
FAULTS = {
    "no style": "document.querySelector('style').remove()",
    "no timelines": "document.querySelectorAll('figure.timeline').forEach(figure => figure.remove())",
    "no budget": "document.getElementById('budget').remove()",
    "no tiles": "document.querySelector('.tiles').remove()",
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    needs_browser()
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
    if unlike > shot.limit:
        seen = tmp_path / shot.path.name
        now.save(seen)
        pytest.fail(f"differs by {unlike:.3f} (limit {shot.limit}): if {seen} is right, python tools/renew_goldens.py")


@pytest.mark.parametrize("font", FONTS)
@pytest.mark.parametrize("shot", [WIDE, NARROW], ids=lambda shot: shot.path.stem)
def test_another_font_is_no_difference(opened: Open, pages: dict[str, str], shot: Shot, font: str) -> None:
    style = f"document.body.style.fontFamily = '{font}'"
    assert difference(Image.open(shot.path), picture(opened, pages[shot.page], shot, style)) < shot.limit


@pytest.mark.parametrize(
    ("shot", "fault"),
    [*((WIDE, fault) for fault in FAULTS), (NARROW, "no style"), (NARROW, "no tiles")],
    ids=lambda value: value if isinstance(value, str) else value.path.stem,
)
def test_a_lost_part_is_a_difference(opened: Open, pages: dict[str, str], shot: Shot, fault: str) -> None:
    assert difference(Image.open(shot.path), picture(opened, pages[shot.page], shot, FAULTS[fault])) > shot.limit


def test_the_other_colour_scheme_is_a_difference() -> None:
    light, dark = (Image.open(shot.path) for shot in SHOTS[:2])
    assert difference(light, dark) > max(LIMITS.values())


def test_the_pictures_stay_small_and_each_belongs_to_a_page() -> None:
    files = sorted(FOLDER.iterdir())
    assert files == sorted(shot.path for shot in SHOTS)
    assert sum(file.stat().st_size for file in files) < 1_000_000
