"""The compiled passes over ordered columns against NumPy's search and against one look after another."""

import time

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink._native import (
    covered,
    holding,
    innermost,
    innermost_at,
    looked_up,
    merged,
    numbered,
    overlapping,
    places,
    shared,
    summed,
    totals,
    united,
)
from timesink.model.nesting import numbered_rows

NUMBERS = st.lists(st.one_of(st.integers(-3, 9), st.sampled_from((-(1 << 63), (1 << 63) - 1))), max_size=30)
SEGMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 4)), max_size=12)
MOMENTS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-2, 26)), max_size=12)


def array(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


@given(NUMBERS, NUMBERS, st.booleans())
def test_places_are_those_of_numpy_in_any_order_of_questions(held: list[int], wanted: list[int], after: bool) -> None:
    expected = np.searchsorted(array(sorted(held)), array(wanted), side="right" if after else "left")
    assert places(array(sorted(held)), array(wanted), after).tolist() == expected.tolist()


@given(st.lists(st.tuples(*[st.sampled_from((None, 0, 1, -1, 1 << 31, -(1 << 63), (1 << 63) - 1))] * 2), max_size=90))
def test_alike_rows_get_one_number_in_the_order_in_which_they_come_first(rows: list[tuple[int | None, ...]]) -> None:
    number, first = numbered_rows(pl.DataFrame(rows, schema={"a": pl.Int64, "b": pl.Int64}, orient="row"))
    distinct = list(dict.fromkeys(rows))
    assert number.tolist() == [distinct.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in distinct]


def test_a_thousand_rows_that_all_differ_are_numbered_as_they_come() -> None:
    number, first = numbered([array(range(0, 1 << 40, 1 << 30)) for _ in range(3)])
    assert number.tolist() == first.tolist() == list(range(1 << 10))


@given(st.lists(st.integers(0, 6)), st.lists(st.sampled_from((-1, 0, 1)), max_size=5))
def test_what_is_known_of_codes_is_looked_up_and_each_unknown_one_found_once(
    codes: list[int], known: list[int]
) -> None:
    answers = dict(enumerate(known))
    yes, unknown = looked_up(np.array(codes, np.uint32), np.array(known, np.int8))
    assert yes.tolist() == [answers.get(code, -1) == 1 for code in codes]
    assert unknown.tolist() == [codes.index(code) for code in dict.fromkeys(codes) if answers.get(code, -1) == -1]


def test_rows_made_to_share_one_slot_of_a_known_table_take_no_longer_than_others() -> None:
    """Values that a multiplication by the golden ratio, folded once, sends to one number, as a file may hold them."""
    high = np.arange(1 << 14, dtype=np.uint64)
    alike = ((high << np.uint64(32)) | high) * np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))

    def seconds(column: np.ndarray) -> float:
        begin = time.thread_time()
        numbered([column.view(np.int64)])
        return time.thread_time() - begin

    assert len(set(alike.tolist())) == high.size
    assert min(seconds(alike) for _ in range(3)) < 20 * max(seconds(high), 1e-3)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from((0, 1, -5, 1 << 62, (1 << 63) - 1))), max_size=30))
def test_sums_of_groups_are_those_of_numpy(rows: list[tuple[int, int]]) -> None:
    group, value = array([row[0] for row in rows]), array([row[1] for row in rows])
    expected = np.zeros(4, np.int64)
    np.add.at(expected, group, value)
    assert summed(group, value, 4).tolist() == expected.tolist()


def disjoint(segments: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """group, start, end in order, without what would overlap the one before."""
    kept: list[tuple[int, int, int]] = []
    for group, start, length in sorted(segments):
        if length and not (kept and kept[-1][0] == group and kept[-1][2] > start):
            kept.append((group, start, start + length))
    return kept


@given(SEGMENTS, MOMENTS)
def test_the_segment_that_holds_a_moment_is_the_one_around_it(
    segments: list[tuple[int, int, int]], moments: list[tuple[int, int]]
) -> None:
    rows = disjoint(segments)
    expected = [
        next((at for at, (own, start, end) in enumerate(rows) if own == group and start <= time < end), -1)
        for group, time in moments
    ]
    columns = [array([row[n] for row in rows]) for n in range(3)]
    assert holding(*columns, *(array([moment[n] for moment in moments]) for n in range(2))).tolist() == expected


def test_columns_of_unlike_length_and_rows_that_are_not_there_are_refused() -> None:
    one, two = array([1]), array([1, 2])
    refused = (
        lambda: merged(one, two),
        lambda: numbered([one, two]),
        lambda: summed(one, two, 2),
        lambda: summed(one, one, 1),
        lambda: summed(-one, one, 1),
        lambda: united(one, two, one, one),
        lambda: united(one, one, one, two),
        lambda: shared(one, two, one, one),
        lambda: shared(one, one, one, two),
        lambda: covered(one, two, one, one),
        lambda: covered(one, one, one, two),
        lambda: holding(one, one, two, one, one),
        lambda: holding(one, one, one, one, two),
        lambda: overlapping(two, one, one, one, one, one),
        lambda: overlapping(one, one, one, one, one, two),
        lambda: innermost_at(one, one, one, one, one),
        lambda: innermost_at(array([-1]), one, one, one, one),
        lambda: innermost_at(array([0]), two, one, one, one),
        lambda: totals(one, two, one, one, one, 2),
        lambda: totals(one, array([0]), one, two, one, 2),
        lambda: totals(one, array([0]), one, one, one, 1),
        lambda: totals(array([-1]), array([0]), one, one, one, 1),
        lambda: totals(array([0]), one, one, one, one, 1),
        lambda: totals(array([0]), array([-1]), one, one, one, 1),
    )
    for call in refused:
        with pytest.raises(ValueError, match=r"differ in length|no such"):
            call()


RANKED = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 9), st.integers(0, 3)), max_size=9)


@given(RANKED)
def test_the_innermost_and_all_that_is_around_it_at_every_instant_crossing_or_not(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    rows = sorted(((group, start, start + length, rank) for group, start, length, rank in drawn), key=_outer_first)
    told: dict[tuple[int, int], tuple[int, int]] = {}
    columns = [array([row[place] for row in rows]) for place in range(4)]
    for start, end, row, least in zip(*(column.tolist() for column in innermost(*columns)), strict=True):
        assert start < end
        for instant in range(start, end):
            assert told.setdefault((rows[row][0], instant), (row, least)) == (row, least)  # once alone
    for group in (0, 1):
        for instant in range(25):
            around = [at for at, row in enumerate(rows) if row[0] == group and row[1] <= instant < row[2]]
            expected = (around[-1], min(rows[at][3] for at in around)) if around else None
            assert told.get((group, instant)) == expected


def _outer_first(row: tuple[int, int, int, int]) -> tuple[int, int, int]:
    return row[0], row[1], -row[2]
