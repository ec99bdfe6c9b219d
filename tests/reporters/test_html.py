"""The HTML reports without a browser: whole documents whose policy names exactly the style and script they hold."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import as_file, files

import lxml.html
import pytest
from tests.reporters.diagnoses import diagnosis, healthy
from tests.reporters.test_hostile_names import HOSTILE, page

from timesink.cli.app import run
from timesink.reporters import Format, render
from timesink.reporters.html.prose import prose, section
from timesink.reporters.sheets import render as render_page

UPLOT = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"  # dist/uPlot.iife.min.js of uplot@1.6.32
LISTINGS = ("diagnose", "summary", "idle", "tables")


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
    policy_holds(render_page(page(name), Format.HTML))


def test_a_healthy_report_says_so() -> None:
    html = render(healthy(), Format.HTML)
    policy_holds(html)
    assert "No rule found a pattern that costs time." in html


def test_data_on_the_page_is_the_data_that_was_given() -> None:
    name = "</script><script>alert(1)</script>"
    tree = lxml.html.document_fromstring(render(diagnosis(name), Format.HTML))
    (data,) = tree.xpath("//script[@type='application/json']/text()")
    assert json.loads(data).keys() == {"names", "windows", "series"}
    assert name in tree.text_content()


def test_the_library_is_the_one_that_was_published_and_its_licence_is_there() -> None:
    assets = files("timesink.reporters.html").joinpath("assets")
    assert hashlib.sha256(assets.joinpath("uPlot.iife.min.js").read_bytes()).hexdigest() == UPLOT
    assert "Permission is hereby granted" in assets.joinpath("uPlot-LICENSE.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", LISTINGS)
def test_every_listing_command_writes_html(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with as_file(files("timesink").joinpath("demo/gpt_before.json.gz")) as path:
        assert run([command, str(path), "--format", "html", "--no-cache"]) == 0
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
