"""The timeline in a real browser: what it draws is what the tables hold, and a person can find, follow and measure."""

import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.browser.gallery import strips_report
from tests.browser.pages import demo_report, until, violations
from tests.tables import trace_of

from timesink.cli.serve import Server
from timesink.diagnosis.engine import diagnose
from timesink.measures.timeline import device_timeline
from timesink.model.span import Span
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.model.window import Window
from timesink.readers import read
from timesink.render.html import render, timeline_page
from timesink.views import Report
from timesink.views.figures import Timeline
from timesink.views.timeline import timeline_of
from timesink.views.timeline.runs import fitted
from timesink.views.timeline.tiles import Tiles

Open = Callable[..., Any]
WHOLE = "#timeline figure"
CANVAS = f"{WHOLE} canvas[data-tops]"
GAP_AT, GAP_LENGTH = 61_000_000, 3_000  # ns


def of_rows(rows: list[tuple[str, int, int, int]]) -> Trace:
    """A trace of kernels: name, stream, start and end in ns."""
    table = [f"| k | {name} | {stream} | {start / 1e3} | {end / 1e3} |" for name, stream, start, end in rows]
    return trace_of("\n".join(["| device_ops | name | stream | start_us | end_us |", *table]))


def page_of(trace: Trace, most_runs: int = 100_000) -> str:
    return render(Report(diagnose(trace), timeline=timeline_of(trace, most_runs=most_runs)))


def shown(opened: Open, text: str) -> Any:
    page = opened(text)
    page.page.wait_for_selector(CANVAS)
    return page


def view(figure: Any) -> tuple[float, float]:
    canvas = figure.locator("canvas[data-to]")
    return float(canvas.get_attribute("data-from")), float(canvas.get_attribute("data-to"))


def drawn(page: Any, lane: int, row: int = 0) -> list[bool | None]:
    """For each pixel of a row of the whole timeline, whether anything stands there; None on lines of the axis."""
    tops = json.loads(page.locator(CANVAS).get_attribute("data-tops"))
    script = """(canvas, y) => {
        const pen = canvas.getContext('2d'), width = canvas.width, out = [];
        const data = pen.getImageData(0, y, width, 9).data;
        const below = pen.getImageData(0, canvas.height - 1, width, 1).data;
        for (let x = 0; x < width; x += 1) {
            let rows = 0;
            for (let y = 0; y < 9; y += 1) rows += data[4 * (y * width + x) + 3] > 15;
            out.push(below[4 * x + 3] ? null : rows > 6);
        }
        return out;
    }"""
    return page.locator(CANVAS).evaluate(script, tops[str(lane)] + row * 15 + 2)


def settle(page: Any) -> None:
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def random_trace(seed: int) -> Trace:
    """Kernels of one stream: bursts of very short ones, long ones, gaps of every length."""
    some, time, rows = random.Random(seed), 0, []
    for _ in range(1500):
        length = int(10 ** some.uniform(0, 5))
        rows.append((some.choice(["gemm", "relu", "softmax"]), 7, time, time + length))
        time += length + (0 if some.random() < 0.5 else int(10 ** some.uniform(0, 5)))
    return of_rows(rows)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "most_runs"), [(1, 100_000), (2, 100_000), (3, 300)])
def test_what_is_drawn_is_what_ran(opened: Open, seed: int, most_runs: int) -> None:
    """At every zoom a pixel is drawn where something ran for half of it, and blank where nothing ran near it;
    where short events are joined, gaps no longer than they are may be covered, never the other way round."""
    trace = random_trace(seed)
    timeline = timeline_of(trace, most_runs=most_runs)
    assert timeline is not None
    start_ns, end_ns = (trace[DEVICE_OPS][key].to_numpy() - timeline.start_ns for key in ("start_ns", "end_ns"))

    def ran_ns(low: float, high: float) -> float:
        return float(np.clip(np.minimum(end_ns, high) - np.maximum(start_ns, low), 0, None).sum())

    lane = next(at for at, lane in enumerate(timeline.lanes) if lane.kind == "stream")
    page = shown(opened, page_of(trace, most_runs)).page
    figure = page.locator(WHOLE)
    blank = 0
    for _ in range(12):
        settle(page)
        start, end = view(figure)
        pixels = drawn(page, lane)
        scale = (end - start) / len(pixels)
        for at, is_drawn in enumerate(pixels):
            if is_drawn is None or not 2 <= at < len(pixels) - 2:
                continue
            low = start + at * scale
            place = f"pixel {at} of {start:.0f} to {end:.0f}"
            assert is_drawn or ran_ns(low, low + scale) < scale / 2, f"a false gap at {place}"
            if is_drawn and timeline.merged_below_ns < scale:
                around = (end_ns > low - scale) & (start_ns < low + 2 * scale)
                assert around.any(), f"a false event at {place}"
            blank += not is_drawn
        figure.get_by_role("button", name="zoom in").click()
    assert blank > 100


@pytest.fixture(scope="module")
def planted() -> Trace:
    """A hundred thousand kernels end to end, one gap of 3 us before a kernel called late."""
    one = trace_of("| device_ops | name | stream | start_us | end_us |\n| k | filler | 7 | 0 | 1 |")
    times = [at * 1000 for at in range(100_000) if not GAP_AT <= at * 1000 < GAP_AT + GAP_LENGTH]
    starts = pl.Series("start_ns", times)
    names = pl.Series("name", ["late" if start == GAP_AT + GAP_LENGTH else "filler" for start in times])
    columns = starts, (starts + 1000).alias("end_ns"), names.cast(pl.Categorical())
    ops = one[DEVICE_OPS][np.zeros(len(times), np.int64)].with_columns(*columns)
    return Trace("planted", {**one.tables, DEVICE_OPS: DEVICE_OPS.check(ops)}, ())


@pytest.mark.slow
def test_a_planted_gap_is_found_by_search_and_zoom_at_every_level(opened: Open, planted: Trace) -> None:
    page = shown(opened, page_of(planted, most_runs=1_000_000)).page
    figure = page.locator(WHOLE)
    figure.locator("input").fill("late")
    assert figure.locator(".found").text_content() == "1 of 1"
    figure.locator("canvas[data-to]").focus()
    seen, stream = 0, max(json.loads(page.locator(CANVAS).get_attribute("data-tops")), key=int)
    while (span := view(figure)[1] - view(figure)[0]) > 2_000:
        settle(page)
        pixels = drawn(page, int(stream))
        scale, start = span / len(pixels), view(figure)[0]
        first, last = (GAP_AT - start) / scale, (GAP_AT + GAP_LENGTH - start) / scale
        inside = pixels[max(int(first) + 1, 2) : max(min(int(last) - 1, len(pixels)), 0)]
        assert not any(inside), f"the gap is not blank at {span:.0f} ns"
        filled = pixels[2 : max(int(first) - 1, 2)]
        assert False not in filled, f"another gap at {span:.0f} ns"
        seen += len(inside) > 0
        page.keyboard.press("w")
    assert seen >= 5
    assert any(drawn(page, int(stream) - 1))  # the idle lane holds what the stream does not


@pytest.fixture
def served(context: Any, planted: Trace) -> Iterator[tuple[Any, list[str], Timeline, Server]]:
    """A page of twenty boxes that asks for the others, what went wrong with it, the timeline, and who serves it."""
    timeline = timeline_of(planted, most_runs=1_000_000)
    assert timeline is not None
    with Server(0, "token", timeline_page(fitted(timeline, 20), live=True, awaits=True), Tiles(timeline)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        context.set_offline(False)
        page, wrong = context.new_page(), []
        page.set_default_timeout(20_000)
        page.on("request", lambda asked: None if asked.url.startswith(server.address) else wrong.append(asked.url))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        try:
            page.goto(server.address)
            yield page, wrong, timeline, server
        finally:
            page.close()
            context.set_offline(True)
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_a_served_timeline_shows_every_event_at_close_sight(served: tuple[Any, list[str], Timeline, Server]) -> None:
    page, wrong, timeline, server = served
    page.wait_for_selector(f"{CANVAS}[data-tile]")
    figure = page.locator(WHOLE)
    figure.locator("input").fill("late")
    figure.locator(".found").filter(has_text="1 of 1").wait_for()
    for _ in range(13):
        figure.get_by_role("button", name="zoom in").click()
    start, end = view(figure)
    until(page, f"Number(document.querySelector('{CANVAS}').dataset.tile) < {(end - start) / 500}")
    settle(page)
    pixels = drawn(page, next(at for at, lane in enumerate(timeline.lanes) if lane.kind == "stream"))
    scale = (end - start) / len(pixels)
    first, last = int((GAP_AT - start) / scale), int((GAP_AT + GAP_LENGTH - start) / scale)
    assert last - first > 100
    assert not any(pixels[max(first, 0) + 2 : last - 1])
    assert pixels[last + 3 :].count(True) > 20
    figure.get_by_role("button", name="where the time").click()
    row = figure.locator(".budget tr").filter(has_text="idle").first
    assert 0 < float(row.get_attribute("data-ns")) <= GAP_LENGTH
    assert "Analyzing" in page.get_by_role("status").first.inner_text()
    assert wrong == []
    server.show("other", "<h1>the report</h1>", Tiles(timeline))
    page.get_by_role("link", name="Show the report").click()
    assert page.locator("h1").inner_text() == "the report"


def test_joined_boxes_are_searched_and_say_what_they_hold(opened: Open) -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        trace = read(path, cache=False)
    page = shown(opened, page_of(trace, 3000)).page
    figure = page.locator(WHOLE)
    figure.locator("input").fill("nvjet")
    told = figure.locator(".found").text_content()
    count = trace[DEVICE_OPS]["name"].cast(pl.String).str.contains("nvjet").sum()
    assert told.startswith("1 of ")
    assert told.endswith(f", {count} events")
    figure.get_by_role("button", name="next match").click()
    assert re.search(r"short events, .*: \d+ × .*gemm bf16", figure.locator(".picked").text_content())


def test_a_kernel_leads_to_its_launch_and_its_operator(opened: Open) -> None:
    page = shown(opened, demo_report()).page
    figure = page.locator(WHOLE)
    figure.locator("input").fill("gemm")
    figure.get_by_role("button", name="next match").click()
    picked = figure.locator(".picked")
    assert "nvjet" in picked.text_content()
    picked.get_by_role("button", name="in aten::").first.click()
    assert picked.text_content().startswith("aten::")
    assert figure.locator(".found").text_content().startswith("2 of ")
    figure.get_by_role("button", name="next match").click()
    picked.get_by_role("button", name="launched by").click()
    assert "aunch" in picked.text_content()
    picked.get_by_role("button", name="launched").first.click()
    assert "nvjet" in picked.text_content() or "gemm" in picked.text_content()


def test_an_interval_has_the_budget_that_the_tables_give_it(opened: Open) -> None:
    trace = of_rows(
        [("gemm", 7, 0, 40_000), ("ncclDevKernel_AllReduce", 20, 30_000, 70_000), ("gemm", 7, 80_000, 100_000)]
    )
    page = shown(opened, page_of(trace)).page
    figure = page.locator(WHOLE)
    figure.get_by_role("button", name="where the time").click()
    line = device_timeline(trace)[0, 0]
    rows = figure.locator(".budget tr")
    told = {row.locator("th").text_content(): int(row.get_attribute("data-ns")) for row in rows.all()}
    assert told["compute"] == line.compute_ns == 60_000
    assert told["exposed communication"] == line.exposed_communication.total_ns == 30_000
    assert told["idle"] == line.idle_ns == 10_000
    canvas = figure.locator("canvas[data-to]")
    box = canvas.bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 8, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    told = {row.locator("th").text_content(): float(row.get_attribute("data-ns")) for row in rows.all()}
    assert told["exposed communication"] == pytest.approx(20_000, abs=300)
    assert told["idle"] == pytest.approx(5_000, abs=300)


def test_a_budget_is_that_of_the_window_that_it_names(opened: Open) -> None:
    page = shown(opened, demo_report()).page
    figure = page.locator(WHOLE)
    for _ in range(3):
        figure.get_by_role("button", name="zoom in").click()
    figure.get_by_role("button", name="where the time").click()
    rows = {row.locator("th").text_content(): row for row in figure.locator(".budget tr").all()}
    told = {name: float(row.get_attribute("data-ns")) for name, row in rows.items()}
    window, again = (code.text_content().split()[-1] for code in figure.locator(".budget code").all())
    assert window == again  # of `summary --window` and of `open --at`
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        trace = read(path, cache=False)
    assert trace.extent_ns is not None
    (line,) = device_timeline(trace.within(Window.of(Span.parse(window), *trace.extent_ns)))
    assert told["compute"] == pytest.approx(line.compute_ns, abs=2)
    assert told["exposed copies"] == pytest.approx(line.exposed_copy.total_ns, abs=2)


def test_a_step_of_the_plot_is_shown_in_the_timeline(opened: Open) -> None:
    page = shown(opened, demo_report()).page
    before = view(page.locator(WHOLE))
    page.locator("#step-plot .u-over").click()
    after = view(page.locator(WHOLE))
    assert before[0] < after[0] < after[1] < before[1]
    assert 10e6 < after[1] - after[0] < 20e6


def test_the_timeline_zooms_and_moves_by_button_key_and_wheel(opened: Open) -> None:
    page = shown(opened, demo_report()).page
    figure = page.locator(WHOLE)
    first, last = view(figure)
    figure.get_by_role("button", name="zoom in").click()
    near = view(figure)
    assert near[1] - near[0] == pytest.approx((last - first) / 2)
    canvas = figure.locator("canvas[data-to]")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert view(figure)[0] == pytest.approx(near[0] + 0.2 * (near[1] - near[0]))
    page.keyboard.press("+")
    assert view(figure)[1] - view(figure)[0] == pytest.approx((last - first) / 4)
    page.keyboard.press("0")
    assert view(figure) == (first, last)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    until(page, f"Number(document.querySelector('{WHOLE} canvas[data-to]').dataset.to) < {last}")
    assert view(figure)[1] - view(figure)[0] == pytest.approx(0.8 * (last - first))


def test_a_finding_leads_to_its_place_and_back(opened: Open) -> None:
    page = shown(opened, demo_report()).page
    page.locator("#finding-1 summary").first.click()
    finding = page.locator("#finding-1 figure")
    finding.get_by_role("button", name="show this place").click()
    assert view(page.locator(WHOLE)) == view(finding)
    figure = page.locator(WHOLE)
    figure.get_by_role("button", name="show the whole capture").click()
    figure.locator("canvas[data-to]").focus()
    page.keyboard.press("n")  # the first event of the first lane: a mark of a finding
    number = figure.locator(".picked").text_content().removeprefix("finding ").split(":")[0]
    assert figure.locator(".picked a").get_attribute("href") == f"#finding-{int(number)}"


def test_the_timeline_can_be_read_without_seeing_it(opened: Open) -> None:
    page = shown(opened, demo_report()).page
    figure = page.locator(WHOLE)
    figure.locator("canvas[data-to]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert figure.locator(".picked").text_content().startswith("lane GPU 0 stream 7, ")
    told = []
    for key in "nnp":
        page.keyboard.press(key)
        told.append(figure.locator(".picked").text_content())
    assert told[0] == told[2] != told[1]


def test_a_flame_graph_zooms_and_tells_the_share_of_what_is_searched(opened: Open) -> None:
    page = opened(demo_report()).page
    page.wait_for_selector("figure.flame canvas[data-rows]")
    figure = page.locator("figure.flame[data-flame=device]")
    figure.locator("canvas").focus()
    told = []
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        told.append(figure.locator(".picked").text_content())
    assert told[0].startswith("ProfilerStep: ")
    assert told[1].startswith("ProfilerStep › Optimizer.step#AdamW.step: ")
    assert told[2].startswith("ProfilerStep › aten::linear: ")
    page.keyboard.press("Enter")
    assert figure.locator("canvas").get_attribute("data-root") == "aten::linear"
    page.keyboard.press("0")
    assert figure.locator("canvas").get_attribute("data-root") == ""
    figure.locator("input").fill("ProfilerStep")
    share = float(figure.locator(".found").text_content().split(" %")[0])
    assert told[0].split(", ")[1] == f"{share:g} %"
    figure.locator("input").fill("no such name")
    assert figure.locator(".found").text_content() == "0 %, 0 ns"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (768, "light"), (1280, "dark")])
def test_a_strip_of_every_rank_is_drawn_at_its_time(opened: Open, width: int, scheme: str) -> None:
    page = opened(strips_report(), width=width, scheme=scheme)
    page.page.wait_for_selector(CANVAS)
    assert violations(page) == []
    assert page.complaints == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    script = """(canvas, [top, high]) => {
        const { width } = canvas, data = (y) => canvas.getContext('2d').getImageData(0, y, width, 1).data;
        return Array.from({ length: 40 }, (_, rank) => {
            const row = data(top + rank * high + 5);
            const blue = (at) => row[at + 3] > 60 && row[at + 2] > row[at] + 25;
            const drawn = Array.from({ length: width }, (_, x) => blue(4 * x));
            return [drawn.indexOf(true) / width, drawn.lastIndexOf(true) / width];
        });
    }"""
    top = json.loads(page.page.locator(CANVAS).get_attribute("data-tops"))["0"]
    found = page.page.locator(CANVAS).evaluate(script, [top, 12])
    for rank, (_, last) in enumerate(found):  # its beginning may lie under its number
        assert last == pytest.approx((rank + 40) / 79, abs=0.02)


def test_escape_closes_what_is_open(opened: Open) -> None:
    page = shown(opened, demo_report()).page
    figure = page.locator(WHOLE)
    canvas, told = figure.locator("canvas[data-to]"), figure.locator("output.picked").first
    canvas.focus()
    page.keyboard.press("b")
    page.keyboard.press("n")
    assert figure.locator(".budget tr").count() and told.inner_text()
    page.keyboard.press("Escape")
    assert figure.locator(".budget tr").count() == 0 and told.inner_text() == ""
    help_text = figure.get_by_text("Escape closes what is open")
    figure.get_by_role("button", name="what the pointer and keys do").click()
    assert help_text.is_visible()
    page.keyboard.press("Escape")
    assert help_text.is_hidden()
    flames = page.locator("[data-flame] canvas").first
    whole = flames.evaluate("canvas => canvas.boxes.length")
    flames.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert flames.evaluate("canvas => canvas.boxes.length") != whole
    page.keyboard.press("Escape")
    assert flames.evaluate("canvas => canvas.boxes.length") == whole
