import numpy as np
import pytest
from benchmarks.verdicts import sequential_codes
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from timesink.records import replace
from timesink.verify.experiment import ExperimentPlan
from timesink.verify.outcomes import Outcome, Reason
from timesink.verify.runs import pair_order
from timesink.verify.statistics import (
    classify,
    detectable,
    false_alarm,
    geometric_mean,
    interval_verdict,
    is_no_chance,
    lag1_correlation,
    look_level,
    most_lie_beyond,
    mser_cut,
    paired_interval,
    pairs_to_decide,
    steady_part,
    t_interval,
    trend,
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


def test_an_interval_is_widened_on_both_sides() -> None:
    at = t_interval(0.1, 0.0, 5, 0.95).widened(0.03)
    assert (float(at.low), float(at.mean), float(at.high)) == pytest.approx((0.07, 0.1, 0.13))


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
    at = paired_interval(second_less_first * order(pairs), 1 - 0.05 / 3)
    assert ((at.low < 0) & (at.high > 0)).all()
    abba = paired_interval(second_less_first * np.resize([1, -1, -1, 1], pairs), 1 - 0.05 / 3)
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


@pytest.mark.parametrize(
    ("looks", "nominal"), [((6,), 0.05), ((6, 12), 0.0294), ((6, 12, 18), 0.0221), ((1, 2, 3, 4), 0.0182)]
)
def test_evenly_spaced_looks_take_what_pococks_table_says(looks: tuple[int, ...], nominal: float) -> None:
    assert ExperimentPlan(looks=looks).interval_level == pytest.approx(1 - nominal, abs=1e-4)


@pytest.mark.parametrize("looks", [(6, 12, 18, 30), (2, 50, 100), (3, 4)])
def test_all_looks_together_err_as_often_as_was_asked_for(looks: tuple[int, ...]) -> None:
    sums = np.random.default_rng(5).standard_normal((40_000, looks[-1])).cumsum(-1)[:, np.array(looks) - 1]
    bound = stats.norm.ppf(0.5 + look_level(looks, 0.05) / 2)
    erring = (np.abs(sums) > bound * np.sqrt(looks)).any(-1).mean()
    assert erring == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 40_000))


@pytest.mark.parametrize("looks", [(6, 12), (3, 4), (2, 50)])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_two_looks_err_as_one_integral_over_the_first_says(looks: tuple[int, int], alpha: float) -> None:
    """A walk at z standard errors at the first look stays within the bound at the second with the chance of a normal
    deviate, whose tail needs no walk."""
    first, last = looks
    bound = stats.norm.isf((1 - look_level(looks, alpha)) / 2)

    def stays(z: float) -> float:
        ends = (np.array([-bound, bound]) * np.sqrt(last) - z * np.sqrt(first)) / np.sqrt(last - first)
        return float(stats.norm.pdf(z) * np.diff(stats.norm.cdf(ends))[0])

    within, _ = integrate.quad(stays, -bound, bound, epsabs=1e-12)
    assert 1 - within == pytest.approx(alpha, abs=1e-10)
    assert look_level(looks[:1], alpha) == pytest.approx(1 - alpha, abs=1e-10)


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
    assert lag1_correlation(np.array([0.01, -0.02, 0.03])) == pytest.approx(-8 / 14)
    assert lag1_correlation(np.zeros(3)) == 0.0


def slow_mser(series: list[float], batch: int = 5) -> int:
    """The definition, one candidate at a time."""
    count = len(series) // batch
    means = [float(np.mean(series[i * batch : (i + 1) * batch])) for i in range(count)]
    scores = [
        float(np.sum((np.array(means[d:]) - np.mean(means[d:])) ** 2)) / (count - d) ** 2 for d in range(count // 2 + 1)
    ]
    return int(np.argmin(scores)) * batch


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_is_the_one_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = 1 + 0.3 * np.exp(-np.arange(120) / 8) + 0.01 * rng.standard_normal(120)
    assert int(mser_cut(series)) == slow_mser(list(series))


def test_many_series_at_once_are_cut_as_one_by_one() -> None:
    series = np.random.default_rng(0).lognormal(size=(4, 3, 100))
    np.testing.assert_array_equal(mser_cut(series), [[mser_cut(run) for run in block] for block in series])


def test_a_warm_up_of_twenty_slow_steps_is_cut_off() -> None:
    series = [1.5] * 20 + [1.0, 1.01] * 50
    steady = steady_part(series)
    assert (steady.dropped, steady.settled) == (20, True)
    assert steady.kept.mean() == pytest.approx(1.005)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6])
def test_the_unit_of_time_does_not_matter(scale: float) -> None:
    series = 1 + 0.3 * np.exp(-np.arange(200) / 10) + 0.01 * np.random.default_rng(5).standard_normal(200)
    assert steady_part(series * scale).dropped == steady_part(series).dropped


def test_a_series_that_keeps_falling_is_not_steady() -> None:
    steady = steady_part(np.linspace(2, 1, 200))
    assert not steady.settled or steady.drift_ratio < -0.1


def test_steady_noise_is_called_unsteady_in_under_one_percent_of_runs_of_two_hundred_steps() -> None:
    series = 1 + 0.01 * np.random.default_rng(1).standard_normal((2000, 200))
    assert np.mean(mser_cut(series) >= 100) < 0.01


def test_a_short_series_loses_a_tenth() -> None:
    steady = steady_part([1.0] * 30)
    assert (steady.dropped, len(steady.kept)) == (3, 27)


@pytest.mark.parametrize("count", [1, 2, 4, 59, 60, 61])
def test_any_length_keeps_at_least_half(count: int) -> None:
    steady = steady_part(np.ones(count))
    assert len(steady.kept) + steady.dropped == count
    assert len(steady.kept) >= count / 2


def test_a_rise_of_five_percent_along_the_series_is_measured() -> None:
    assert trend(np.linspace(1.0, 1.05, 200)) == pytest.approx(0.05, rel=0.1)


def test_noise_has_a_trend_in_about_one_percent_of_series() -> None:
    rng = np.random.default_rng(2)
    seen = [trend(1 + 0.01 * rng.standard_normal(100)) != 0 for _ in range(1000)]
    assert np.mean(seen) <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / 1000)


@pytest.mark.parametrize(
    ("slow", "count", "dropped", "settled"),
    [(20, 60, 20, True), (25, 60, 25, True), (30, 60, 30, False), (20, 59, 6, True), (0, 25, 3, True), (0, 2, 1, True),
     (0, 1, 0, True)],
)  # fmt: skip
def test_where_warm_up_ends_by_hand(slow: int, count: int, dropped: int, settled: bool) -> None:
    """Sixty steps are the least that MSER-5 is asked of, and half of them the most it may drop; else a tenth goes."""
    steady = steady_part(([2.0] * slow + [1.0, 1.02] * count)[:count])
    assert (steady.dropped, steady.settled, len(steady.kept)) == (dropped, settled, count - dropped)


def test_a_level_far_from_zero_changes_no_cut() -> None:
    series = np.array([1.5] * 20 + [1.0, 1.01] * 50)
    assert int(mser_cut(series + 1e9)) == int(mser_cut(series)) == 20


def test_a_trend_by_hand() -> None:
    """Batches of five around 2.00, 2.01 ... 2.07: 7 steps of 0.01 from a line that begins at 2."""
    batches = [2 + 0.01 * number + wobble for number in range(8) for wobble in (-0.2, 0.1, 0.0, 0.3, -0.2)]
    assert trend(np.array([*batches, 9.0])) == pytest.approx(0.035)
    assert trend(np.array(batches[::-1])) == pytest.approx(-0.07 / 2.07)
    assert trend(np.array(batches) / 1000) == pytest.approx(0.035)
    assert trend(np.array([batches[at] for at in (0, 30, 5, 35, 10, 20, 15, 25)]).repeat(5)) == 0.0  # no order
    assert trend(np.arange(8.0).repeat(5)) == 0.0  # a line through nothing has no relative slope
    assert trend(np.arange(-30.0, -22.0).repeat(5)) == 0.0
    assert trend(np.array(batches[:15])) == 0.0  # too few to tell
    assert trend(np.ones(40)) == 0.0


def test_what_a_slope_makes_of_a_whole_run_by_hand() -> None:
    """Of 40 steps that rise by 0.01 every five, four are dropped: batches of one step of 2 and four of 2.01, and so on,
    whose line goes from 2.008 to 2.068 in what counts for 36 steps, so 40 / 36 of that in all."""
    steady = steady_part(np.repeat(2 + 0.01 * np.arange(8), 5))
    assert steady.dropped == 4
    assert steady.drift_ratio == pytest.approx(0.06 / 2.008)
    assert steady.slope_ratio == pytest.approx(0.06 / 2.008 * 40 / 36)


@pytest.mark.parametrize(("count", "slope"), [(22, 0.0), (23, 0.09 / 1.01 * 23 / 20)])
def test_a_slope_of_four_batches_is_told_and_no_trend_seen(count: int, slope: float) -> None:
    """A tenth is dropped, three of 23 steps: four batches, of which no order is as rare as a trend has to be."""
    steady = steady_part(np.append([9.0, 9.0, 9.0], np.repeat(1.01 + 0.03 * np.arange(4), 5))[:count])
    assert (steady.dropped, steady.drift_ratio) == (3, 0.0)
    assert steady.slope_ratio == pytest.approx(slope)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("series", [[], [1.0], [1.0] * 4, [1.0] * 30, np.arange(20.0), [0.0] * 100])
def test_what_has_no_slope_is_told_without_a_warning(series: list[float]) -> None:
    steady = steady_part(series)
    assert (steady.drift_ratio, steady.slope_ratio) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("beyond", "pairs", "most"),
    [(0, 3, False), (1, 1, True), (1, 2, False), (3, 3, True), (2, 3, False), (6, 6, True), (5, 6, False),
     (8, 10, True), (7, 10, False), (8, 9, True), (7, 9, False), (9, 12, True), (8, 12, False)],
)  # fmt: skip
def test_so_many_pairs_beyond_the_threshold_are_most(beyond: int, pairs: int, most: bool) -> None:
    """By the tail of fair coins: 8 of 10 come in 5.5 % of throws, 7 of 10 in 17, 8 of 9 in 2.0, 7 of 9 in 9.0, 9 of 12
    in 7.3; up to three pairs, all. Those at the threshold are not beyond it."""
    far, at = np.log1p(0.03), np.log1p(0.01)
    ratios = np.array([far] * beyond + [at] * (pairs - beyond))
    assert most_lie_beyond(ratios, 0.01) is most
    assert most_lie_beyond(ratios[::-1], 0.01) is most


@given(st.lists(st.floats(-0.02, 0.08), min_size=2, max_size=20))
def test_no_chance_is_a_t_test_at_once_in_a_thousand_of_four_pairs_or_more(values: list[float]) -> None:
    interval = paired_interval(values, 0.95)
    if len(values) < 4 or not interval.se > 0:
        assert is_no_chance(interval)
    else:
        assert is_no_chance(interval) == bool(stats.ttest_1samp(values, 0).pvalue <= 0.001)


@pytest.mark.parametrize(
    ("values", "told"),
    [([0.01, 0.3], True), ([0.01, 0.02, 0.3], True), ([0.01, 0.02, 0.03, 0.3], False), ([0.0] * 6, True)],
)
def test_chance_is_told_by_hand(values: list[float], told: bool) -> None:
    assert is_no_chance(paired_interval(values, 0.95)) == told


@pytest.mark.parametrize(("t", "told"), [(12.924, True), (12.923, False), (-12.924, True), (-12.923, False)])
def test_chance_ends_where_a_table_of_t_says(t: float, told: bool) -> None:
    """Of four pairs: 12.924 of Student's t table, 0.001 on both sides, 3 degrees of freedom."""
    interval = replace(paired_interval([0.01, 0.02, 0.03, 0.04], 0.95), mean=np.float64(2 * t), se=np.float64(2))
    assert is_no_chance(interval) == told
