"""From pairs of runs to one of five outcomes, with the reason and the way out where nothing can be said.

The paired t interval on log ratios of run summaries: the one test behind every verdict from repeated runs.

A run is the unit, never a step: steps of one run share its memory layout, clocks and placement, so they are not
independent samples, and run-to-run deviation dominates. Each pair is one run before and one after, back to back, so
slow drift cancels. Source: Kalibera and Jones, Rigorous benchmarking in reasonable time (ISMM 2013).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from timesink.model.arrays import Float64Array, Int64Array
from timesink.verify.limits import (
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
from timesink.verify.outcomes import Effect, Outcome, Reason, RunRow, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class LogInterval:
    """Mean log ratio with its interval [low, high]; arrays over the leading axes of the input. `se` is of the mean."""

    mean: Float64Array
    low: Float64Array
    high: Float64Array
    se: Float64Array
    df: float


def paired_interval(log_ratios: npt.ArrayLike, level: float) -> LogInterval:
    """Student t interval of the mean over the last axis, which holds one log(after / before) per pair."""
    values = np.asarray(log_ratios, dtype=np.float64)
    pairs = values.shape[-1]
    if pairs < 2:
        raise ValueError(f"an interval needs two pairs, not {pairs}")
    mean = values.mean(-1)
    se = values.std(-1, ddof=1) / np.sqrt(pairs)
    return interval(mean, se, pairs - 1, level)


def interval(mean: npt.ArrayLike, se: npt.ArrayLike, df: float, level: float) -> LogInterval:
    """The t interval around a mean whose standard error has `df` degrees of freedom."""
    centre, error = np.asarray(mean, np.float64), np.asarray(se, np.float64)
    half = stats.t.ppf(0.5 + level / 2, df) * error
    return LogInterval(centre, centre - half, centre + half, error, df)


def look_level(alpha: float, looks: int) -> float:
    """The level of each interval when the data are looked at `looks` times: Bonferroni, checked by hand."""
    return 1 - alpha / looks


def classify(low: Any, high: Any, threshold_ratio: float) -> Int64Array:
    """+1 slower, -1 faster, 0 no difference, 2 undecided, from log interval bounds; elementwise over arrays.

    The equivalence zone is symmetric on the log scale: (1 / (1 + d), 1 + d).
    """
    edge = np.log1p(threshold_ratio)
    low, high = np.asarray(low), np.asarray(high)
    codes = np.full(np.broadcast(low, high).shape, 2, dtype=np.int64)
    codes[(low > -edge) & (high < edge)] = 0
    codes[low > edge] = 1
    codes[high < -edge] = -1
    return codes


def sequential_codes(
    log_ratios: npt.ArrayLike, looks: tuple[int, ...], alpha: float, threshold_ratio: float
) -> Int64Array:
    """What the plan with these looks concludes, for each row of (..., pairs): the first look that decides wins."""
    values = np.asarray(log_ratios, dtype=np.float64)
    level = look_level(alpha, len(looks))
    decided = np.full(values.shape[:-1], 2, dtype=np.int64)
    for pairs in looks:
        at = paired_interval(values[..., :pairs], level)
        decided = np.where(decided == 2, classify(at.low, at.high, threshold_ratio), decided)
    return decided


def false_alarm(se: float, df: float, level: float, threshold_ratio: float) -> float:
    """Chance that one such interval lies beyond the threshold on one given side when nothing changed.

    The interval is beyond it where t exceeds its critical value by the threshold in standard errors; the observed
    standard error stands for the true one.
    """
    critical = float(stats.t.ppf(0.5 + level / 2, df))
    if se == 0:
        return 0.0
    return float(stats.t.sf(critical + np.log1p(threshold_ratio) / se, df))


def detectable(sd: float, pairs: int, level: float, threshold_ratio: float) -> float:
    """Smallest relative slow-down found in half of all trials of this size: threshold plus half-width."""
    half = float(stats.t.ppf(0.5 + level / 2, pairs - 1)) * sd / np.sqrt(pairs)
    return float(np.expm1(np.log1p(threshold_ratio) + half))


def pairs_to_decide(mean: float, sd: float, level: float, threshold_ratio: float, most: int) -> int | None:
    """Pairs at which an interval of this mean and deviation would clear the nearest threshold; None beyond `most`."""
    edge = np.log1p(threshold_ratio)
    distance = min(abs(mean - edge), abs(mean + edge))
    for pairs in range(2, most + 1):
        if stats.t.ppf(0.5 + level / 2, pairs - 1) * sd / np.sqrt(pairs) < distance:
            return pairs
    return None


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
