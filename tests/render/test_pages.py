"""Tables keep raw values in JSON, scaled ones for people, and never cut a figure."""

from __future__ import annotations

import json

from timesink.render import Format, render
from timesink.views.page import Cell, Field, Page, Sheet

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


def test_an_empty_table_says_nothing_in_words() -> None:
    assert "nothing" in render(page(()), Format.TEXT)
    assert "nothing" in render(page(()), Format.MD)
    assert json.loads(render(page(()), Format.JSON))["kernels"] == []
