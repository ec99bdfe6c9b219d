"""What explains how runs differ is seen, said and taken out; what it does not explain stays in."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.verify.runs_by_hand import row

from timesink.records import replace
from timesink.verify.experiment import ExperimentPlan, judge, verify
from timesink.verify.outcomes import Outcome, Reason, RunRow
from timesink.verify.runs import pair_order

PLAN = ExperimentPlan()
Noise = Callable[[int, str, str], float]


def made(
    pairs: int, noise: Noise, change: float = 0.0, seed: int = 1, **recorded: object
) -> list[tuple[RunRow, RunRow]]:
    """Pairs of runs that differ by 0.3 % and by `noise` (of the run's place, its side and the side before it)."""
    rng, rows, before_it = np.random.default_rng(seed), [], "after"
    for pair in range(pairs):
        two = {}
        for side in pair_order(pair):
            at = len(rows) * 2 + len(two)
            log = noise(at, side, before_it) + 0.003 * rng.standard_normal()
            seconds = 0.01 * np.exp(log) * (1 + change * (side == "after"))
            two[side], before_it = row(float(seconds), side, at + 3, **recorded), side
        rows.append((two["before"], two["after"]))
    return rows


SLOW = [0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0]
EXPLAINED: dict[str, Noise] = {
    "the second run of a pair is 4.": lambda at, side, before_it: 0.04 * (at % 2),
    "a run after the changed build is ": lambda at, side, before_it: 0.05 * (before_it == "after"),
    "runs swing by ±5": lambda at, side, before_it: 0.05 * float(np.sin(2 * np.pi * at / 5)),
    "processes take two modes: ": lambda at, side, before_it: 0.2 * SLOW[at % 24],
}


@pytest.mark.parametrize("says", EXPLAINED)
@pytest.mark.parametrize(("change", "outcome"), [(0.0, Outcome.NO_DIFFERENCE), (0.05, Outcome.SLOWER)])
def test_what_explains_how_runs_differ_is_said_and_taken_out(says: str, change: float, outcome: Outcome) -> None:
    verdict = judge(made(12, EXPLAINED[says], change), PLAN)
    assert verdict.outcome is outcome
    assert verdict.effect is not None
    assert verdict.effect.ratio == pytest.approx(1 + change, abs=0.02)
    assert change or any(says in note for note in verdict.notes), verdict.notes  # 5 % show without


def with_clock(pairs: list[tuple[RunRow, RunRow]], mhz: Noise) -> list[tuple[RunRow, RunRow]]:
    return [
        (
            replace(before, sm_mhz=mhz(before.number, "before", "")),
            replace(after, sm_mhz=mhz(after.number, "after", "")),
        )
        for before, after in pairs
    ]


def wander(at: int) -> float:
    return 0.03 * float(np.random.default_rng(at).standard_normal())


def test_a_recorded_clock_is_taken_out_unless_the_change_moves_it() -> None:
    noisy = made(12, lambda at, side, before_it: -wander(at + 3))
    assert judge(noisy, PLAN).outcome is Outcome.INCONCLUSIVE
    seen = judge(with_clock(noisy, lambda at, side, _: 1800 * np.exp(wander(at))), PLAN)
    assert (seen.outcome, seen.notes[0][-17:]) == (Outcome.NO_DIFFERENCE, "at equal SM clock")
    # A build that heats the GPU so that its clock falls by 6 % is slower, and equal clocks are no excuse.
    slower = made(12, lambda at, side, before_it: -wander(at + 3) + 0.06 * (side == "after"))
    moved = with_clock(slower, lambda at, side, _: 1800 * np.exp(wander(at) - 0.06 * (side == "after")))
    assert judge(moved, PLAN).outcome is not Outcome.NO_DIFFERENCE


def test_a_carry_over_forbids_the_plain_interval() -> None:
    """It would halve the effect, and make one of nothing."""
    carried = made(6, lambda at, side, before_it: 0.05 * (before_it == "after"))
    verdict = judge(carried, PLAN)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.CARRY_OVER)
    assert verdict.explanation.startswith("a run after the changed build is ")
    assert verdict.effect is None
    at_threshold = judge(made(12, lambda at, side, before_it: 0.05 * (before_it == "after"), 0.02), PLAN)
    assert at_threshold.outcome is Outcome.INCONCLUSIVE
    assert at_threshold.effect is not None
    assert at_threshold.effect.low < 1.02 < at_threshold.effect.high


def test_modes_of_one_side_alone_are_the_change() -> None:
    one_sided = made(12, lambda at, side, before_it: 0.2 * SLOW[at % 24] * (side == "after"))
    assert judge(one_sided, PLAN).outcome is not Outcome.NO_DIFFERENCE


def test_slow_steps_of_one_side_alone_are_the_change() -> None:
    rng = np.random.default_rng(3)
    slow = [
        (replace(before, median_s=before.mean_s), replace(after, median_s=after.mean_s, mean_s=after.mean_s * more))
        for (before, after), more in zip(made(12, lambda *_: 0.0), rng.uniform(1, 1.2, 12), strict=True)
    ]
    assert judge(slow, PLAN).outcome is not Outcome.NO_DIFFERENCE


def test_a_mode_that_five_of_six_pairs_happen_to_change_is_no_change() -> None:
    ratios = [1.2, 1.201, 1.199, 1.2, 1.2, 1.0]
    assert judge([(row(0.01), row(0.01 * ratio)) for ratio in ratios], PLAN).outcome is Outcome.INCONCLUSIVE


def test_pairs_that_are_needed_are_said_ahead_and_hopeless_ones_are_not_made() -> None:
    rng, told = np.random.default_rng(2), list[str]()
    noise = rng.normal(0, 0.08, 60)
    done = verify(PLAN, lambda side, number: row(0.01 * float(np.exp(noise[number])), side, number), told.append)
    assert len(done.pairs) == 12
    assert "30 pairs would decide nothing here" in done.verdict.explanation
    assert any("6 pairs: inconclusive, needs about " in line and "looked at again after" in line for line in told)


@pytest.mark.parametrize(("warm_up", "looks", "says"), [
    (1, (6, 12, 18, 30), "about {first} ahead: 6 pairs of {pair}, or up to 30 ({last}) where runs differ"),
    (0, (4,), "about {first} ahead: 4 pairs of {pair}"),
])  # fmt: skip
def test_who_waits_is_told_at_once_and_after_one_pair_how_long(
    warm_up: int, looks: tuple[int, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, told = [0.0], list[str]()
    monkeypatch.setattr("timesink.verify.experiment.time.monotonic", lambda: now[0])

    def launch(side: str, number: int) -> RunRow:
        assert told, "nothing is told before the first run"
        now[0] += 10.0
        return row(0.01 * (1 + 0.0001 * (number % 3)), side, number)

    verify(ExperimentPlan(looks=looks, warm_up_pairs=warm_up), launch, told.append)
    (price,) = [line for line in told if line.startswith("about ")]
    assert price == says.format(first="2 min" if looks[0] == 6 else "1.3 min", pair="20 s", last="10 min")
    assert told.index(price) == 3, "after both runs of the first pair"
    if looks[0] == 6:
        assert [line for line in told if " of 6 pairs" in line][-1] == "5 of 6 pairs: about 20 s ahead"
