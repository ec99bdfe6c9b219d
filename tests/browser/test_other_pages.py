"""Pages of kernels, ranks, spikes and comparisons in a browser: each loads nothing and can be read."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.browser.gallery import pipeline_report, ranks_report
from tests.browser.pages import ROOT, Pages, compare_report, demo_report, kernels_report, unpacked_report, violations

Open = Callable[..., Any]


def spikes() -> str:
    return unpacked_report(ROOT / "tests" / "data" / "compile" / "gc.1.rank0.json.xz")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return Pages(
        {
            "kernels": kernels_report,
            "spikes": spikes,
            "ranks": ranks_report,
            "compare": compare_report,
            "pipeline": pipeline_report,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kernels", "spikes", "ranks", "compare", "pipeline"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_loads_nothing_complains_of_nothing_and_is_accessible(
    opened: Open, pages: dict[str, str], name: str, width: int, scheme: str
) -> None:
    assert len(pages[name].encode()) < 1_000_000
    shown = opened(pages[name], width=width, scheme=scheme)
    assert [url.split(":")[0] for url in shown.requests] == ["file"]
    assert shown.complaints == []
    assert violations(shown) == []
    assert fits(shown.page, width)
    if width == 1280:
        assert fits(shown.page, 2560)
        shown.page.emulate_media(media="print")
        assert fits(shown.page, A4_PIXELS)
        assert shown.page.evaluate(FOLDED) == []


A4_PIXELS = 688  # between the margins
FOLDED = """[...document.querySelectorAll('details:not(.shape) table, details:not(.shape) p')].filter(
    one => !one.checkVisibility({ contentVisibilityAuto: true })).map(one => one.textContent)"""


def fits(page: Any, width: int) -> bool:
    """Whether nothing is wider than the page, and every figure lies in it whole, once the canvases have followed."""
    page.set_viewport_size({"width": width, "height": 900})
    inside = """[...document.querySelectorAll('figure, figure svg, figure canvas')].every(one => {
        const box = one.getBoundingClientRect(), around = one.closest('figure.picture') && innerWidth < 700;
        return box.left >= -1 && (box.right <= innerWidth + 1 || around && !matchMedia('print').matches); })"""
    page.wait_for_function(f"document.documentElement.scrollWidth <= {width} && {inside}", timeout=5_000)
    return True


def test_a_page_of_kernels_shows_roofs_limiters_and_stalls(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["kernels"]).page
    assert page.locator("#profiled figure.picture svg").count() == 1
    kernels = page.locator("#profiled > .scroll table").first.locator("tbody tr").count()
    assert page.locator("#profiled > details").filter(has_text="(id ").count() == kernels == 6
    assert page.locator("#profiled > details").filter(has_text="(id ").first.locator("table").count() == 2
    assert "lg_throttle" in page.locator("#profiled > details").filter(has_text="(id ").first.inner_text()
    page.locator("#findings details.finding > summary").first.click()
    assert "of the recorded time" in page.locator("#findings article h3").first.inner_text()


def test_ranks_are_a_heat_map_with_a_row_each(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["ranks"]).page
    assert page.locator("table.heat tbody tr").count() == 3
    assert page.locator("svg.bar").count() == 3
    assert page.locator("table.heat td.h9").count() > 0


def test_the_bars_of_steps_are_of_the_rank_that_is_chosen(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["ranks"]).page
    page.get_by_label("the bars are of").select_option("rank 2")
    page.locator("#step-plot").focus()
    page.keyboard.press("ArrowRight")
    legend = page.locator("#steps .u-legend").inner_text().replace("\n", "").replace("\t", "")
    assert "compute10.00 ms" in legend and "host sync1.000 ms" in legend
    rows = page.locator("#steps details tbody tr")
    assert rows.count() == 12
    parts = "cells => cells.slice(-2).map(cell => +cell.dataset.value)"
    assert rows.last.locator("td").evaluate_all(parts) == [
        1e7,
        1e6,
    ]


def test_a_gantt_picture_says_who_worked_when_to_pointer_and_keys(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["pipeline"]).page
    figure, told = page.locator("figure.picture").last, page.locator("output.picked").last
    boxes = figure.locator("rect:has(title)")
    wide = boxes.evaluate_all("boxes => boxes.map(box => [box.x.baseVal.value, box.width.baseVal.value])")
    assert len(wide) == 10
    (first, length), (second, shorter) = wide[0], wide[5]  # item 1: 8 ms, and 6 ms from 1 ms after
    assert shorter / length == pytest.approx(6 / 8, rel=0.01)
    assert (second - first) / length == pytest.approx(9 / 8, rel=0.01)
    boxes.nth(5).hover()
    assert told.inner_text() == "item 1, B: 6.00 ms, from 9.00 ms"
    figure.focus()
    page.keyboard.press("ArrowRight")
    assert told.inner_text() == "item 2, B: 6.00 ms, from 17.0 ms"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert told.inner_text() == "item 5, A: 8.00 ms, from 32.0 ms"


def test_a_slow_step_is_marked_and_its_cause_named(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["spikes"]).page
    legend = page.locator("#steps .u-legend").inner_text()
    assert "stands out" in legend
    assert re.search(r"p50\d[\d.]+ ms", legend.replace("\n", ""))
    page.locator("#steps summary").click()
    assert "unrecorded pause" in page.locator("#steps details table").inner_text()


def test_the_parts_of_a_comparison_sum_to_the_change(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["compare"]).page
    changes = "[...table.tHead.rows[0].cells].findIndex(cell => cell.textContent.includes('change'))"
    deltas = f"table => [...table.tBodies[0].rows].map(row => Number(row.cells[{changes}].dataset.value))"
    tables = [page.get_by_role("table", name=name) for name in ("Where the change is", "What makes the difference")]
    kinds, parts = (table.evaluate(deltas) for table in tables)
    assert sum(kinds) == sum(parts) < -3_000_000
    assert tables[1].locator("rect.less").count() >= 6


def test_long_tables_are_folded_until_asked_for_and_whole_on_paper(opened: Open) -> None:
    page = opened(demo_report()).page
    visible = "document.querySelectorAll('#kernels tbody tr').values().filter(r => r.offsetHeight).toArray().length"
    assert page.evaluate(visible) == 8
    page.emulate_media(media="print")
    assert page.evaluate(visible) == 40
    page.emulate_media(media="screen")
    page.get_by_role("button", name="show all 40").first.click()
    assert page.evaluate(visible) == 40
