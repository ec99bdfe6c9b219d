"""The report in a real browser: it asks for nothing, complains of nothing, shows names as text, and can be used."""

from collections.abc import Callable
from importlib.resources import as_file, files

import polars as pl
import pytest
from tests.browser.pages import demo_report, hostile, violations
from tests.render.test_hostile_names import HOSTILE, page

from timesink.diagnosis.engine import diagnose
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.render import Format, render
from timesink.render.html import html_report
from timesink.render.html import render as render_report

Open = Callable[..., "object"]


@pytest.fixture(scope="module")
def trace() -> Trace:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        return read(path, cache=False)


@pytest.fixture(scope="module")
def demo() -> str:
    return demo_report()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_real_report_loads_nothing_and_is_accessible(opened: Open, demo: str, width: int, scheme: str) -> None:
    shown = opened(demo, width=width, scheme=scheme)
    assert [url.split(":")[0] for url in shown.requests] == ["file"]
    assert shown.complaints == []
    assert violations(shown) == []
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_real_report_is_small_and_opens_quickly(opened: Open, demo: str) -> None:
    assert len(demo.encode()) < 660_000  # with every one of its 36,000 events, and its figures
    page = opened("").page
    counters = page.context.new_cdp_session(page)
    counters.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time: the machine may be busy
    page.set_content(demo)
    page.wait_for_selector("#timeline canvas[data-to]")
    taken_s = {metric["name"]: metric["value"] for metric in counters.send("Performance.getMetrics")["metrics"]}
    assert 0 < taken_s["TaskDuration"] < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(opened: Open, name: str) -> None:
    for text in (render_report(hostile(name)), render(page(name), Format.HTML)):
        shown = opened(text)
        assert len(shown.requests) == 1
        assert shown.complaints == []
        assert (
            shown.page.evaluate("document.querySelectorAll('img, iframe, object, embed, link, base, form').length") == 0
        )
        assert shown.page.evaluate("document.scripts.length") <= 2
        assert shown.page.evaluate("[...document.querySelectorAll('a')].every(a => a.getAttribute('href')[0] === '#')")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [HOSTILE[0], next(name for name in HOSTILE if name.startswith("<script>")), "x" * 20_000]
)
def test_a_trace_of_hostile_names_makes_a_page_like_any_other(opened: Open, trace: Trace, name: str) -> None:
    column = pl.lit(name.encode("utf-8", "replace").decode("utf-8")).cast(pl.Categorical()).alias("name")
    named = (DEVICE_OPS, HOST_OPS, RANGES, API_CALLS)
    tables = {t: rows.with_columns(column) if t in named else rows for t, rows in trace.tables.items()}
    hostile_trace = Trace(name[:200], tables, trace.notes)
    text = html_report(hostile_trace, diagnose(hostile_trace))
    assert len(text.encode()) < 660_000
    shown = opened(text)
    assert len(shown.requests) == 1
    assert shown.complaints == []
    assert violations(shown) == []
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert shown.page.locator("figure.timeline canvas[data-to]").count() > 0
    code = shown.page.locator("#kernels td.name code").first  # its short name, and beside it the whole
    assert name.strip()[:20] in f"{code.get_attribute('title')}{code.inner_text()}" or "\x1b" in name


def test_a_script_that_is_not_ours_does_not_run(opened: Open, demo: str) -> None:
    forged = demo.replace("</main>", "</main><script>window.forged = 1</script><img src=x onerror='window.forged = 2'>")
    shown = opened(forged)
    assert shown.page.evaluate("window.forged") is None
    assert any("Content Security Policy" in complaint for complaint in shown.complaints)


def test_the_pictures_are_drawn(opened: Open, demo: str) -> None:
    shown = opened(demo)
    colours = """canvas => new Set(new Uint32Array(
        canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
    shown.page.wait_for_selector("#timeline canvas[data-tops]")
    for canvas in shown.page.locator("canvas").all():
        assert canvas.evaluate(colours) > 3
    assert shown.page.locator("svg.bar rect").count() >= 3
    assert shown.page.locator("#memory figure.picture svg").count() == 1


def test_tables_sort_by_value_both_ways(opened: Open, demo: str) -> None:
    shown = opened(demo)
    table = shown.page.locator("#kernels table")
    head = table.get_by_role("columnheader", name="launches")
    values = "table => [...table.tBodies[0].rows].map(row => Number(row.cells[4].dataset.value))"
    head.get_by_role("button").click()
    falling = table.evaluate(values)
    assert falling == sorted(falling, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").focus()
    shown.page.keyboard.press("Enter")
    assert table.evaluate(values) == sorted(falling)
    assert len(set(falling)) > 3


def test_every_figure_has_a_table_twin(demo: str, opened: Open) -> None:
    shown = opened(demo)
    bars = shown.page.locator("svg.bar rect").count()
    assert shown.page.locator("table.legend tbody tr").count() == bars
    figures = shown.page.locator("figure.timeline").count()
    assert figures == 1 + shown.page.locator("#findings article").count() >= 4
    flames = shown.page.locator("figure.flame").count()
    assert flames == 4
    assert figures + flames == shown.page.locator("details.twin table").count()
    assert shown.page.locator("#steps details table tbody tr").count() == 11


def test_tab_reaches_all_that_can_be_clicked_and_enter_opens_a_finding(opened: Open, demo: str) -> None:
    """Links, buttons, folds, fields and pictures that are shown: one round of Tab stops at each of them."""
    page = opened(demo).page
    page.wait_for_selector("#timeline canvas[data-tops]")
    wanted = page.evaluate("""() => {
        const all = [...document.querySelectorAll('a[href], button, summary, input, select, [tabindex="0"]')];
        const shown = all.filter(one => one.checkVisibility({visibilityProperty: true}) && !one.disabled
            && one.tabIndex >= 0 && (one.type !== 'radio' || one.checked));
        shown.forEach((one, at) => one.dataset.stop = at);
        return shown.length;
    }""")
    stops = set()
    for _ in range(2 * wanted):
        page.keyboard.press("Tab")
        stops.add(page.evaluate("document.activeElement.dataset.stop"))
        if len(stops - {None}) == wanted:
            break
    missed = page.evaluate(
        "seen => [...document.querySelectorAll('[data-stop]')].filter(one => !seen.includes(one.dataset.stop))"
        ".map(one => one.outerHTML.slice(0, 120))",
        sorted(stops - {None}),
    )
    assert wanted > 30 and missed == []
    fold = page.locator("#findings summary").first
    fold.focus()
    was = fold.evaluate("one => one.parentElement.open")
    page.keyboard.press("Enter")
    assert fold.evaluate("one => one.parentElement.open") != was
