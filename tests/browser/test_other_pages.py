"""Pages of kernels, ranks, spikes and comparisons in a browser: each loads nothing and can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any

import polars as pl
import pytest
from tests.browser.pages import ROOT, Pages, compare_report, kernels_report, unpacked_report, violations

from timesink.diagnosis.engine import diagnose
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.render.html import html_report

Open = Callable[..., Any]


def two_ranks() -> str:
    """The report of the bundled trace and of its copy as rank 1."""
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.gz")) as path:
        trace = read(path, cache=False)
    tables = {table: pl.concat([rows, _second(rows)]) for table, rows in trace.tables.items()}
    both = Trace("two ranks", {table: table.build(rows.to_dict()) for table, rows in tables.items()})
    return html_report(both, diagnose(both))


def _second(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(1, rows.schema["rank"]).alias("rank")) if "rank" in rows.columns else rows.clear()


def spikes() -> str:
    return unpacked_report(ROOT / "tests" / "data" / "compile" / "gc.1.rank0.json.xz")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return Pages({"kernels": kernels_report, "spikes": spikes, "ranks": two_ranks, "compare": compare_report})


@pytest.mark.parametrize("name", ["kernels", "spikes", "ranks", "compare"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_loads_nothing_complains_of_nothing_and_is_accessible(
    opened: Open, pages: dict[str, str], name: str, width: int, scheme: str
) -> None:
    assert len(pages[name].encode()) < 1_000_000  # two ranks of 36,000 events each
    shown = opened(pages[name], width=width, scheme=scheme)
    assert [url.split(":")[0] for url in shown.requests] == ["file"]
    assert shown.complaints == []
    assert violations(shown) == []
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_of_kernels_shows_roofs_limiters_and_stalls(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["kernels"]).page
    assert page.locator("#profiled figure.picture svg").count() == 1
    kernels = page.locator("#profiled > .scroll table").first.locator("tbody tr").count()
    assert page.locator("#profiled > details").count() == kernels == 6
    assert page.locator("#profiled > details").first.locator("table").count() == 2
    assert "lg_throttle" in page.locator("#profiled > details").first.inner_text()
    assert "of the recorded time" in page.locator("#findings .gain").first.inner_text()


def test_ranks_are_a_heat_map_with_a_row_each(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["ranks"]).page
    assert page.locator("table.heat tbody tr").count() == 2
    assert page.locator("svg.bar").count() == 2
    assert page.locator("table.heat td.h9").count() > 0


def test_a_slow_step_is_marked_and_its_cause_named(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["spikes"]).page
    legend = page.locator("#steps .u-legend").inner_text()
    assert "stands out" in legend
    assert re.search(r"p50\d[\d.]+ ms", legend.replace("\n", ""))
    page.locator("#steps summary").click()
    assert "untraced pause" in page.locator("#steps details table").inner_text()


def test_the_parts_of_a_comparison_sum_to_the_change(opened: Open, pages: dict[str, str]) -> None:
    page = opened(pages["compare"]).page
    deltas = "table => [...table.tBodies[0].rows].map(row => Number(row.cells[3].dataset.value))"
    tables = [page.get_by_role("table", name=name) for name in ("Where the change is", "What the change is made of")]
    kinds, parts = (table.evaluate(deltas) for table in tables)
    assert sum(kinds) == sum(parts) < -3_000_000
    assert tables[1].locator("rect.less").count() >= 6


def test_long_tables_are_folded_until_asked_for_and_whole_on_paper(opened: Open) -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.gz")) as path:
        trace = read(path, cache=False)
    page = opened(html_report(trace, diagnose(trace))).page
    visible = "document.querySelectorAll('#kernels tbody tr').values().filter(r => r.offsetHeight).toArray().length"
    assert page.evaluate(visible) == 12
    page.emulate_media(media="print")
    assert page.evaluate(visible) == 40
    page.emulate_media(media="screen")
    page.get_by_role("button", name="show all 40").first.click()
    assert page.evaluate(visible) == 40
