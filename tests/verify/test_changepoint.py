import json
from pathlib import Path

import numpy as np
import pytest
from scipy import signal, stats

from timesink.render.gate import headline
from timesink.verify.changepoint import (
    block_permutations,
    change_point,
    gate_history,
    judge_history,
    lag1,
    split_statistic,
)
from timesink.verify.outcomes import Outcome, Reason


def history(rng: np.random.Generator, count: int, ar: float = 0.0, sd: float = 0.01) -> np.ndarray:
    noise = signal.lfilter([np.sqrt(1 - ar**2)], [1, -ar], rng.standard_normal(count + 50))[50:]
    return np.exp(sd * noise)


def test_the_statistic_is_the_largest_two_sample_t_over_all_splits() -> None:
    values = np.random.default_rng(0).standard_normal(20)
    by_hand = {k: abs(stats.ttest_ind(values[:k], values[k:]).statistic) for k in range(3, 18)}
    t, index = split_statistic(values)
    assert float(t) == pytest.approx(max(by_hand.values()))
    assert int(index) == max(by_hand, key=by_hand.get)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [1, 3])
def test_a_permutation_keeps_every_point_once(block: int) -> None:
    rows = block_permutations(np.random.default_rng(1), 20, block, 50)
    assert all(sorted(row) == list(range(20)) for row in rows)
    neighbours = np.mean(np.diff(rows, axis=1) == 1)
    assert neighbours > 0.6 if block == 3 else neighbours < 0.15


def test_two_clean_levels_split_where_they_change() -> None:
    found = change_point(np.log([1.0, 1.001] * 10 + [1.1, 1.101] * 5), 1)
    assert found.index == 20
    assert found.p == pytest.approx(1 / 1000)
    assert found.ratio == pytest.approx(1.1, rel=1e-3)


def test_the_same_history_gives_the_same_answer() -> None:
    values = np.log(history(np.random.default_rng(3), 40))
    assert change_point(values, 3) == change_point(values, 3)


def test_a_change_is_not_taken_for_correlation() -> None:
    rng = np.random.default_rng(4)
    stepped = np.log(history(rng, 60)) + np.where(np.arange(60) < 30, 0, 0.2)
    assert abs(lag1(stepped)) < 0.3
    assert lag1(np.cumsum(rng.standard_normal(60))) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("ar", "most"), [(0.0, 0.01), (0.3, 0.03)])
def test_a_quiet_history_raises_an_alert_as_rarely_as_stated(ar: float, most: float) -> None:
    """Nominal 1 %; correlated histories are allowed 3 %. With noise of 3 % the threshold of 2 % holds nothing back."""
    rng = np.random.default_rng(5)
    alarms = [judge_history(history(rng, 40, ar, sd=0.03))[1] is not None for _ in range(2000)]
    assert np.mean(alarms) <= most + 3 * np.sqrt(most * (1 - most) / 2000)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "after", "power"), [(1.03, 5, 0.75), (1.03, 10, 0.95), (1.05, 5, 0.97)])
def test_a_lasting_change_in_a_history_with_one_percent_noise_is_found(change: float, after: int, power: float) -> None:
    rng = np.random.default_rng(6)
    found = []
    for _ in range(400):
        values = history(rng, 40)
        values[-after:] *= change
        found.append(judge_history(values)[0].outcome is Outcome.SLOWER)
    assert np.mean(found) >= power - 3 * np.sqrt(power * (1 - power) / 400)


def test_an_alert_is_tagged_so_that_it_fails_no_gate() -> None:
    verdict, found = judge_history([1.0, 1.001] * 10 + [1.1, 1.101] * 5)
    assert (verdict.outcome, verdict.tagged, verdict.is_alert) == (Outcome.SLOWER, False, True)
    assert found is not None
    assert found.index == 20


@pytest.mark.parametrize(
    ("means", "reason"),
    [([1.0] * 19, Reason.INSUFFICIENT_BASELINE), ([1.0] * 19 + [0.0], Reason.BAD_VALUES),
     ([1.0] * 19 + [float("nan")], Reason.BAD_VALUES),
     (list(np.exp(np.cumsum([0.01, -0.02, 0.03, 0.01, 0.02] * 8))), Reason.UNSTABLE_HISTORY),
     ([1.0, 1.001, 0.999] * 10 + [1.1, 1.101, 1.099], Reason.UNCONFIRMED)],
)  # fmt: skip
def test_what_cannot_be_judged_says_why(means: list[float], reason: Reason) -> None:
    assert judge_history(means)[0].reason is reason


def test_constant_history_is_no_difference() -> None:
    assert judge_history([1.0] * 30)[0].outcome is Outcome.NO_DIFFERENCE


@pytest.mark.parametrize(("factor", "said"), [(1.105, "slower"), (1 / 1.105, "faster"), (1.0, "no difference")])
def test_a_lasting_change_is_proven_and_fails_nothing(tmp_path: Path, factor: float, said: str) -> None:
    means = np.random.default_rng(7).normal(1, 0.004, 36) * np.where(np.arange(36) < 20, 1, factor)
    path = tmp_path / "means.jsonl"
    path.write_text("".join(json.dumps({"mean": float(mean)}) + "\n" for mean in means))
    result = gate_history(path, "trunk", 0.02)
    assert (result.outcome, result.exit_code(), result.exit_code(strict=True)) == (said, 0, 0)
    assert said in headline(result)
    assert "not proven" not in headline(result)
    assert "inconclusive" not in headline(result)
