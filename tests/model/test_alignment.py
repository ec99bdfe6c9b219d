"""Which kernels of an edited sequence are told, and that none is told wrongly."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from timesink.model.alignment import aligned, in_order, occurrence, reshaped
from timesink.model.arrays import Int64Array


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
