"""Which kernels of an edited sequence are told, and that none is told wrongly.

The join by number against a slow one.

from __future__ import annotations
"""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from timesink._native import first_places
from timesink.model.alignment import aligned, in_order, occurrence, reshaped
from timesink.model.arrays import Int64Array
from timesink.model.schema import lean, picked, stacked


def numbers(*values: int) -> Int64Array:
    return np.array(values, np.int64)


def test_a_member_counts_where_every_common_subsequence_has_it() -> None:
    recorded = numbers(0, 1, 1, 2, 3)
    assert aligned(recorded, recorded).tolist() == [0, 1, 2, 3, 4]
    assert aligned(numbers(0, 1, 2, 3), recorded).tolist() == [0, -1, 3, 4]  # either 1 may be the one that is left
    assert aligned(numbers(0, 1, 1, 3, 2), recorded).tolist() == [0, 1, 2, -1, -1]
    assert aligned(numbers(7, 8), recorded).tolist() == [-1, -1]


@st.composite
def edited_pairs(draw: st.DrawFn) -> tuple[Int64Array, Int64Array, list[int]]:
    """What was recorded, layers that repeat among others; it with one kernel missing, or two swapped; and which member
    of the first each of the second is."""
    layer = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    head, tail = (draw(st.lists(st.integers(0, 9), max_size=3)) for _ in range(2))
    recorded = np.array([*head, *(layer * draw(st.integers(1, 6))), *tail], np.int64)
    who = list(range(recorded.size))
    if draw(st.booleans()):
        who.pop(draw(st.integers(0, len(who) - 1)))
    elif len(who) > 1:
        one, other = (draw(st.integers(0, len(who) - 1)) for _ in range(2))
        if recorded[one] != recorded[other]:  # equal kernels that change places are no edit
            who[one], who[other] = who[other], who[one]
    return recorded, recorded[who], who


@settings(max_examples=300)
@given(edited_pairs())
def test_no_kernel_of_an_edited_pair_is_joined_wrongly(pair: tuple[Int64Array, Int64Array, list[int]]) -> None:
    recorded, later, who = pair
    place = aligned(later, recorded)
    if not np.array_equal(later, recorded):
        assert all(at in (-1, wanted) for at, wanted in zip(place.tolist(), who, strict=True))
    else:
        assert place.tolist() == list(range(recorded.size))


def test_kernels_of_one_name_in_another_launch_shape_are_of_another_size() -> None:
    recorded, names = numbers(0, 1, 2, 3), numbers(0, 1, 2, 3)
    larger = numbers(0, 7, 2, 3)  # 7 is kernel 1 in a larger grid
    assert reshaped(larger, recorded, aligned(larger, recorded), (names, names))
    missing = numbers(0, 2, 3)
    assert not reshaped(missing, recorded, aligned(missing, recorded), (missing, names))


def test_a_turn_of_a_loop_is_found_where_it_can_be_only_one() -> None:
    turn = numbers(1, 2)
    assert occurrence(turn, numbers(0, 1, 2, 3)) == 1
    assert occurrence(turn, numbers(1, 2, 0, 3, 1, 2, 0, 3, 1, 2)) == 8
    assert occurrence(turn, numbers(1, 2, 0, 3, 1, 2)) is None  # two layers of one turn, for all that is known
    assert occurrence(turn, numbers(1, 2, 1, 2, 1, 2)) == 4  # whole turns, back to back
    assert occurrence(turn, numbers(1, 1, 2, 3)) is None  # one 1 may be missing
    assert occurrence(turn, numbers(2, 1)) is None


def test_turns_that_could_be_several_follow_those_that_are_certain() -> None:
    assert in_order([[0], [1, 2], [1, 2], [3]]) == [0, 1, 2, 3]
    assert in_order([[1, 2], [1, 2], [3]]) == [1, 2, 3]
    assert in_order([[0], [1, 2], [3]]) == [0, -1, 3]  # one is missing: its neighbours disagree
    assert in_order([[0, 1], [0, 1]]) == [-1, -1]


IDS = st.lists(st.one_of(st.integers(-2, 30), st.integers(0, 1 << 62)), max_size=40)


@given(IDS, IDS)
def test_each_id_is_found_where_it_stands_first(wanted: list[int], known: list[int]) -> None:
    expected = [known.index(one) if one >= 0 and one in known else -1 for one in wanted]
    assert first_places(np.array(wanted, np.int64), np.array(known, np.int64)).tolist() == expected


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
