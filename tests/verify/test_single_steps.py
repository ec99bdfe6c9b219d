"""Steps that change otherwise than the rest are told; steps that scatter alike are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.verify.compare import single_changes

MS = 1e6
STEADY = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0, 10.1]


def test_one_step_that_shortens_is_told_though_the_median_stays() -> None:
    before = [24.0 * MS, *(MS * value for value in STEADY)]
    after = [17.04 * MS, *(MS * value for value in STEADY)]
    assert single_changes(before, after, 0.02) == [
        "step 1 of 9: 24.0 ms before, 17.0 ms after (-29.0 %), where the median step changes by +0.0 %"
    ]


def test_steps_that_all_shorten_alike_leave_none_apart() -> None:
    assert single_changes([MS * value for value in STEADY], [0.7 * MS * value for value in STEADY], 0.02) == []


@pytest.mark.parametrize(("last", "told"), [(10.15, 0), (10.25, 1)])
def test_a_change_below_the_threshold_is_not_told(last: float, told: int) -> None:
    """The other steps do not change at all, so that the threshold of 2 % alone decides: 10.2."""
    before = [10.0 * MS] * 8
    assert len(single_changes(before, [*before[:-1], last * MS], 0.02)) == told


@pytest.mark.parametrize(("before", "after"), [(4, 4), (8, 7), (0, 0)])
def test_few_steps_or_unequally_many_are_not_paired(before: int, after: int) -> None:
    assert single_changes([10.0] * before, [10.0] * (after - 1) + [30.0] * bool(after), 0.02) == []


def test_scatter_alone_seldom_stands_apart() -> None:
    """Noise of 3 % on both sides of twenty steps: 1.35 % of captures name a step, since a deviation of twenty may
    come out small (two million drawn of the definition). Of 4,000 that is 54; over 120 has a probability below 1e-12.
    """
    noise = np.random.default_rng(20_261_122).normal(0, 0.03, (4_000, 2, 20))
    told = [single_changes(*(10 * MS * np.exp(pair)).tolist(), 0.02) for pair in noise]
    assert 0 < sum(map(bool, told)) <= 120


@given(st.permutations(range(9)))
def test_only_pairs_matter_not_their_order(order: list[int]) -> None:
    before = [MS * value for value in [24.0, *STEADY]]
    after = [MS * value for value in [17.04, *STEADY]]
    told = single_changes([before[at] for at in order], [after[at] for at in order], 0.02)
    assert [line.partition(":")[2] for line in told] == [
        " 24.0 ms before, 17.0 ms after (-29.0 %), where the median step changes by +0.0 %"
    ]
    assert told[0].startswith(f"step {order.index(0) + 1} of 9")
