"""Interval algebra against sets of single nanoseconds, the slow and obvious way."""

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timesink._native import totals
from timesink.model.intervals import Intervals, begun_in, intervals_by

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


def made(pairs: list[tuple[int, int]]) -> Intervals:
    return Intervals.union_of([a for a, _ in pairs], [a + length for a, length in pairs])


def instants(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for a, length in pairs for t in range(a, a + length)}


def instants_of(intervals: Intervals) -> set[int]:
    return {t for a, b in zip(intervals.start_ns, intervals.end_ns, strict=True) for t in range(int(a), int(b))}


@given(PAIRS)
def test_union_holds_the_same_instants_and_is_sorted_disjoint_and_non_empty(pairs: list[tuple[int, int]]) -> None:
    union = made(pairs)
    assert instants_of(union) == instants(pairs)
    assert union.total_ns == len(instants(pairs))
    assert (union.end_ns > union.start_ns).all()
    assert (union.start_ns[1:] > union.end_ns[:-1]).all()


@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(0, 400), st.integers(1, 4))
def test_a_union_of_many_is_that_of_them_in_order_however_far_they_are_out_of_it(
    seed: int, size: int, apart: int, parts: int
) -> None:
    """Each start is as much as `apart` from its place, in each of some parts one after the other."""
    random = np.random.default_rng(seed)
    start = np.concatenate([4 * np.arange(size) + random.integers(0, apart + 1, size) for _ in range(parts)])
    end, order = start + random.integers(0, 6, start.size), np.argsort(start, kind="stable")
    union, expected = Intervals.union_of(start, end), Intervals.union_of(start[order], end[order])
    assert union.start_ns.tolist() == expected.start_ns.tolist()
    assert union.end_ns.tolist() == expected.end_ns.tolist()


@given(PAIRS, PAIRS)
def test_or_and_minus_are_the_set_operations(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = made(a), made(b)
    assert instants_of(left | right) == instants(a) | instants(b)
    assert instants_of(left & right) == instants(a) & instants(b)
    assert instants_of(left - right) == instants(a) - instants(b)


@given(PAIRS, st.integers(0, 70), st.integers(0, 70))
def test_busy_plus_gaps_is_the_window(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    union = made(pairs)
    assert union.clip(start, end).total_ns + (Intervals.one(start, end) - union).total_ns == max(0, end - start)


@given(PAIRS, st.lists(st.tuples(st.integers(-5, 70), st.integers(0, 20)), max_size=5))
def test_coverage_of_a_window_is_the_length_of_its_clip(
    pairs: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    union = made(pairs)
    starts, ends = [a for a, _ in windows], [a + length for a, length in windows]
    covered = union.covered_ns(np.array(starts, np.int64), np.array(ends, np.int64))
    assert covered.tolist() == [union.clip(a, b).total_ns for a, b in zip(starts, ends, strict=True)]


def test_touching_intervals_become_one() -> None:
    union = Intervals.union_of([0, 5], [5, 9])
    assert (union.start_ns.tolist(), union.end_ns.tolist()) == ([0], [9])


def test_times_near_the_end_of_int64_are_exact() -> None:
    base = 1_790_857_026_000_000_123
    union = Intervals.union_of([base, base + 3], [base + 1, base + 4])
    assert union.total_ns == 2
    assert (Intervals.one(base, base + 4) - union).start_ns.tolist() == [base + 1]


def test_an_empty_window_has_no_gaps() -> None:
    assert len(Intervals.one(5, 5) - Intervals.none()) == 0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_union_of_no_parts_is_nothing(count: int) -> None:
    assert Intervals.union_all([Intervals.none()] * count).total_ns == 0


GROUPED = (
    # group, start, end, and what the group's intervals cover together
    ([1, 0, 1, 1, 0, 3, 3], [10, 100, 12, 30, 150, 5, 5], [20, 140, 25, 33, 160, 9, 4], [50, 18, 0, 4, 0]),
    (
        [0, 1, 2, 2],
        [0, 0, 0, 10],
        [50, 50, 20, 15],
        [50, 50, 20],
    ),  # touching the groups before and after; one in another
    ([2, 2], [7, 9], [12, 10], [0, 0, 5]),
    ([0, 2, 1, 0], [0, 1, 4 * 10**18, 3], [5, 2, 4 * 10**18 + 9, 10], [10, 9, 1]),  # three such strides leave int64
    ([0, 0], [0, 4 * 10**18], [10, 8 * 10**18], [10 + 4 * 10**18]),
    ([], [], [], [0, 0]),
)


@pytest.mark.parametrize(("group", "start", "end", "covered"), GROUPED)
def test_the_union_of_each_group_by_hand(
    group: list[int], start: list[int], end: list[int], covered: list[int]
) -> None:
    for origin in (0, 1_000) if max([0, *end]) < 10**18 else (0,):
        at = (np.array(times, np.int64) + origin for times in (start, end))
        groups = np.array(group, np.int64)
        assert totals(groups, np.arange(groups.size), groups, *at, len(covered))[-1].tolist() == covered


def test_a_window_past_the_last_instant_ends_there() -> None:
    last = 2**63 - 1
    assert Intervals.one(last - 5, last + 1).end_ns.tolist() == [last]
    assert Intervals.one(-last - 2, 3 - last).start_ns.tolist() == [-last - 1]
    assert len(Intervals.one(last, last + 1)) == 0


def test_what_is_empty_or_outside_covers_nothing() -> None:
    assert len(Intervals.one(5, 5)) == 0
    union = Intervals.union_of([3, 10, 2, 7], [3, 20, 4, 6])
    assert (union.start_ns.tolist(), union.end_ns.tolist()) == ([2, 10], [4, 20])
    assert union.covered_ns([0, 0, 3, 30, 12], [2, 11, 4, 40, 12]).tolist() == [0, 3, 1, 0, 0]
    assert (union & Intervals.one(4, 10)).total_ns == 0


@example([5, 1, 9], [(0, 2), (4, 2)])  # one comes after the last window
@given(st.lists(st.integers(0, 20)), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=4))
def test_as_many_instants_begin_in_a_window_as_lie_in_it(instants: list[int], windows: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in windows], np.int64)
    end = np.array([begin + length for begin, length in windows], np.int64)
    expected = [sum(begin <= instant < begin + length for instant in instants) for begin, length in windows]
    assert begun_in(np.array(instants, np.int64), start, end).tolist() == expected


@pytest.mark.parametrize("size", [1, 2, 7])
def test_instants_and_windows_of_one_size_and_of_several_slices_are_counted(size: int) -> None:
    instants = np.arange(size, dtype=np.int64)
    assert begun_in(instants, instants, instants + 1).tolist() == [1] * size
    assert begun_in(np.zeros(0, np.int64), instants, instants + 1).tolist() == [0] * size


def test_intervals_are_grouped_by_keys_in_the_order_of_keys() -> None:
    frame = pl.DataFrame({"a": [2, 1, 2], "b": [0, 0, 0], "start_ns": [5, 1, 6], "end_ns": [7, 2, 9]})
    found = intervals_by(frame, "a", "b")
    assert list(found) == [(1, 0), (2, 0)]
    assert {key: part.total_ns for key, part in found.items()} == {(1, 0): 1, (2, 0): 4}
