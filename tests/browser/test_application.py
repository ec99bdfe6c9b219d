"""The report as an application: findings first, one view that an address keeps, tables that are filtered and saved."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.pages import demo_report, until, violations

Open = Callable[..., Any]
CANVAS = "#timeline canvas[tabindex]"
SCREEN, MOST_SCREENS = 900, 6
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture
def page(opened: Open) -> Any:
    page = opened(demo_report()).page
    until(page, f"document.querySelector('{CANVAS}')?.dataset.tops")
    until(page, "document.querySelectorAll('figure.flame canvas[data-rows]').length >= 3")
    return page


def view(page: Any) -> tuple[float, float]:
    canvas = page.locator(CANVAS)
    return float(canvas.get_attribute("data-from")), float(canvas.get_attribute("data-to"))


def saved(page: Any, part: str) -> None:
    """Wait until the address says it."""
    until(page, f"location.hash.includes({part!r})")


@pytest.mark.slow
def test_findings_and_the_timeline_stand_first_and_all_is_six_screens(page: Any) -> None:
    sections = "[...document.querySelectorAll('main > section')].map(one => one.id)"
    assert page.evaluate(sections)[:3] == ["findings", "timeline", "budget"]
    assert page.locator("#findings > details[open]").count() == 0
    first = page.locator("#finding-1 > summary").inner_text()
    assert all(words in first for words in ("input pipeline", "1.70 ms", "16.5 %", "Prepare the next batch"))
    assert page.evaluate("document.documentElement.scrollHeight") <= MOST_SCREENS * SCREEN
    places = "[...document.querySelectorAll('nav, main')].map(one => one.getBoundingClientRect().left)"
    side, main = page.evaluate(places)
    assert side == 0 < main
    page.get_by_role("link", name="GPU time as a treemap").click()
    until(page, "document.getElementById('areas').open")


def test_the_ruler_and_the_view_begin_where_the_command_line_does(page: Any) -> None:
    page.locator("#timeline").get_by_role("button", name="where the time").click()
    assert "--window 0.000000ms:" in page.locator("#timeline .budget").inner_text()


@pytest.mark.slow
def test_a_button_turns_light_into_dark_and_the_address_keeps_it(opened: Open) -> None:
    shown = opened(demo_report())
    page = shown.page
    light = page.evaluate(BACKGROUND)
    page.get_by_role("button", name="Dark colors").click()
    dark = page.evaluate(BACKGROUND)
    assert light != dark
    saved(page, "theme=dark")
    assert violations(shown) == []
    page.reload()
    assert page.evaluate(BACKGROUND) == dark
    page.get_by_role("button", name="Light colors").click()
    assert page.evaluate(BACKGROUND) == light


def test_an_address_shows_the_view_that_it_was_copied_from(page: Any) -> None:
    page.locator("#finding-2 > summary").click()
    figure = page.locator("#timeline figure")
    figure.locator("input").fill("nvjet")
    until(page, "document.querySelector('#timeline .found').textContent")
    figure.get_by_role("button", name="zoom in").click()
    here = view(page)
    saved(page, f"at={round(here[0])}%3A{round(here[1])}")
    page.reload()
    until(page, "document.querySelector('#timeline .found')?.textContent")
    assert page.locator("#finding-2").get_attribute("open") is not None
    assert page.locator("#finding-1").get_attribute("open") is None
    assert figure.locator("input").input_value() == "nvjet"
    until(page, "location.hash.includes('find=nvjet')")


def test_lanes_are_pinned_and_moved_by_keys_and_pointer(page: Any) -> None:
    tops = f"Object.entries(JSON.parse(document.querySelector('{CANVAS}').dataset.tops))"
    order = f"{tops}.sort((a, b) => a[1] - b[1]).map(([lane]) => Number(lane))"
    canvas = page.locator(CANVAS)
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("t")
    until(page, f"{order}[0] === 2")
    saved(page, "lanes=2*")
    page.keyboard.press("t")
    until(page, f"{order}.every((lane, at) => lane === at)")
    page.keyboard.press("Shift+ArrowUp")
    until(page, f"{order}[1] === 2")
    canvas.scroll_into_view_if_needed()
    box, places = canvas.bounding_box(), dict(page.evaluate(tops))
    page.mouse.move(box["x"] + 60, box["y"] + places["2"] - 8)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + places["3"] + 2, steps=8)
    page.mouse.up()
    until(page, f"{order}[1] !== 2")


def test_an_area_tells_what_each_of_its_lanes_holds(page: Any) -> None:
    canvas = page.locator(CANVAS)
    canvas.scroll_into_view_if_needed()
    places = page.evaluate(f"JSON.parse(document.querySelector('{CANVAS}').dataset.tops)")
    box = canvas.bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + places["2"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + places["3"] + 4, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    rows = page.locator("#timeline table.lanes tbody tr")
    assert [row.locator("td").first.inner_text() for row in rows.all()] == ["GPU 0 idle, because of", "GPU 0 stream 7"]
    _, events, busy, most = rows.nth(1).locator("td").all_inner_texts()
    assert 500 < int(events.replace(",", "")) < 1_500
    assert busy.endswith(" ms") and "gemm bf16" in most


def test_the_overview_shows_what_a_drag_goes_over(page: Any) -> None:
    mini = page.locator("#timeline canvas.mini")
    mini.scroll_into_view_if_needed()
    box = mini.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 10, steps=4)
    page.mouse.up()
    whole = page.evaluate(
        "Capture.unpacked(document.getElementById('capture').content.textContent).then(a => a.length)"
    )
    start, end = view(page)
    assert start / whole == pytest.approx(0.25, abs=0.01) and end / whole == pytest.approx(0.5, abs=0.01)


def test_rows_are_filtered_and_saved_with_raw_figures_and_whole_names(page: Any, tmp_path: Path) -> None:
    kernels = page.locator("#kernels")
    kernels.get_by_role("searchbox").fill("nvjet")  # which is in the whole name alone, or in both
    seen = kernels.locator("tbody tr:not([hidden])")
    count = seen.count()
    assert 3 < count < 40 and all(row.is_visible() for row in seen.all())
    with page.expect_download() as caught:
        kernels.get_by_role("button", name="save Kernels as CSV").click()
    caught.value.save_as(tmp_path / "kernels.csv")
    assert caught.value.suggested_filename == "Kernels.csv"
    head, *rows = csv.reader((tmp_path / "kernels.csv").open(encoding="utf-8"))
    assert len(rows) == count and head[3] == "total (ns)"
    assert all(row[0].startswith("nvjet_sm90") and float(row[3]) > 0 for row in rows)
    kernels.get_by_role("searchbox").fill("")
    assert kernels.locator("tbody tr:visible").count() == 8


def test_callers_stand_below_what_spends_the_time(page: Any) -> None:
    figure = page.locator("[data-flame=device]")
    figure.get_by_role("button", name="callers").click()
    canvas = figure.locator("canvas")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    name, _, told = figure.locator(".picked").inner_text().partition(": ")
    first = page.locator("#kernels tbody tr").first
    assert name == first.locator("td").first.inner_text().strip()
    assert told[:4] == first.locator("td").nth(3).inner_text().strip()[:4]
    page.keyboard.press("ArrowDown")
    assert " › aten::" in figure.locator(".picked").inner_text()
    figure.get_by_role("button", name="callers").click()
    canvas.focus()
    page.keyboard.press("ArrowDown")
    assert figure.locator(".picked").inner_text().startswith("ProfilerStep: ")
