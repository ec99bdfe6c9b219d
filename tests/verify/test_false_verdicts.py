"""Simulations with fixed seeds: how often a verdict is wrong, and how often a real change is found."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.noise import HARDER, KINDS, MODELS, WEAK, Kind, log_ratios, run_means, runs
from benchmarks.one_run_a_side import rows, said
from benchmarks.verdicts import sequential_codes
from scipy import stats

from benchmarks import false_verdicts as simulated
from timesink.verify.runs import RunSteps, summarise
from timesink.verify.statistics import classify, paired_interval

EXPERIMENTS = 2_000
STEPS = 100
LOOKS = (6, 12, 18)
SLOWER, FASTER, NO_DIFFERENCE = 1, -1, 0
TOLD_APART = [kind for kind in KINDS if kind.ar in (0.0, 0.9)]  # what lies between says no more
SESSIONS = 2  # of each of the harder kinds of noise, run through `verify`: a sample of what the benchmark counts


@cache
def ratios(kind: Kind) -> np.ndarray:
    """Log ratios (experiments, 18 pairs) when nothing changed; a change of r adds log r to each."""
    rng = np.random.default_rng(20_261_120)
    return log_ratios(run_means(runs(rng, kind, EXPERIMENTS, 2 * LOOKS[-1], STEPS)))


def bound(rate: float) -> float:
    """The rate plus three standard errors of a simulation of this size."""
    return rate + 3 * np.sqrt(rate * (1 - rate) / EXPERIMENTS)


@pytest.mark.parametrize("kind", TOLD_APART, ids=lambda kind: kind.name)
@pytest.mark.parametrize("pairs", [4, 6, 10])
def test_an_interval_leaves_out_no_change_at_most_as_often_as_it_says(kind: Kind, pairs: int) -> None:
    at = paired_interval(ratios(kind)[:, :pairs], 0.95)
    assert np.mean((at.low > 0) | (at.high < 0)) <= bound(0.05)


@pytest.mark.parametrize("kind", TOLD_APART, ids=lambda kind: kind.name)
@pytest.mark.parametrize("pairs", [4, 6, 10])
def test_an_interval_covers_the_true_ratio_93_to_97_percent_of_the_time(kind: Kind, pairs: int) -> None:
    truth = np.log(1.03)
    at = paired_interval(ratios(kind)[:, :pairs] + truth, 0.95)
    assert 0.93 <= np.mean((at.low <= truth) & (truth <= at.high)) <= 0.97


@pytest.mark.parametrize("kind", TOLD_APART, ids=lambda kind: kind.name)
def test_the_plan_calls_an_unchanged_program_slower_or_faster_less_than_once_in_200(kind: Kind) -> None:
    codes = sequential_codes(ratios(kind), LOOKS, 0.05, 0.01)
    assert np.mean(np.isin(codes, (SLOWER, FASTER))) <= 0.005


@pytest.mark.parametrize("kind", TOLD_APART, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("truth", "wrong"), [(1.01, SLOWER), (1 / 1.01, FASTER)])
def test_at_the_threshold_itself_the_plan_errs_at_most_one_time_in_40(kind: Kind, truth: float, wrong: int) -> None:
    codes = sequential_codes(ratios(kind) + np.log(truth), LOOKS, 0.05, 0.01)
    assert np.mean(codes == wrong) <= bound(0.025)


@pytest.mark.parametrize("kind", TOLD_APART, ids=lambda kind: kind.name)
def test_a_change_past_the_threshold_is_called_no_difference_at_most_one_time_in_40(kind: Kind) -> None:
    codes = sequential_codes(ratios(kind) + np.log(1.0101), LOOKS, 0.05, 0.01)
    assert np.mean(codes == NO_DIFFERENCE) <= bound(0.025)


@pytest.mark.parametrize(
    ("run_sd", "truth", "pairs", "power"),
    [
        (0.005, 1.02, 4, 0.45),
        (0.005, 1.02, 6, 0.76),
        (0.005, 1.02, 8, 0.91),
        (0.005, 1.02, 10, 0.97),
        (0.005, 1.03, 4, 0.93),
        (0.005, 1.03, 6, 0.999),
        (0.01, 1.03, 4, 0.47),
        (0.01, 1.03, 6, 0.77),
        (0.01, 1.03, 8, 0.92),
        (0.01, 1.03, 10, 0.97),
    ],
)
def test_a_slow_down_is_found_as_often_as_the_power_table_says(
    run_sd: float, truth: float, pairs: int, power: float
) -> None:
    at = paired_interval(ratios(Kind("table", run_sd=run_sd))[:, :pairs] + np.log(truth), 0.95)
    found = np.mean(classify(at.low, at.high, 0.01) == SLOWER)
    assert found >= power - 3 * np.sqrt(power * (1 - power) / EXPERIMENTS)


@pytest.mark.parametrize(("pairs", "share"), [(4, 0.24), (6, 0.57), (8, 0.83), (10, 0.94)])
def test_an_unchanged_program_is_called_so_as_often_as_the_power_table_says(pairs: int, share: float) -> None:
    at = paired_interval(ratios(Kind("table"))[:, :pairs], 0.95)
    found = np.mean(classify(at.low, at.high, 0.01) == NO_DIFFERENCE)
    assert found >= share - 3 * np.sqrt(share * (1 - share) / EXPERIMENTS)


def test_the_plan_finds_two_percent_nearly_always_and_mostly_early() -> None:
    values = ratios(Kind("table")) + np.log(1.02)
    assert np.mean(sequential_codes(values, LOOKS, 0.05, 0.01) == SLOWER) >= 0.99
    undecided_after = [
        np.mean(sequential_codes(values, LOOKS[: n + 1], 0.05 * (n + 1) / 3, 0.01) == 2) for n in range(2)
    ]
    assert 6 * (1 + sum(undecided_after)) <= 9.5  # mean pairs made


def test_looking_after_every_pair_without_paying_for_it_breaks_the_error_rate() -> None:
    """The reason why looks are few and each pays: the naive plan fails the bound that ours keeps."""
    values = ratios(Kind("table"))
    naive = np.zeros(EXPERIMENTS, dtype=bool)
    for pairs in range(3, 19):
        at = paired_interval(values[:, :pairs], 0.95)
        naive |= (at.low > 0) | (at.high < 0)
    ours = np.zeros(EXPERIMENTS, dtype=bool)
    for pairs in LOOKS:
        at = paired_interval(values[:, :pairs], 1 - 0.05 / 3)
        ours |= (at.low > 0) | (at.high < 0)
    assert naive.mean() > 0.15
    assert ours.mean() <= bound(0.05)


def test_side_after_side_mistakes_drift_for_a_change_where_abba_does_not() -> None:
    kind = Kind("drift", drift=0.01, run_sd=0.002)
    rng = np.random.default_rng(7)
    means = np.log(run_means(runs(rng, kind, EXPERIMENTS, 12, STEPS)))
    blocked = paired_interval(means[:, 6:] - means[:, :6], 0.95)
    alternating = paired_interval(log_ratios(np.exp(means)), 0.95)
    assert np.mean(blocked.low > 0) > 0.5
    assert np.mean((alternating.low > 0) | (alternating.high < 0)) <= bound(0.05)


def test_the_simulated_run_mean_is_the_one_the_product_computes() -> None:
    series = runs(np.random.default_rng(3), KINDS[2], 20, 2, 120)
    by_hand = [[summarise(RunSteps(tuple(run)), "before", 0).mean_s for run in session] for session in series]
    np.testing.assert_allclose(run_means(series), by_hand, rtol=1e-12)


@pytest.mark.slow
def test_verify_errs_no_more_often_than_it_says_whatever_the_noise() -> None:
    """At 0, at the threshold and at +5 %, and decides in time; chance passes a bound once in a thousand times."""
    tried, wrong = SESSIONS * len(HARDER), dict.fromkeys((*simulated.CHANGES, "interval", "late"), 0)
    seeds = f"({simulated.SEED}, noise, 0 to {SESSIONS - 1})"
    for noise in range(len(HARDER)):
        counted = simulated.counts(noise, SESSIONS)
        for change in simulated.CHANGES:
            wrong[change] += counted[f"false at {change:.0%}"]
        wrong["interval"] += counted["missed at 5%"]
        wrong["late"] += sum(SESSIONS - counted[f"soon at {change}"] for change in ("0%", "5%"))
    bound = {key: stats.binom.ppf(0.999, tried, 0.05) for key in wrong}
    bound["late"] = stats.binom.ppf(0.999, 2 * tried, 0.15)  # not decided within twelve pairs
    assert all(wrong[key] <= bound[key] for key in wrong), (seeds, wrong, bound)


@pytest.mark.slow
def test_no_model_of_noise_makes_an_unchanged_program_slower_or_faster(
    record_property: Callable[[str, object], None],
) -> None:
    """One session of each model; `benchmarks.false_verdicts --models` counts more of them."""
    counted = [simulated.model_count(model, range(1, 2)) for model in range(len(MODELS))]
    record_property(
        "figure",
        f"verify: {sum(bool(one.false) for one in counted)} of {len(counted)} models of noise with a false verdict",
    )
    assert len(counted) == 76
    assert [one.name for one in counted if one.false or one.denied] == []
    assert sum(one.decided for one in counted) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("name", WEAK)
def test_ramps_pink_noise_and_a_noisier_side_leave_two_percent_to_be_found(name: str) -> None:
    """Where half are found, fewer than 6 of 24 are in one of 300 (binomial)."""
    model = [kind.name for kind in MODELS].index(name)
    assert simulated.model_count(model, range(100, 124)).found >= 6


@pytest.mark.slow
@pytest.mark.parametrize("change", [0.0, 0.05])
def test_the_command_answers_as_python_does(change: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE", "")
    told, wanted = simulated.by_command(0, 0, change, tmp_path)
    assert told == wanted == ("slower" if change else "no difference")


def test_the_page_of_verify_says_what_one_run_a_side_says_of_unchanged_programs() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/verify.md").read_text(encoding="utf-8")
    for programs in (made for name, made in rows() if "hours apart" in name or "slowed by the host" in name):
        pairs, *called = said(programs)
        assert called[0] > called[1]
        assert all(f"{100 * count / pairs:.1f} %" in page for count in called)
