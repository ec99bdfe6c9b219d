from collections.abc import Callable

import numpy as np
import pytest
from tests.verify.runs_by_hand import pairs, row

from timesink.errors import UsageError
from timesink.records import replace
from timesink.verify import limits
from timesink.verify.experiment import ExperimentPlan, judge, to_result, verify
from timesink.verify.outcomes import Outcome, Reason, RunRow

PLAN = ExperimentPlan(threshold_ratio=0.01)
EVEN = (0.999, 1.0, 1.001, 1.0, 0.999, 1.001)


def launcher(
    ratio: float, noise: tuple[float, ...] = EVEN, **after: object
) -> tuple[Callable[[str, int], RunRow], list[str]]:
    order: list[str] = []

    def launch(side: str, number: int) -> RunRow:
        order.append(side)
        mean = 0.01 * noise[number % len(noise)] * (ratio if side == "after" else 1)
        return row(mean, side, number, **(after if side == "after" else {}))

    return launch, order


def test_a_clear_slow_down_is_decided_at_the_first_look() -> None:
    launch, order = launcher(1.05)
    done = verify(PLAN, launch)
    assert done.verdict.outcome is Outcome.SLOWER
    assert (len(done.pairs), len(order)) == (6, 14)
    assert order[:8] == ["before", "after", "before", "after", "after", "before", "before", "after"]


def test_no_change_is_said_to_be_none() -> None:
    assert verify(PLAN, launcher(1.0)[0]).verdict.outcome is Outcome.NO_DIFFERENCE


def test_a_gain_is_faster_and_its_ratio_is_after_over_before() -> None:
    verdict = verify(PLAN, launcher(0.9)[0]).verdict
    assert verdict.outcome is Outcome.FASTER
    assert verdict.effect is not None
    assert verdict.effect.ratio == pytest.approx(0.9, rel=0.01)
    assert verdict.effect.level == 0.95


def test_noise_uses_up_the_plan_and_says_what_would_resolve_it() -> None:
    launch, order = launcher(1.02, noise=(0.95, 1.0, 1.06, 0.98, 1.04, 1.0, 0.93))
    verdict = verify(PLAN, launch).verdict
    assert len(order) == 2 + 36
    assert (verdict.outcome, verdict.reason, verdict.pairs) == (Outcome.INCONCLUSIVE, Reason.TOO_NOISY, 18)
    assert "pairs" in verdict.to_resolve


def test_another_result_stops_at_once_and_shows_no_speed() -> None:
    launch, order = launcher(0.5, check="8")
    done = verify(PLAN, launch)
    assert (done.verdict.outcome, done.verdict.reason, done.verdict.effect) == (
        Outcome.INVALID,
        Reason.WRONG_RESULT,
        None,
    )
    assert len(order) == 2
    assert "'7'" in done.verdict.explanation
    assert "'8'" in done.verdict.explanation


def test_a_check_on_one_side_only_is_another_result() -> None:
    assert verify(PLAN, launcher(1.0, check=None)[0]).verdict.outcome is Outcome.INVALID


def test_without_checks_the_verdict_says_that_results_were_not_compared() -> None:
    launch, _ = launcher(1.0, check=None)
    done = verify(PLAN, lambda side, number: replace(launch(side, number), check=None))
    assert done.verdict.outcome is Outcome.NO_DIFFERENCE
    assert "were not compared" in done.notes[0]


def test_a_loss_within_the_tolerance_is_the_same_result() -> None:
    plan = replace(PLAN, check_tolerance_ratio=0.01)
    assert verify(plan, launcher(1.05, check="7.01")[0]).verdict.outcome is Outcome.SLOWER


@pytest.mark.parametrize(("ratio", "slowed", "outcome"), [(0.5, "after", "faster"), (2.0, "before", "slower")])
def test_a_side_that_is_slowed_and_faster_all_the_same_is_faster(ratio: float, slowed: str, outcome: str) -> None:
    runs = [
        tuple(replace(run, slowed_by=("power",) * (run.side == slowed)) for run in pair) for pair in pairs(*[ratio] * 6)
    ]
    verdict = judge(runs, PLAN)
    assert (verdict.outcome, verdict.reason) == (Outcome(outcome), None)
    assert verdict.notes == ("the GPU was slowed in 6 of 12 runs",)


def test_one_sided_throttling_forbids_a_verdict_and_two_sided_is_a_note() -> None:
    slowed = pairs(*[1.05] * 6)
    one_sided = [(b, replace(a, slowed_by=("hardware slowdown",))) for b, a in slowed]
    assert judge(one_sided, PLAN).reason is Reason.THROTTLED
    unchanged = [(b, replace(a, slowed_by=("hardware slowdown",))) for b, a in pairs(*[1.0] * 6)]
    assert judge(unchanged, PLAN).reason is Reason.THROTTLED
    both = judge(pairs(*[1.05] * 6, slowed_by=("software power cap",)), PLAN)
    assert both.outcome is Outcome.SLOWER
    assert "slowed in 12 of 12 runs" in " ".join(both.notes)


def test_a_shared_gpu_forbids_a_verdict() -> None:
    assert judge(pairs(*[1.05] * 6, foreign=("other (process 9)",)), PLAN).reason is Reason.FOREIGN_PROCESS


@pytest.mark.parametrize(
    ("unsteady", "reason"), [({"settled": False}, Reason.NOT_STEADY), ({"drift_ratio": 0.05}, Reason.DRIFT)]
)
def test_runs_of_one_side_that_never_settle_or_keep_drifting_forbid_a_verdict(
    unsteady: dict[str, object], reason: Reason
) -> None:
    made = pairs(*[1.05] * 6)
    assert judge([(before, replace(after, **unsteady)) for before, after in made], PLAN).reason is reason
    assert judge([(replace(before, **unsteady), after) for before, after in made], PLAN).reason is reason


def test_a_warm_up_that_outlasts_the_runs_of_both_sides_alike_leaves_their_ratio() -> None:
    alike = judge(pairs(*[1.05] * 6, settled=False, drift_ratio=-0.07), PLAN)
    assert alike.outcome is Outcome.SLOWER
    assert "12 of 12 runs never settle; their second half was used" in alike.notes
    slow_start = [
        (before, replace(after, drift_ratio=-0.12)) for before, after in pairs(*[1.05] * 6, drift_ratio=-0.07)
    ]
    assert judge(slow_start, PLAN).reason is Reason.DRIFT


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_are_no_times_are_named_not_judged(bad: float) -> None:
    verdict = judge([*pairs(*[1.0] * 5), (row(bad), row(0.01))], PLAN)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.BAD_VALUES)


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_pairs_are_inconclusive_never_an_exception(count: int) -> None:
    assert judge(pairs(*[1.0] * count), PLAN).reason is Reason.TOO_FEW_RUNS


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_time_changes_no_verdict(scale: float) -> None:
    made = [(row(0.01 * scale), row(0.01 * scale * ratio)) for ratio in (1.02, 1.03, 1.04, 1.03, 1.02, 1.03)]
    verdict = judge(made, PLAN)
    assert verdict.outcome is Outcome.SLOWER
    assert verdict.effect is not None
    assert verdict.effect.ratio == pytest.approx(1.0283, abs=1e-3)


def test_a_threshold_under_twice_the_noise_is_warned_about() -> None:
    verdict = judge(pairs(1.0, 1.05, 0.96, 1.02, 0.99, 1.03), PLAN)
    assert "under twice the run-to-run deviation" in " ".join(verdict.notes)


def test_an_interval_that_leaves_out_one_but_not_the_threshold_is_likely_never_decided() -> None:
    verdict = judge(pairs(1.004, 1.012, 1.008, 1.006, 1.013, 1.009), PLAN)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.label == "inconclusive (likely slower)"


@pytest.mark.parametrize(
    "plan",
    [
        ExperimentPlan(looks=()),
        ExperimentPlan(looks=(6, 6)),
        ExperimentPlan(looks=(1,)),
        ExperimentPlan(alpha=0),
        ExperimentPlan(threshold_ratio=0),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(plan: ExperimentPlan) -> None:
    with pytest.raises(UsageError):
        verify(plan, launcher(1.0)[0])


def test_the_result_gates_the_mean_and_shows_median_and_runs_in_order() -> None:
    result = to_result(verify(PLAN, launcher(1.05)[0]), "suite")
    assert [(r.name, r.gated) for r in result.rows] == [("step time (mean)", True), ("step time (median)", False)]
    assert [r.number for r in result.runs] == list(range(3, 15))
    assert result.exit_code() == 1
    assert result.rows[0].before == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("pair_s", "made"),
    [
        (2.0, 30),
        (16.0, 17),
        (25.0, 11),
        (40.0, 6),
        (50.0, 5),
        (75.0, 3),
        (400.0, 3),
    ],  # of at most 300 s, 1 pair warms up
)
def test_a_gate_ends_within_its_time(pair_s: float, made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes half of a pair's time; pairs that differ so are made 30 times, and the fewest in any case."""
    launch, _ = launcher(1.01, noise=tuple(np.exp(0.04 * np.random.default_rng(5).standard_normal(41))))
    clock, told = [1000.0], list[str]()

    def run(side: str, number: int) -> RunRow:
        clock[0] += pair_s / 2
        return launch(side, number)

    monkeypatch.setattr("timesink.verify.experiment.time.monotonic", lambda: clock[0])
    done = verify(replace(PLAN, within_s=300.0), run, told.append)
    assert (done.verdict.outcome, len(done.pairs)) == (Outcome.INCONCLUSIVE, made)
    assert clock[0] - 1000.0 <= max(300.0, 4 * pair_s)
    assert any("--pairs 6,12,18,30" in note for note in done.notes) == (made < 30)
    assert any("in all at most" in line for line in told) == (30 * pair_s > 300.0)


def test_a_clear_slow_down_is_seen_by_pairs_that_are_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    launch, _ = launcher(1.3)

    def run(side: str, number: int) -> RunRow:
        clock[0] += 25.0
        return launch(side, number)

    monkeypatch.setattr("timesink.verify.experiment.time.monotonic", lambda: clock[0])
    done = verify(replace(PLAN, within_s=300.0), run)
    assert (done.verdict.outcome, len(done.pairs), done.notes) == (Outcome.SLOWER, 5, ())


@pytest.mark.parametrize("made", range(3, 18))
def test_a_cut_calls_no_unchanged_program_slower(made: int) -> None:
    """Where time ends the pairs, what they show does not: one look more or less keeps the error rate."""
    random = np.random.default_rng(44 + made)
    slower = 0
    for _ in range(200):
        sides = np.exp(0.03 * random.standard_normal((made, 2)))
        judged = judge([(row(0.01 * one), row(0.01 * other, "after")) for one, other in sides], PLAN)
        slower += judged.outcome is Outcome.SLOWER
    assert slower <= 200 * 0.02


@pytest.mark.parametrize(
    ("start_s", "step_s", "made"), [(5.0, 0.5, 6), (10.0, 0.2, 6), (40.0, 0.3, 3), (2.0, 0.05, 30)]
)
def test_a_gate_ends_long_runs_early(start_s: float, step_s: float, made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 steps a run: first contact found a gate that had not answered in 521 s, most of them whole runs."""
    clock, steps = [0.0], [200]
    noise = np.exp(0.001 * np.random.default_rng(7).standard_normal(90))

    def run(side: str, number: int) -> RunRow:
        clock[0] += start_s + steps[-1] * step_s
        mean_s = step_s * float(noise[number])
        took_s = steps[-1] * step_s
        return replace(row(mean_s, side), number=number, steps=steps[-1], steps_s=took_s, outside_s=start_s + took_s)

    monkeypatch.setattr("timesink.verify.experiment.time.monotonic", lambda: clock[0])
    done = verify(replace(PLAN, within_s=300.0), run, lambda _: None, steps.append)
    whole_s = start_s + 200 * step_s
    fits = 2 * (PLAN.looks[0] + 1) * whole_s <= 300.0
    assert (len(steps) == 1) == fits
    assert all(one >= limits.CUT_STEPS for one in steps)
    assert len(done.pairs) >= 3 and (fits or clock[0] <= max(300.0, 2 * whole_s + 6 * (start_s + steps[-1] * step_s)))
    assert any("each run is ended after" in note for note in done.notes) != fits
    assert len(done.pairs) == made or done.verdict.is_final
