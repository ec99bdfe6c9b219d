from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from timesink.model.schema import lean, picked, stacked

SCHEMA = pl.Schema({"rank": pl.Int32(), "name": pl.Categorical(), "size": pl.Int64()})
ROWS = st.lists(
    st.tuples(
        st.just(0) | st.integers(0, 2), st.none() | st.sampled_from(["", "a", "b"]), st.none() | st.integers(-1, 1)
    ),
    max_size=6,
)


@given(st.lists(ROWS, max_size=4))
def test_stacked_frames_are_the_frames_below_one_another(parts: list[list[tuple[object, ...]]]) -> None:
    frames = [pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in parts]
    whole = stacked(iter(frames), SCHEMA)
    assert whole.schema == SCHEMA
    assert whole.rows() == [row for rows in parts for row in rows]
    assert whole.n_chunks() <= 1


@given(ROWS)
def test_a_lean_column_holds_the_same_values(rows: list[tuple[object, ...]]) -> None:
    for column in pl.DataFrame(rows, schema=SCHEMA, orient="row"):
        assert lean(column).equals(column, check_dtypes=True, check_names=True)


@given(ROWS, st.data())
def test_picked_rows_are_those_that_a_filter_keeps(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    flags = st.lists(st.none() | st.booleans(), min_size=frame.height, max_size=frame.height)
    chosen = pl.Series(data.draw(flags), dtype=pl.Boolean)
    assert picked(frame, chosen).equals(frame.filter(chosen))
    assert picked(frame, chosen).schema == SCHEMA
