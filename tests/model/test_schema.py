"""A frame obeys its table's declaration or is refused with the column named."""

import polars as pl
import pytest

from timesink.errors import SchemaViolation
from timesink.model.schema import Column, Table
from timesink.model.tables import ALL
from timesink.model.trace import Trace

CALLS = Table(
    "calls",
    "Test table.",
    {
        "thread": Column(pl.Int64, "thread"),
        "name": Column(pl.Categorical(), "name"),
        "start_ns": Column(pl.Int64, "start", unit="ns"),
        "end_ns": Column(pl.Int64, "end", unit="ns"),
        "correlation": Column(pl.Int64, "link", nullable=True),
    },
    sorted_by=("thread", "start_ns"),
)


def test_build_sorts_casts_fills_scalars_and_leaves_out_columns_as_null() -> None:
    frame = CALLS.build({"thread": 7, "name": ["b", "a"], "start_ns": [5, 2], "end_ns": [6, 3]})
    assert frame["name"].cast(pl.String).to_list() == ["a", "b"]
    assert frame["thread"].to_list() == [7, 7]
    assert frame["correlation"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"thread": 1, "name": ["a"], "start_ns": [5], "end_ns": [4]}, "end before they start"),
        ({"thread": 1, "name": ["a"], "start_ns": [5]}, "end_ns is missing"),
        ({"thread": 1, "name": [None], "start_ns": [5], "end_ns": [6]}, "nulls in name"),
        ({"thread": 1, "name": ["a"], "start_ns": [5], "end_ns": [6], "colour": [1]}, "no column colour"),
    ],
)
def test_what_the_declaration_forbids_is_refused_by_name(columns: dict[str, object], said: str) -> None:
    with pytest.raises(SchemaViolation, match=said):
        CALLS.build(columns)


def test_check_refuses_an_unsorted_frame() -> None:
    frame = CALLS.build({"thread": 1, "name": ["a", "b"], "start_ns": [1, 2], "end_ns": [3, 3]})
    with pytest.raises(SchemaViolation, match="not sorted"):
        CALLS.check(frame.reverse())


def test_every_canonical_table_builds_empty_and_documents_every_column() -> None:
    for table in ALL:
        assert table.build({name: [] for name in table.columns}).height == 0
        assert all(column.doc for column in table.columns.values())
        assert set(table.sorted_by) <= set(table.columns)


def test_a_window_keeps_the_rows_that_touch_it() -> None:
    frame = CALLS.build({"thread": 1, "name": ["a", "b", "c"], "start_ns": [0, 5, 9], "end_ns": [4, 9, 12]})
    window = Trace("t", {CALLS: frame}).between(4, 9)
    assert window[CALLS]["name"].cast(pl.String).to_list() == ["b"]
