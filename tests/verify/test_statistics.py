from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from timesink.verify.outcomes import Outcome, Reason
from timesink.verify.runs import pair_order
from timesink.verify.statistics import (
    classify,
    detectable,
    false_alarm,
    geometric_mean,
    interval_verdict,
    lag1_correlation,
    look_level,
    paired_interval,
    pairs_to_decide,
    sequential_codes,
    t_interval,
)

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


def order(pairs: int) -> np.ndarray:
    """1 where the side before goes first, else -1."""
    assert {tuple(sorted(pair_order(pair))) for pair in range(pairs)} == {("after", "before")}
    return np.array([1 if pair_order(pair)[0] == "before" else -1 for pair in range(pairs)])


def test_each_side_goes_first_equally_often_so_that_linear_drift_cancels() -> None:
    assert [order(pairs).sum() for pairs in (2, 6, 12, 18)] == [0, 2, 0, 0]
    assert [pair_order(pair) for pair in (0, 1, 18, 19)] == [("before", "after"), ("after", "before")] * 2


@pytest.mark.parametrize("pairs", [6, 12, 18])
def test_no_swing_keeps_time_with_the_order_of_the_sides(pairs: int) -> None:
    """Runs that go up and down by a sine, whatever its period and phase, show no change to any look; ABBA did."""
    waves, phases = np.linspace(0.01, np.pi, 150)[:, None, None], np.linspace(0, np.pi, 40)[:, None]
    swing = np.sin(waves * np.arange(2 * pairs) + phases)
    second_less_first = swing[..., 1::2] - swing[..., 0::2]
    at = paired_interval(second_less_first * order(pairs), look_level(0.05, 3))
    assert ((at.low < 0) & (at.high > 0)).all()
    abba = paired_interval(second_less_first * np.resize([1, -1, -1, 1], pairs), look_level(0.05, 3))
    assert ((abba.low > 0) | (abba.high < 0)).any()


def test_a_bound_at_the_threshold_decides_nothing() -> None:
    edge = float(np.log1p(0.05))
    lows, highs = [-edge, 0.0, edge, -1.0, -edge + 1e-9], [0.0, edge, 1.0, -edge, edge - 1e-9]
    assert classify(lows, highs, 0.05).tolist() == [2, 2, 2, 2, 0]


@pytest.mark.parametrize(
    ("mean", "se", "outcome", "reason"),
    [(0.2, 0.01, Outcome.SLOWER, None), (-0.2, 0.01, Outcome.FASTER, None),
     (0.001, 0.001, Outcome.NO_DIFFERENCE, None), (0.05, 0.03, Outcome.INCONCLUSIVE, Reason.TOO_NOISY)],
)  # fmt: skip
def test_what_an_interval_says_of_a_change(mean: float, se: float, outcome: Outcome, reason: Reason | None) -> None:
    """Two degrees of freedom, whose t has a closed form: t(.975) = 4.302653, tail(t) = 1/2 - t / (2 sqrt(2 + t^2))."""
    verdict = interval_verdict(t_interval(mean, se, 2, 0.95), 0.03, 0.9)
    assert (verdict.outcome, verdict.reason, verdict.threshold_ratio) == (outcome, reason, 0.03)
    assert verdict.effect is not None
    assert verdict.effect.ratio == pytest.approx(np.exp(mean))
    assert (verdict.effect.low, verdict.effect.high) == pytest.approx(
        (np.exp(mean - 4.302653 * se), np.exp(mean + 4.302653 * se)), rel=1e-6
    )
    assert verdict.effect.level == 0.9
    beyond = 4.302653 + np.log1p(0.03) / se
    tail = 0.5 - beyond / (2 * np.sqrt(2 + beyond**2)) if outcome in (Outcome.SLOWER, Outcome.FASTER) else None
    assert verdict.false_alarm_ratio == (tail if tail is None else pytest.approx(tail, rel=1e-5))


def test_every_look_takes_its_part_of_alpha() -> None:
    assert look_level(0.06, 3) == pytest.approx(0.98)


def test_the_first_look_that_decides_wins() -> None:
    """At two looks of alpha 0.1 each interval covers 0.95; t(.975, 1) = 12.706 and t(.975, 3) = 3.182.

    Pairs of 0.1 and 0.102: 0.101 -+ 12.706 x 0.001 lies beyond log(1.05) = 0.0488, whatever follows. Pairs of 0.1 and
    0.13: 0.115 -+ 0.19 decides nothing; with two more, mean 0.115, deviation 0.0173, -+ 0.0276, it is slower.
    """
    rows = [[0.1, 0.102, -0.3, -0.3], [0.1, 0.13, 0.1, 0.13], [0.1, 0.13, -0.1, -0.13], [-0.1, -0.102, 0.3, 0.3]]
    assert sequential_codes(rows, (2, 4), 0.1, 0.05).tolist() == [1, 1, 2, -1]


def test_what_is_detectable_by_hand() -> None:
    """Four pairs of deviation 0.02: t(.975, 3) = 3.182446, half-width 3.182446 x 0.02 / 2, after log(1.05)."""
    assert detectable(0.02, 4, 0.95, 0.05) == pytest.approx(1.05 * np.exp(0.03182446) - 1, rel=1e-6)


def test_a_chance_of_false_alarm_by_hand() -> None:
    beyond = 4.302653 + np.log1p(0.02) / 0.04
    assert false_alarm(0.04, 2, 0.95, 0.02) == pytest.approx(0.5 - beyond / (2 * np.sqrt(2 + beyond**2)), rel=1e-5)


def test_pairs_are_counted_to_the_nearest_of_both_thresholds() -> None:
    needed = pairs_to_decide(0.02, 0.01, 0.95, 0.01, 200)
    assert needed is not None
    assert pairs_to_decide(-0.02, 0.01, 0.95, 0.01, 200) == needed
    assert pairs_to_decide(0.02, 0.01, 0.95, 0.01, needed) == needed
    assert pairs_to_decide(0.02, 0.01, 0.95, 0.01, needed - 1) is None
    assert pairs_to_decide(0.02, 1e-6, 0.95, 0.01, 200) == 2
    assert pairs_to_decide(float(np.log1p(0.01)), 0.0, 0.95, 0.01, 5) is None


def test_small_means_by_hand() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([]) is None
    assert lag1_correlation(np.array([1.0, -2.0, 3.0])) == pytest.approx(-8 / 14)
    assert lag1_correlation(np.zeros(3)) == 0.0
