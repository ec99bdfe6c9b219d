"""The HTML reports without a browser: whole documents whose policy names exactly the style and script they hold."""

import base64
import hashlib
import json
import lzma
import re
from importlib.resources import as_file, files
from pathlib import Path

import lxml.html
import pytest
from tests.render.diagnoses import diagnosis, healthy
from tests.render.test_hostile_names import HOSTILE, page

import timesink
from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.model.tables import KERNEL_METRICS
from timesink.readers import read
from timesink.records import replace
from timesink.render import Format, render
from timesink.render.html import html_report
from timesink.render.html.sections import prose, section
from timesink.units import share_text
from timesink.views import Cell, Field, Page, Sheet, sheet_of, without_columns
from timesink.views.report import step_series
from timesink.views.timeline import timeline_of

UPLOT = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"  # dist/uPlot.iife.min.js of uplot@1.6.32
LISTINGS = ("diagnose", "show", "show idle", "show tables")


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy_holds(html: str) -> None:
    tree = lxml.html.document_fromstring(html)
    (policy,) = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    (style,) = tree.xpath("//style/text()")
    assert rules["style-src"] == digest(style)
    scripts = tree.xpath("//script[not(@type='application/json')]/text()")
    assert rules["script-src"] == (digest(scripts[0]) if scripts else "'none'")
    assert len(scripts) <= 1
    assert not tree.xpath("//@style | //@onclick | //@onerror | //@onload | //@src")


@pytest.mark.parametrize("name", HOSTILE)
def test_the_policy_names_what_the_page_holds_under_any_name(name: str) -> None:
    policy_holds(render(diagnosis(name), Format.HTML))
    policy_holds(render(page(name), Format.HTML))


def test_a_healthy_report_says_so() -> None:
    html = render(healthy(), Format.HTML)
    policy_holds(html)
    assert "No rule found a pattern that costs time." in html


def test_data_on_the_page_is_the_data_that_was_given() -> None:
    name = "</script><script>alert(1)</script>"
    tree = lxml.html.document_fromstring(render(diagnosis(name), Format.HTML))
    (data,) = tree.xpath("//script[@type='application/json']/text()")
    assert json.loads(data).keys() == {"windows", "series"}
    assert name in tree.text_content()


def test_the_library_is_the_one_that_was_published_and_its_licence_is_there() -> None:
    assets = files("timesink.render.html").joinpath("assets")
    assert hashlib.sha256(assets.joinpath("uPlot.iife.min.js").read_bytes()).hexdigest() == UPLOT
    assert "Permission is hereby granted" in assets.joinpath("uPlot-LICENSE.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", LISTINGS)
def test_every_listing_command_writes_html(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        assert run([*command.split(), str(path), "--format", "html"]) == 0
    policy_holds(capsys.readouterr().out)


def test_a_rule_is_a_page_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "IDL101", "--format", "html"]) == 0
    html = capsys.readouterr().out
    policy_holds(html)
    assert "<h2>When it misleads</h2>" in html


def test_prose_makes_no_links_and_lets_no_markup_through() -> None:
    html = str(prose("see [this](javascript:alert(1)) and <b onclick=x>that</b> `code`"))
    assert "<a" not in html
    assert "<b" not in html
    assert "<code>code</code>" in html


def test_a_section_is_what_stands_under_its_heading() -> None:
    doc = "intro\n\n## What to do\nThis.\nAnd this.\n\n## When it misleads\nThen.\n"
    assert section(doc, "what to do") == "This.\nAnd this."
    assert section(doc, "When it misleads") == "Then."
    assert section(doc, "Absent") == ""


def test_a_gain_is_per_window_where_there_are_no_steps() -> None:
    whole = diagnosis()
    card, finding = whole.findings[0]
    for period in ("step", "window"):
        other = replace(whole, findings=((card, replace(finding, period=period)),))
        text = " ".join(lxml.html.document_fromstring(render(other, Format.HTML)).text_content().split())
        assert text.count(f"aves 2.10 ms (17.5 % of the {period})") == 1


def test_bars_are_as_long_as_their_figures_and_changes_have_signs() -> None:
    column = Field("change_ns", "change", unit="ns", has_bar=True, is_change=True)
    sheet = Sheet("rows", "rows", (Field("part", "part"), column), (("a", -2_000), ("b", 1_000), ("c", None)))
    tree = lxml.html.document_fromstring(render(Page("t", (sheet,)), Format.HTML))
    bars = [(rect.get("class"), float(rect.get("x")), float(rect.get("width"))) for rect in tree.xpath("//td//rect")]
    assert bars == [("less", 0, 50), ("more", 50, 25)]
    assert [cell.text.strip() for cell in tree.xpath("//td[@data-value]")] == ["-2.00 us", "+1.00 us", "–"]


def test_columns_that_tell_nothing_apart_are_left_out() -> None:
    def heads(*rows: tuple[Cell, ...]) -> list[str]:
        sheet = sheet_of("kernels", "Kernels", rows, "rank, device, name [name], work [text], count")
        return [column.key for column in without_columns(sheet, ("rank", "device")).columns]

    assert heads((0, 0, "gemm", None, 1), (0, 0, "relu", None, 1)) == ["name", "count"]
    assert heads((0, 0, "gemm", None, 1), (1, 0, "gemm", "gemm bf16", 1)) == ["rank", "name", "work", "count"]


@pytest.mark.parametrize(("statement", "shown"), [("host work", "Host work"), ("data_load on", "data_load on")])
def test_a_name_at_the_beginning_of_the_verdict_keeps_its_letters(statement: str, shown: str) -> None:
    assert f"<h1>{shown}" in render(replace(diagnosis(), statement=statement), Format.HTML)


@pytest.mark.parametrize("form", [Format.TEXT, Format.MD, Format.HTML])
def test_every_report_for_people_says_what_is_said_in_short(form: Format) -> None:
    said = "overlap: the longest stage hides none of the others"
    assert said in " ".join(render(replace(diagnosis(), statements=(said,)), form, width=200, verbose=True).split())


def test_a_report_says_how_busy_a_step_is_and_calls_steps_as_the_program_does() -> None:
    """The window of a capture may be mostly start-up: what the bar is of, the tile is of too."""
    trace = read(Path(timesink.__file__).parent / "cli" / "demo" / "gpt_before.json.xz", cache=False)
    found = diagnose(trace)
    page = html_report(trace, found)
    (budget,) = found.budgets
    assert f"<dt>compute</dt><dd>{share_text(budget.compute_ns / budget.period_ns)}</dd>" in page
    other_ns = sum(part.time_ns for part in budget.parts if part.kind != "compute")
    assert budget.compute_ns == pytest.approx(budget.period_ns - other_ns)
    timeline = timeline_of(trace)
    assert timeline is not None
    (lane,) = [lane for lane in timeline.lanes if lane.kind == "step"]
    shown = {timeline.texts[at] for row in lane.rows for at in row.name.tolist()}
    assert shown == {f"ProfilerStep#{step}" for step in range(2, 13)}
    assert step_series(trace)[0].labels == tuple(f"ProfilerStep#{step}" for step in range(2, 13))


def test_the_first_screen_says_where_a_step_goes_and_what_to_type() -> None:
    trace = read(Path(timesink.__file__).parent / "cli" / "demo" / "gpt_before.json.xz", cache=False)
    page = html_report(trace, diagnose(trace))
    head = page[: page.index("Findings, costliest first")]
    assert "compute 63.0 %" in head and "idle: input pipeline 14.9 %" in head
    assert "<code>timesink explain IDL101</code>" in head and "<code>timesink report" not in head


def test_what_leads_to_a_section_is_called_as_its_heading() -> None:
    """A heading may say more; and below each stands something."""
    for trace in (
        read(Path(timesink.__file__).parent / "cli" / "demo" / f"gpt_{side}.json.xz", cache=False)
        for side in ("before", "after")
    ):
        tree = lxml.html.document_fromstring(html_report(trace, diagnose(trace)))
        links = {link.get("href")[1:]: link.text_content() for link in tree.xpath("//nav//a")}
        assert len(links) > 10
        for key, called in links.items():
            (part,) = tree.xpath(f"//section[@id='{key}'] | //details[@id='{key}']")
            heading = part.xpath(".//h2")[0].text_content()
            assert heading.startswith(called), (called, heading)
            assert len(part.text_content().split()) > len(heading.split()), heading


def test_a_step_has_one_name_in_chart_caption_and_table() -> None:
    trace = read(Path(timesink.__file__).parent / "cli" / "demo" / "gpt_before.json.xz", cache=False)
    page = html_report(trace, diagnose(trace))
    captions = re.findall(r"<figcaption>(\S+), GPU 0 of rank 0", page)
    labels = json.loads(re.search(r'"label":(\[[^\]]*\])', page)[1])  # type: ignore[index]
    assert len(captions) >= 4 and set(captions) <= set(labels)
    assert all(f">{label}<" in page for label in labels)
    assert not re.search(r"<figcaption>Step \d", page)


def test_a_kernel_report_has_a_roofline_or_says_why_not(tmp_path: Path) -> None:
    reports = Path(__file__).parents[2] / "benchmarks" / "kernels" / "reports"
    seen = set()
    for path in sorted(reports.glob("*.ncu-rep.xz"))[:3]:
        (tmp_path / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
        trace = read(tmp_path / path.stem, cache=False)
        bare = replace(trace, tables={**trace.tables, KERNEL_METRICS: trace[KERNEL_METRICS].clear()})
        for one in (trace, bare):
            page = html_report(one, diagnose(one))
            drawn, told = "roofline of profiled kernels" in page, "no roofline: no point for id" in page
            assert drawn != told
            seen.add(drawn)
    assert seen == {True, False}
