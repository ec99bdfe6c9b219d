from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from timesink.verify.runs import pair_order
from timesink.verify.statistics import classify, detectable, false_alarm, paired_interval, pairs_to_decide

RATIOS = st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=20)


def test_the_interval_is_the_one_sample_t_interval() -> None:
    values = [0.01, 0.03, 0.02, 0.015]
    at = paired_interval(values, 0.95)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (float(at.low), float(at.high)) == pytest.approx((expected.low, expected.high))


def test_the_interval_of_two_pairs_by_hand() -> None:
    """Mean 0.02, deviation 0.01414, error 0.01, t(.975, 1) = 12.706."""
    at = paired_interval([0.01, 0.03], 0.95)
    assert float(at.mean) == pytest.approx(0.02)
    assert float(at.high - at.mean) == pytest.approx(0.12706, rel=1e-4)


@given(RATIOS)
def test_exchanging_before_and_after_mirrors_the_interval(values: list[float]) -> None:
    one, other = paired_interval(values, 0.95), paired_interval([-v for v in values], 0.95)
    assert (float(one.low), float(one.high)) == pytest.approx((-float(other.high), -float(other.low)), abs=1e-12)


@given(RATIOS, st.floats(0.001, 0.2))
def test_exchanging_before_and_after_exchanges_slower_and_faster(values: list[float], threshold: float) -> None:
    one, other = paired_interval(values, 0.95), paired_interval([-v for v in values], 0.95)
    forwards, backwards = int(classify(one.low, one.high, threshold)), int(classify(other.low, other.high, threshold))
    assert forwards == {1: -1, -1: 1}.get(backwards, backwards)


@given(RATIOS, st.randoms())
def test_the_order_of_pairs_does_not_matter(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = paired_interval(values, 0.9), paired_interval(shuffled, 0.9)
    assert float(one.low) == pytest.approx(float(other.low), abs=1e-9)


@pytest.mark.parametrize(
    ("low", "high", "code"),
    [(0.011, 0.05, 1), (-0.05, -0.011, -1), (-0.009, 0.009, 0), (-0.02, 0.02, 2), (0.005, 0.02, 2), (0.009, 0.0101, 2)],
)
def test_the_interval_against_a_threshold_of_one_percent(low: float, high: float, code: int) -> None:
    """log(1.01) = 0.00995."""
    assert int(classify(low, high, 0.01)) == code


def test_identical_ratios_leave_no_doubt() -> None:
    at = paired_interval([0.03] * 6, 0.95)
    assert (float(at.low), float(at.high)) == pytest.approx((0.03, 0.03))
    assert false_alarm(0.0, 5, 0.95, 0.01) == 0.0


def test_one_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        paired_interval([0.01], 0.95)


def test_false_alarm_at_no_threshold_is_half_of_alpha() -> None:
    assert false_alarm(0.01, 5, 0.95, 0.0) == pytest.approx(0.025)


def test_the_pairs_that_would_decide_do_decide_and_one_fewer_does_not() -> None:
    needed = pairs_to_decide(0.02, 0.01, 0.95, 0.01, 200)
    assert needed is not None
    half = [stats.t.ppf(0.975, n - 1) * 0.01 / np.sqrt(n) for n in (needed, needed - 1)]
    distance = 0.02 - np.log(1.01)
    assert half[0] < distance <= half[1]


def test_an_effect_at_the_threshold_is_decided_by_no_number_of_pairs() -> None:
    assert pairs_to_decide(float(np.log(1.01)), 0.01, 0.95, 0.01, 200) is None


def test_what_is_detectable_shrinks_with_pairs() -> None:
    found = [detectable(0.01, pairs, 0.95, 0.01) for pairs in (4, 6, 12, 18)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 0.01


@pytest.mark.parametrize("pairs", [2, 4, 6, 12, 18])
def test_each_side_goes_first_equally_often(pairs: int) -> None:
    first = [pair_order(pair)[0] for pair in range(pairs)]
    assert first.count("before") == first.count("after")
    assert [pair_order(pair) for pair in range(2)] == [("before", "after"), ("after", "before")]


@pytest.mark.parametrize("pairs", [2, 6, 12, 18])
def test_linear_drift_cancels_over_the_plan(pairs: int) -> None:
    """Run number n has log time n: the mean log ratio is exactly 0."""
    ratios = []
    for pair in range(pairs):
        at = {side: 2 * pair + place for place, side in enumerate(pair_order(pair))}
        ratios.append(at["after"] - at["before"])
    assert sum(ratios) == 0
