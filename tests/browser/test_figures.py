"""The figures of a page, driven by pointer and keys: what they show is what the tables hold."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.browser.pages import KERNELS, SNAPSHOT, compare_report, demo_report, unpacked, until, violations

from timesink.measures.counters.sheet import kernel_sheets
from timesink.render import Style
from timesink.render.html import render_page
from timesink.units import bytes_text
from timesink.views.kernel_comparison import moves_page
from timesink.views.kernel_sheet import sheets_page
from timesink.views.memory import memory_page

Open = Callable[..., Any]


def test_areas_are_as_large_as_the_operators_and_kernels_of_the_tables(opened: Open) -> None:
    shown = opened(demo_report())
    shown.page.locator("#areas summary").first.click()
    page, canvas = shown.page, shown.page.locator("#areas figure.flame canvas")
    told = page.locator("#areas figure.flame output.picked")
    until(page, "document.querySelector('#areas figure.flame canvas')?.boxes.length > 10")
    boxes = canvas.evaluate("canvas => canvas.boxes")
    whole = canvas.evaluate("canvas => canvas.clientWidth * canvas.clientHeight")
    cells = (
        "table => [...table.tBodies[0].rows].map(row => [row.cells[0].innerText, Number(row.cells[1].dataset.value)])"
    )
    times = dict(page.locator("#operators table").evaluate(cells))
    outer = [box for box in boxes if not any(_holds(other, box) for other in boxes)]
    assert len(outer) > 10
    seen = []
    for box in outer[:4]:
        canvas.hover(position={"x": box["left"] + box["wide"] / 2, "y": box["top"] + 5})
        seen.append((told.inner_text().partition(": ")[0], box["wide"] * box["tall"] / whole))
        inside = sum(other["wide"] * other["tall"] for other in boxes if _holds(box, other))
        assert 0 < inside <= box["wide"] * box["tall"]
    for (name, share), (other, less) in pairwise(seen):
        assert times[name] / times[other] == pytest.approx(share / less, rel=1e-3)
    canvas.click(position={"x": outer[0]["left"] + 20, "y": outer[0]["top"] + 5})
    assert canvas.get_attribute("data-root") == seen[0][0]
    zoomed = canvas.evaluate("canvas => canvas.boxes")
    assert zoomed[0]["wide"] * zoomed[0]["tall"] == pytest.approx(whole, rel=0.01)
    canvas.focus()
    page.keyboard.press("0")
    assert len(canvas.evaluate("canvas => canvas.boxes")) == len(boxes)
    assert page.locator("#kernels details.shape").count() == 40


def test_figures_below_the_timeline_come_where_the_browser_is_never_idle(opened: Open) -> None:
    """On a busy machine `requestIdleCallback` calls back when its timeout is over, or never without one."""
    busy = "window.requestIdleCallback = (act, { timeout } = {}) => { if (timeout < 5e3) setTimeout(act, timeout); }"
    page = opened(demo_report(), script=busy).page
    page.locator("#areas summary").first.click()
    until(page, "document.querySelector('#areas figure.flame canvas')?.boxes.length > 10")


def test_steps_are_bars_of_their_parts_and_keys_lead_to_the_timeline(opened: Open) -> None:
    page = opened(demo_report()).page
    page.wait_for_selector("#timeline canvas[data-to]")
    cells = "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => +cell.dataset.value))"
    steps = page.locator("#steps details table").evaluate(cells)
    assert len(steps) == 11
    for _, period, *parts in steps:
        assert len(parts) > 8
        assert sum(parts) == pytest.approx(period, abs=len(parts))
    page.locator("#step-plot").focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert "idle: input pipeline" in page.locator("#steps .u-legend").inner_text()
    shown = page.locator("#timeline canvas[data-to]")
    assert float(shown.get_attribute("data-to")) - float(shown.get_attribute("data-from")) == steps[1][1]


def _holds(one: dict[str, float], other: dict[str, float]) -> bool:
    return (
        one["node"] != other["node"]
        and one["left"] <= other["left"]
        and one["top"] <= other["top"]
        and other["left"] + other["wide"] <= one["left"] + one["wide"] + 1e-6
        and other["top"] + other["tall"] <= one["top"] + one["tall"] + 1e-6
    )


def test_the_figures_of_a_comparison_hold_the_change_of_the_tables(opened: Open) -> None:
    page = opened(compare_report()).page
    until(page, "document.querySelectorAll('figure.flame canvas').length === 3")
    until(page, "document.querySelectorAll('figure.timeline canvas[data-to]').length === 2")
    trees = page.evaluate("Capture.unpacked(document.getElementById('flames').content.textContent)")
    kinds = "table => [...table.tBodies[0].rows].map(row => [row.cells[0].innerText, +row.cells[3].dataset.value])"
    change = dict(page.get_by_role("table", name="Where the change is").evaluate(kinds))
    idle = sum(_roots(trees["idle"], "after")) - sum(_roots(trees["idle"], "before"))
    assert idle == pytest.approx(change["idle"], abs=20) != 0  # nanoseconds, of tenths each
    gpu = sum(_roots(trees["device"], "after")) - sum(_roots(trees["device"], "before"))
    assert gpu == pytest.approx(change["compute"] + change["exposed copy"], abs=0.02 * abs(change["idle"]))
    host = sum(_roots(trees["host"], "after")) - sum(_roots(trees["host"], "before"))
    assert host < change["idle"] < 0  # the host waited less, and did less
    canvas, told = page.locator("[data-flame=idle] canvas"), page.locator("[data-flame=idle] output.picked")
    box = canvas.evaluate("canvas => canvas.boxes[0]")
    canvas.hover(position={"x": box["left"] + box["wide"] / 2, "y": box["top"] + 5})
    assert told.inner_text().startswith("input pipeline: 1.8") and "0 ns after: -1.8" in told.inner_text()
    first, second = page.locator("figure.timeline canvas[data-to]").all()
    assert first.get_attribute("data-to") == second.get_attribute("data-to")
    first.focus()
    page.keyboard.press("+")
    assert 0 < float(first.get_attribute("data-from")) == float(second.get_attribute("data-from"))
    assert page.locator("svg.bar").count() == 2


def _roots(tree: dict[str, list[Any]], side: str) -> list[float]:
    return [time for above, time in zip(tree["parent"], tree[side], strict=True) if above < 0]


def test_a_point_below_the_roofs_says_what_its_sheet_says(opened: Open) -> None:
    trace = unpacked(KERNELS)
    shown = opened(render_page(moves_page("gemm and itself", trace, trace), Style()), scheme="dark")
    page, told = shown.page, shown.page.locator("output.picked")
    page.locator("figure.picture circle:has(title)").nth(-3).hover()
    sheet = kernel_sheets(trace)[-1]
    assert told.inner_text().startswith(sheets_page([sheet], {}).title)
    roof = sheet.limits.roofline.memory_of("dram")
    assert f"{bytes_text(roof.bytes)} of DRAM" in told.inner_text()
    first = told.inner_text()
    page.locator("figure.picture").focus()
    page.keyboard.press("ArrowRight")
    assert "of L2" in told.inner_text() != first
    assert "fp8 tensor" in page.locator("figure.picture").inner_text()
    assert violations(shown) == shown.complaints == []


def test_memory_is_drawn_by_class_and_by_segment_in_bytes(opened: Open) -> None:
    page = memory_page(unpacked(SNAPSHOT), 10, None)
    over_time, segments = page.charts
    peak = page.table("peaks")["peak_bytes"].item()
    assert max(map(sum, zip(*(band.bytes for band in over_time.bands), strict=True))) == peak
    reserved = dict(page.table("allocator").select("what", "bytes").rows())["reserved, the sum of these"]
    assert sum(segments.bytes_of.values()) == reserved
    shown = opened(render_page(page, Style()), width=390)
    wide = """codes => [...document.querySelectorAll('figure.picture')[1].querySelectorAll('rect')].filter(
        box => box.querySelector('title')?.textContent.startsWith('library')).reduce(
        (sum, box) => sum + box.width.baseVal.value, 0)"""
    cells = sum(len(line) for line in segments.lines)
    used = next(size for code, size in segments.bytes_of.items() if segments.names[code] == "library workspaces")
    line = shown.page.evaluate("document.querySelectorAll('figure.picture')[1].querySelector('line').x1.baseVal.value")
    assert line > 0
    share = shown.page.evaluate(wide) / (670 * len(segments.lines))
    assert abs(share - used / reserved) < 4 / cells
    assert violations(shown) == shown.complaints == []
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
