"""One test over all reporters: whatever a trace is named, no report acts on it."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.laws import examples
from tests.render.diagnoses import diagnosis

from timesink.render import Format, formats_of, render
from timesink.views import Field, Page, Sheet

HOSTILE = (
    "\x1b]52;c;cm0gLXJm\x07 \x1b[2J\x9b31m\x1b]8;;http://evil/\x07link",
    "\n::error file=a.py::boom\n::add-mask::a\r::set-output name=x::y",
    "##[error]boom ##vso[task.setvariable]x ##teamcity[x]",
    "abc\u202egpj.exe \u2066x\u2069 \u200b \ufeff \ud800 \u2028",
    "<script>alert(1)</script><img src=x onerror=alert(1)> & <!-- ",
    "![x](http://evil/beacon.png) [y](javascript:alert(1)) http://evil/ www.evil.com",
    "| a | b |\n|---|---|\n# title\n- [ ] item\n```\n~~~ **bold** _i_ `code` ``",
    "@torvalds @org/team #123 fixes #1",
    "[red]rich[/red] [link=http://evil/]x[/link] :bomb: {0} %s ${HOME} $x$",
    "=cmd|' /C calc'!A0",
    "x" * 100_000,
)
ACTS_ON_TERMINAL = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
LOG_COMMAND = re.compile(r"^\s*::[a-z]|##\w*\[", re.MULTILINE)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def page(name: str) -> Page:
    columns = (Field("name", name, is_name=True), Field("text", "text"), Field("ns", "time", unit="ns"))
    return Page(name, (Sheet("rows", name, columns, ((name, name, 1),), name),), (name,))


def reports(name: str, form: Format) -> list[str]:
    results = (diagnosis(name), page(name))
    return [render(result, form, width=80) for result in results if form in formats_of(type(result).__name__)]


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_report_acts_on_a_hostile_name(name: str, form: Format) -> None:
    for report in reports(name, form):
        assert not ACTS_ON_TERMINAL.search(report)
        assert not LOG_COMMAND.search(report)
        assert report.endswith("\n")
        assert len(report) < 65_000
        report.encode("utf-8")


@settings(max_examples=examples(30), deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_no_report_acts_on_any_name(name: str) -> None:
    for form in Format:
        for report in reports(f"::error::{name}", form):
            assert not ACTS_ON_TERMINAL.search(report)
            assert not LOG_COMMAND.search(report)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_coloured_report_holds_no_escape_but_colour(name: str) -> None:
    report = render(diagnosis(name), Format.TEXT, width=80, colour=True)
    assert COLOURS.search(report)
    assert not ACTS_ON_TERMINAL.search(COLOURS.sub("", report))


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_a_hostile_name_as_text(name: str) -> None:
    for report in reports(name, Format.MD):
        tokens = MarkdownIt("gfm-like", {"linkify": False}).enable("table").parse(report)
        kinds = {child.type for token in tokens for child in (token.children or [token])}
        assert not kinds & {"link_open", "image", "em_open", "s_open", "html_block", "fence", "code_block", "hr"}
        inline = [child for token in tokens for child in token.children or []]
        markup = {child.content for child in inline if child.type == "html_inline"}
        assert markup <= {"<!-- -->"}
        assert not any(re.search(r"[@#]\w|://|\bwww\.", child.content) for child in inline if child.type == "text")


@pytest.mark.parametrize("name", HOSTILE)
def test_json_stays_the_same_document_under_any_name(name: str) -> None:
    tame, wild = (json.loads(render(diagnosis(text), Format.JSON)) for text in ("tame", name))
    assert shape(wild) == shape(tame)


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    return [shape(part) for part in value] if isinstance(value, list) else type(value)
