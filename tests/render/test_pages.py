"""The table of formats, and pages and reports in them: raw values in JSON, scaled ones for people, no cut figure."""

import json
from importlib import import_module

import pytest
from tests.render.diagnoses import diagnosis, healthy

from timesink.cli.app import run
from timesink.records import replace
from timesink.render import WRITERS, Format, formats_of, render
from timesink.render.markdown import code, escaped
from timesink.views import Cell, Field, Page, Sheet

COLUMNS = (
    Field("total_ns", "total", unit="ns"),
    Field("share", "share", unit="ratio"),
    Field("count", "count", unit="1"),
    Field("ok", "ok"),
    Field("kernel", "kernel", is_name=True),
)
LONG = "void at::native::vectorized_elementwise_kernel<4, " * 4
ROWS: tuple[tuple[Cell, ...], ...] = ((12_345_678, 0.25, 1234567, True, LONG), (5, None, 0, False, None))


def page(rows: tuple[tuple[Cell, ...], ...] = ROWS) -> Page:
    return Page("Kernels of run", (Sheet("kernels", "Kernels", COLUMNS, rows, "summed durations"),), ("one note",))


def test_text_shows_whole_figures_beside_names_that_give_way() -> None:
    lines = render(page(), Format.TEXT, width=60).splitlines()
    (row,) = [line for line in lines if line.lstrip().startswith("12.3")]
    assert row.split()[:6] == ["12.3", "ms", "25.0", "%", "1,234,567", "yes"]
    begin = row.index("void")
    name = "".join(line[begin:].strip() for line in lines[lines.index(row) : lines.index(row) + 3])
    assert name.startswith("void at::native::")
    assert "…" in name and name.endswith("<4,")
    assert max(map(len, lines)) <= 60


def test_what_is_not_known_is_a_dash() -> None:
    (row,) = [line for line in render(page(), Format.TEXT).splitlines() if line.lstrip().startswith("5 ns")]
    assert row.split() == ["5", "ns", "–", "0", "no", "–"]


def test_json_keeps_the_raw_values_under_their_units() -> None:
    document = json.loads(render(page(), Format.JSON))
    assert document["title"] == "Kernels of run"
    assert document["kernels"][0]["total_ns"] == 12_345_678
    assert document["kernels"][1] == {"total_ns": 5, "share": None, "count": 0, "ok": False, "kernel": None}
    assert document["notes"] == ["one note"]


def test_markdown_is_a_table_with_figures_to_the_right() -> None:
    lines = render(page(), Format.MD).splitlines()
    assert "| total | share | count | ok | kernel |" in lines
    assert "|---:|---:|---:|---|---|" in lines
    assert "| 5 ns | – | 0 | no | – |" in lines


@pytest.mark.parametrize("form", [Format.TEXT, Format.JSON, Format.MD, Format.HTML])
def test_a_lede_stands_between_the_title_and_the_tables(form: Format) -> None:
    shown = render(replace(page(), lede="verdict <of> both"), form)
    places = [shown.rindex(text) for text in ("Kernels of run", "verdict", "one note")]
    assert places == sorted(places)
    assert places[1] < shown.index("summed durations" if form is not Format.JSON else "kernels")
    assert "<of>" not in shown or form in (Format.TEXT, Format.JSON)


def test_an_empty_table_says_nothing_in_words() -> None:
    assert "nothing" in render(page(()), Format.TEXT)
    assert "nothing" in render(page(()), Format.MD)
    assert json.loads(render(page(()), Format.JSON))["kernels"] == []


NAMED = [(result, place) for result, places in WRITERS.items() for place in places.values()]


@pytest.mark.parametrize(("result", "place"), NAMED, ids=[f"{result} {place}" for result, place in NAMED])
def test_every_writer_is_a_function_of_a_result_and_a_style(result: str, place: str) -> None:
    module, _, function = place.partition(":")
    writer = getattr(import_module(f"timesink.render.{module}"), function)
    kind = next(iter(writer.__annotations__.values()))
    assert getattr(kind, "__name__", kind) == result


def test_a_format_is_offered_where_all_that_is_shown_can_be_written() -> None:
    assert formats_of("Diagnosis", "Page") == (Format.TEXT, Format.JSON, Format.MD, Format.HTML)


def test_a_format_that_a_command_cannot_write_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {form: place for form, place in WRITERS["Page"].items() if form is not Format.MD}
    monkeypatch.setitem(WRITERS, "Page", pages)
    assert Format.MD not in formats_of("Page")
    assert run(["show", "steps", "no/such/file", "-f", "xml"]) == 2
    assert "'xml' is not one of" in capsys.readouterr().err


def test_it_says_what_the_diagnosis_says() -> None:
    report = render(diagnosis(), Format.MD)
    assert report.startswith("## Bottleneck: `input_pipeline`\n\ndata\\_load on thread 1234 takes 3.10 ms")
    assert "### 1. INP101 input-pipeline: saves 2.10 ms (17.5 % of the step), 500 us to 2.40 ms" in report
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
