"""The figures of a page, driven by pointer and keys: what they show is what the tables hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.browser.pages import KERNELS, SNAPSHOT, unpacked, violations

from timesink.measures.counters.sheet import kernel_sheets
from timesink.render.formats import Style
from timesink.render.html import render_page
from timesink.units import bytes_text
from timesink.views.kernel_comparison import moves_page
from timesink.views.kernel_sheet import sheets_page
from timesink.views.memory import memory_page

Open = Callable[..., Any]


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
