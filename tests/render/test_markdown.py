"""The Markdown report is GitHub tables and lists that fit into a larger page."""

from __future__ import annotations

import pytest
from tests.render.diagnoses import diagnosis, healthy

from timesink.render import Format, render
from timesink.render.markdown import code, escaped


def test_it_says_what_the_diagnosis_says() -> None:
    report = render(diagnosis(), Format.MD)
    assert report.startswith("## Bottleneck: `input_pipeline`\n\ndata\\_load on thread 1234 takes 3.10 ms")
    assert "### 1. INP101 starved-by-input: saves 2.10 ms (17.5 % of the step), 500 us to 2.40 ms" in report
    assert "| GPU idle in data\\_load | 19.5 % | 10 % | gaps under the range (device\\_ops rows 1, 5, 9" in report
    assert "- **At:** rank `0`, device `0`, thread `1234`, range `data_load`" in report
    assert "**Clear:** CPY101 copies-exposed" in report
    assert "To decide: `timesink capture data_load`" in report


def test_nothing_found_is_a_report_too() -> None:
    report = render(healthy(), Format.MD)
    assert report.startswith("## Bottleneck: `none`")
    assert "###" not in report


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("gemm<4>", "`gemm<4>`"),
        ("a`b", "`` a`b ``"),
        ("``a", "``` ``a ```"),
        ("", "` `"),
    ],
)
def test_a_name_is_a_code_span_whatever_backticks_it_holds(name: str, span: str) -> None:
    assert code(name) == span


def test_a_bar_in_a_table_does_not_end_its_cell() -> None:
    assert code("a|b", in_table=True) == "`a\\|b`"
    assert escaped("a|b") == "a\\|b"


def test_mentions_and_addresses_are_split_by_an_empty_comment() -> None:
    assert escaped("@me #12 http://x www.x") == "@<!-- -->me #<!-- -->12 http:<!-- -->//x www<!-- -->.x"
