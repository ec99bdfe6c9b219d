"""Untrusted text becomes visible and inert, and stays recognisable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.untrusted import defuse_lines, scrub, scrub_values, shortened

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("void gemm<float, 128>(a*)", "void gemm<float, 128>(a*)"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("two\r\nlines\tand", r"two\x0d\x0alines\x09and"),
        ("abc\u202etxt.exe", r"abc\u202etxt.exe"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("lone \ud800 surrogate", r"lone \ud800 surrogate"),
        ("tag \U000e0041", r"tag \U000e0041"),
        ("para\u2029graph", r"para\u2029graph"),
        ("##[error] ##vso[task.x]", r"#\x23[error] #\x23vso[task.x]".replace(r"#\x23", r"\x23#")),
        ("größe ядро 核", "größe ядро 核"),
    ],
)
def test_what_acts_becomes_visible_and_the_rest_stays(raw: str, shown: str) -> None:
    assert scrub(raw) == shown


@given(ANY_TEXT)
def test_scrubbed_text_is_printable_on_one_line_and_encodable(text: str) -> None:
    shown = scrub(text)
    assert shown.isprintable()
    shown.encode("utf-8")


@given(ANY_TEXT)
def test_scrubbing_twice_changes_nothing(text: str) -> None:
    assert scrub(scrub(text, 10_000), 10_000) == scrub(text, 10_000)


@given(ANY_TEXT, st.integers(8, 60))
def test_shortened_text_keeps_both_ends_within_the_limit(text: str, limit: int) -> None:
    short = shortened(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert len(short) == limit
        head, _, tail = short.partition("…") if "…" not in text else (short[:1], "", short[-1:])
        assert text.startswith(head)
        assert text.endswith(tail)


@pytest.mark.parametrize("before", ["", "  ", "\x1b[1m", " \x1b[31m \x1b[0m"])
def test_no_line_begins_with_a_workflow_command(before: str) -> None:
    report = f"first\n{before}::error file=x::boom\nnamespace at::native stays"
    safe = defuse_lines(report)
    assert not re.search(r"^(?:\s|\x1b\[[0-9;]*m)*::", safe, re.MULTILINE)
    assert "at::native stays" in safe
    assert r"\x3a:error file=x::boom" in safe


def test_a_tree_is_scrubbed_everywhere_and_keeps_its_numbers() -> None:
    assert scrub_values({"a\n": ["\x00", 1, 2.5, None, {"b": ("\x1b",)}]}) == {
        r"a\x0a": [r"\x00", 1, 2.5, None, {"b": [r"\x1b"]}]
    }
