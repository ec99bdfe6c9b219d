"""From pairs of runs to one of five outcomes, with the reason and the way out where nothing can be said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from timesink.experiments.limits import (
    ALPHA,
    LOOKS,
    MIN_PAIRS,
    MOST_PAIRS,
    ONE_SIDED_RUNS,
    SD_WARNING,
    STEP_THRESHOLD,
    UNSTEADY_RUNS,
    WANTED_STEPS,
)
from timesink.experiments.paired import (
    LogInterval,
    classify,
    detectable,
    false_alarm,
    look_level,
    paired_interval,
    pairs_to_decide,
)
from timesink.outcomes import Effect, Outcome, Reason, RunRow, Verdict

Pair = tuple[RunRow, RunRow]


class Hindrance(NamedTuple):
    """What forbids a verdict: its code, what was seen, what would help."""

    reason: Reason
    explanation: str
    to_resolve: str


_CODES = {1: Outcome.SLOWER, -1: Outcome.FASTER, 0: Outcome.NO_DIFFERENCE, 2: Outcome.INCONCLUSIVE}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a change is verified, fixed before the first run: pairs at each look, error rate, practical threshold."""

    threshold_ratio: float = STEP_THRESHOLD.default
    alpha: float = ALPHA.default
    looks: tuple[int, ...] = LOOKS
    warm_up_pairs: int = 1
    receipt_tolerance_ratio: float = 0.0


def judge(pairs: Sequence[Pair], plan: Plan) -> Verdict:
    """The verdict on the mean step time after these pairs. Never raises for bad values: it says what is bad."""
    ratios = [_log_ratio(before.mean_s, after.mean_s) for before, after in pairs]
    if len(ratios) < MIN_PAIRS.default:
        too_few = Hindrance(
            Reason.TOO_FEW_RUNS, f"{len(ratios)} pairs; a deviation needs two", f"make {plan.looks[0]} pairs"
        )
        return _unsaid(plan, too_few, len(ratios))
    if not np.all(np.isfinite(ratios)):
        bad = Hindrance(Reason.BAD_VALUES, "a run's mean step time is no positive number", "check the step source")
        return _unsaid(plan, bad, len(ratios))
    at = paired_interval(ratios, look_level(plan.alpha, len(plan.looks)))
    verdict = _decide(at, plan, len(ratios), _warnings(pairs, at, plan))
    hindrance = _hindrance(pairs, plan, verdict.outcome)
    if hindrance is None:
        return verdict
    reason, explanation, remedy = hindrance
    return replace(
        verdict,
        outcome=Outcome.INCONCLUSIVE,
        reason=reason,
        explanation=explanation,
        to_resolve=remedy,
        false_alarm_ratio=None,
    )


def _decide(at: LogInterval, plan: Plan, pairs: int, notes: tuple[str, ...]) -> Verdict:
    outcome = _CODES[int(classify(at.low, at.high, plan.threshold_ratio))]
    level = look_level(plan.alpha, len(plan.looks))
    effect = Effect(float(np.exp(at.mean)), float(np.exp(at.low)), float(np.exp(at.high)), 1 - plan.alpha)
    sd = float(at.se) * np.sqrt(pairs)
    explanation, remedy = ("", "")
    if outcome is Outcome.INCONCLUSIVE:
        explanation, remedy = _too_noisy(float(at.mean), sd, level, plan, pairs)
    return Verdict(
        outcome,
        plan.threshold_ratio,
        effect,
        reason=Reason.TOO_NOISY if outcome is Outcome.INCONCLUSIVE else None,
        explanation=explanation,
        to_resolve=remedy,
        pairs=pairs,
        run_sd_ratio=sd / np.sqrt(2),
        false_alarm_ratio=false_alarm(float(at.se), at.df, level, plan.threshold_ratio)
        if outcome in (Outcome.SLOWER, Outcome.FASTER)
        else None,
        notes=notes,
    )


def _too_noisy(mean: float, sd: float, level: float, plan: Plan, pairs: int) -> tuple[str, str]:
    least = detectable(sd, pairs, level, plan.threshold_ratio)
    explanation = (
        f"the interval crosses a threshold; {pairs} pairs show a slow-down of {100 * least:.1f} % in half of all trials"
    )
    most = int(MOST_PAIRS.default)
    needed = pairs_to_decide(mean, sd, level, plan.threshold_ratio, most)
    if needed is None:
        return (
            explanation,
            f"over {most} pairs: the effect lies at the threshold of {100 * plan.threshold_ratio:g} %; "
            "decide whether a change of that size matters",
        )
    return explanation, f"about {max(needed, pairs + 1)} pairs if effect and noise stay as they are"


# The outcome that slowing one side alone cannot feign: the slowed side is the faster one all the same.
_DESPITE = {Outcome.SLOWER: 0, Outcome.FASTER: 1}


def _hindrance(pairs: Sequence[Pair], plan: Plan, outcome: Outcome) -> Hindrance | None:
    """What forbids a verdict whatever the interval says: unsteady runs, one-sided throttling, a shared GPU."""
    sides = tuple(zip(*pairs, strict=True))
    for side in sides:
        unsettled = sum(not run.settled for run in side)
        if unsettled > UNSTEADY_RUNS.default * len(side):
            return Hindrance(
                Reason.NOT_STEADY,
                f"{unsettled} of {len(side)} {side[0].side} runs never settle",
                "time more steps per run, or find what keeps changing",
            )
        drifting = sum(abs(run.drift_ratio) > plan.threshold_ratio for run in side)
        if drifting > UNSTEADY_RUNS.default * len(side):
            share = f"{100 * plan.threshold_ratio:g} %"
            why = f"{drifting} of {len(side)} {side[0].side} runs drift by more than {share} while they run"
            return Hindrance(Reason.DRIFT, why, "time more steps per run, or lock the clocks")
    slowed = [[run for run in side if run.slowed_by] for side in sides]
    one_sided = (not slowed[0]) != (not slowed[1]) and max(map(len, slowed)) >= ONE_SIDED_RUNS.default
    if one_sided and not (outcome in _DESPITE and slowed[_DESPITE[outcome]]):
        hit = slowed[0] or slowed[1]
        causes = ", ".join(sorted({cause for run in hit for cause in run.slowed_by}))
        why = f"the GPU was slowed ({causes}) in {len(hit)} {hit[0].side} runs and in none of the other side"
        return Hindrance(Reason.THROTTLED, why, "lower the power or heat, lock the clocks, or compare in cycles")
    shared = [run for side in sides for run in side if run.foreign]
    if shared:
        why = f"another program was on the GPU before {len(shared)} runs: {shared[0].foreign[0]}"
        return Hindrance(
            Reason.FOREIGN_PROCESS, why, "take the GPU for yourself, or select one with CUDA_VISIBLE_DEVICES"
        )
    return None


def _warnings(pairs: Sequence[Pair], at: LogInterval, plan: Plan) -> tuple[str, ...]:
    runs = [run for pair in pairs for run in pair]
    run_sd = float(at.se) * np.sqrt(len(pairs)) / np.sqrt(2)
    notes = []
    if plan.threshold_ratio < SD_WARNING.default * run_sd:
        notes.append(
            f"the threshold of {100 * plan.threshold_ratio:g} % is under twice the run-to-run deviation "
            f"of {100 * run_sd:.2g} %"
        )
    if (shortest := min(run.steps for run in runs)) < WANTED_STEPS.default:
        notes.append(f"runs of {shortest} steps: warm-up is detected reliably from {WANTED_STEPS.default:.0f} steps")
    if unsettled := sum(not run.settled for run in runs):
        notes.append(f"{unsettled} of {len(runs)} runs never settle; their second half was used")
    if slowed := sum(bool(run.slowed_by) for run in runs):
        notes.append(f"the GPU was slowed in {slowed} of {len(runs)} runs")
    return tuple(notes)


def _unsaid(plan: Plan, hindrance: Hindrance, pairs: int) -> Verdict:
    return Verdict(Outcome.INCONCLUSIVE, plan.threshold_ratio, None, *hindrance, pairs=pairs)


def _log_ratio(before: float, after: float) -> float:
    return float(np.log(after) - np.log(before)) if before > 0 and after > 0 else float("nan")
