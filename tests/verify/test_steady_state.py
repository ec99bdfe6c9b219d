from __future__ import annotations

import numpy as np
import pytest

from timesink.verify.statistics import mser_cut, steady_part, trend


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
    assert trend(np.array([batches[at] for at in (0, 30, 5, 35, 10, 20, 15, 25)]).repeat(5)) == 0.0  # no order
    assert trend(np.arange(8.0).repeat(5)) == 0.0  # a line through nothing has no relative slope
    assert trend(np.arange(-30.0, -22.0).repeat(5)) == 0.0
    assert trend(np.array(batches[:15])) == 0.0  # too few to tell
    assert trend(np.ones(40)) == 0.0
