"""Parts of a table, in the order that its declaration says."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.readers.nsys.session import combined, part_of

few, times = st.integers(0, 2), st.integers(-3, 3)
calls = st.lists(st.tuples(few, few, few, times, st.integers(0, 2)), max_size=12)


@given(st.lists(calls, max_size=3))
def test_calls_stand_by_thread_and_time_and_those_that_tie_in_the_order_of_the_file(
    parts: list[list[tuple[int, int, int, int, int]]],
) -> None:
    rows = [row for part in parts for row in part]
    frames = []
    for number, part in enumerate(parts):
        names = ("rank", "process", "thread", "start_ns")
        columns = {name: pl.Series([row[at] for row in part], dtype=pl.Int64) for at, name in enumerate(names)}
        columns["end_ns"] = columns["start_ns"] + pl.Series([row[4] for row in part], dtype=pl.Int64)
        given = [100 * number + at for at in range(len(part))]
        columns["correlation"] = pl.Series(given, dtype=pl.Int64)
        frames.append(part_of(API_CALLS, {**columns, "name": pl.Series(["call"] * len(part), dtype=pl.String)}))
    at = [100 * number + place for number, part in enumerate(parts) for place in range(len(part))]
    keys = [(*row[:4], row[3] + row[4]) for row in rows]
    expected = [number for _, number in sorted(zip(keys, at, strict=True), key=lambda pair: pair[0])]
    table = combined(API_CALLS, frames)
    assert table["correlation"].to_list() == expected
    assert table.select(API_CALLS.sorted_by).rows() == sorted(keys)


def test_no_parts_are_an_empty_table() -> None:
    assert combined(DEVICE_OPS, []).equals(DEVICE_OPS.empty())
