"""Rows of units are found wherever they stand, with how often each comes, and nothing else is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.measures.repeats.search import LEAST, repeated_runs

UNITS = st.lists(st.integers(0, 5), min_size=1, max_size=9, unique=True)


def runs_of(code: list[int], rows: list[int] | None = None) -> list[tuple[list[int], int]]:
    numbers = np.array(code, np.int64)
    found = repeated_runs(numbers, np.arange(numbers.size) if rows is None else np.array(rows, np.int64))
    return [(run.starts.tolist(), run.stop) for run in found]


@given(UNITS, st.integers(LEAST, 40), st.integers(0, 12), st.integers(0, 12))
def test_a_planted_row_is_found_with_its_count(unit: list[int], times: int, before: int, behind: int) -> None:
    around = [*range(100, 100 + before)], [*range(200, 200 + behind)]  # each comes once
    code = np.unique([*around[0], *(unit * times), *around[1]], return_inverse=True)[1]
    (starts, stop), *others = runs_of(code.tolist())
    assert not others
    assert len(starts) == times
    assert set(np.diff(starts)) == {len(unit)}
    assert before <= starts[0] < before + len(unit)
    assert stop == before + times * len(unit)


@given(st.lists(st.integers(0, 10**6), max_size=300, unique=True))
def test_where_nothing_comes_twice_nothing_is_found(code: list[int]) -> None:
    assert runs_of(np.unique(code, return_inverse=True)[1].tolist() if code else []) == []


@given(UNITS, st.integers(1, LEAST - 1))
def test_fewer_than_four_in_a_row_are_no_row(unit: list[int], times: int) -> None:
    assert runs_of(unit * times) == []


def test_loops_in_loops_are_found_inner_first() -> None:
    inner = [0, 1, 2] * 6 + [3, 4, 5, 6, 7]  # a shorter stretch between would be an event more in a unit
    found = runs_of(inner * 5)
    assert [len(starts) for starts, _ in found] == [6] * 5 + [5]
    assert found[-1][1] == len(inner * 5)


def test_units_that_hold_loops_of_uneven_length_are_one_row() -> None:
    code = [symbol for length in (5, 7, 6, 5, 8) for symbol in [0, 1] * length + [2, 3, 4, 5]]
    assert [len(starts) for starts, _ in runs_of(code)] == [5, 7, 6, 5, 8, 5]


@pytest.mark.parametrize("extra", [3, 10, 16])
def test_one_event_more_in_a_unit_does_not_part_the_row(extra: int) -> None:
    code = [0, 1, 2, 3] * 8
    code.insert(extra, 9)
    (starts, _), *others = runs_of(np.unique(code, return_inverse=True)[1].tolist())
    assert len(starts) in (7, 8)
    assert not others


def test_no_row_goes_over_a_border() -> None:
    code = [0, 1] * 3 + [2] + [0, 1] * 3
    rows = [*range(6), -1, *range(6, 12)]
    assert runs_of(code, rows) == []
    assert len(runs_of([0, 1] * 6)) == 1
