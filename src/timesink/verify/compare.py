"""Compare two existing captures: what moved and why. Without a calibration it explains and gives no verdict.

May two captures, one run per side, be called different? Only with a calibration of the run-to-run deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from timesink.measures.steps.parts import StepParts, step_parts, step_series
from timesink.model.arrays import Float64Array
from timesink.verify.calibrate import Calibration
from timesink.verify.captured_metrics import single_changes, step_metrics
from timesink.verify.contributions import contributions, finding_changes, grouped
from timesink.verify.environment import HARD, changes, trace_facts
from timesink.verify.judge import classify, false_alarm, interval
from timesink.verify.limits import ALPHA, ASSUMED_DF, BATCH_LAG1, BATCHES, MSER_BATCH, MSER_MIN_STEPS, STEP_THRESHOLD
from timesink.verify.outcomes import Contribution, Effect, GateResult, GateRow, Outcome, Reason, Verdict
from timesink.verify.runs import steady_part, trend

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.model.trace import Trace

_CODES = {1: Outcome.SLOWER, -1: Outcome.FASTER, 0: Outcome.NO_DIFFERENCE, 2: Outcome.INCONCLUSIVE}
_LEAST_BATCHES = 4


@dataclass(frozen=True, slots=True)
class RunDeviation:
    """The run-to-run deviation a verdict rests on. `assumed`: stated by the user, so the verdict is tagged."""

    ratio: float
    df: float
    assumed: bool

    @classmethod
    def measured(cls, calibration: Calibration) -> RunDeviation:
        """From a calibration."""
        return cls(calibration.run_sd_ratio, calibration.df, False)

    @classmethod
    def stated(cls, ratio: float) -> RunDeviation:
        """From `--assume-run-sd`."""
        return cls(ratio, ASSUMED_DF.default, True)


def judge_captures(
    before: Sequence[float], after: Sequence[float], threshold_ratio: float, deviation: RunDeviation | None
) -> Verdict:
    """The verdict on two series of step times (any one unit), warm-up already left out.

    The interval is of the log ratio of mean step times. Its standard error is that of batch means within the runs or
    that of two runs, whichever is larger.
    """
    sides = [_usable(side) for side in (before, after)]
    if any(np.any(~np.isfinite(side) | (side <= 0)) for side, _ in sides):
        return _unsaid(threshold_ratio, Reason.BAD_VALUES, "a step time is no positive number", "check the capture")
    if min(len(side) for side, _ in sides) < 2 * _LEAST_BATCHES:
        why = f"{min(len(side) for side, _ in sides)} steady steps on one side"
        return _unsaid(threshold_ratio, Reason.TOO_FEW_RUNS, why, "capture 10 steps or more, better 100")
    if not all(settled for _, settled in sides):
        return _unsaid(threshold_ratio, Reason.NOT_STEADY, "step times never settle", "capture more steps, later")
    drift = max((trend(side) for side, _ in sides), key=abs)
    if abs(drift) > threshold_ratio:
        why = f"step times drift by {100 * drift:+.1f} % within a capture"
        return _unsaid(threshold_ratio, Reason.DRIFT, why, "capture more steps, or lock the clocks")
    batches = [batch_logs(side) for side, _ in sides]
    notes = _verdict_notes([side for side, _ in sides], batches)
    error, df = _within(batches)
    ratio = math.log(sides[1][0].mean() / sides[0][0].mean())
    if deviation is None:
        effect = _effect(ratio, error, df)
        why = "one run per side; the interval holds the noise within each run only, not between runs"
        to_resolve = "timesink verify with both commands, or timesink calibrate and --calibration"
        return Verdict(Outcome.INCONCLUSIVE, threshold_ratio, effect, Reason.UNCALIBRATED, why, to_resolve, notes=notes)
    return _judged(ratio, (error, df), deviation, threshold_ratio, notes)


def _judged(
    ratio: float, within: tuple[float, float], deviation: RunDeviation, threshold_ratio: float, notes: tuple[str, ...]
) -> Verdict:
    between = math.sqrt(2) * deviation.ratio
    error, df = within if within[0] > between else (between, deviation.df)
    effect = _effect(ratio, error, df)
    outcome = _CODES[int(classify(math.log(effect.low), math.log(effect.high), threshold_ratio))]
    noisy = outcome is Outcome.INCONCLUSIVE
    level = 1 - ALPHA.default
    if deviation.assumed:
        notes = (*notes, f"rests on an assumed run-to-run deviation of {100 * deviation.ratio:g} %: it fails no gate")
    return Verdict(
        outcome,
        threshold_ratio,
        effect,
        reason=Reason.TOO_NOISY if noisy else None,
        explanation="the interval crosses a threshold" if noisy else "",
        to_resolve="timesink verify with both commands" if noisy else "",
        run_sd_ratio=deviation.ratio,
        false_alarm_ratio=false_alarm(error, df, level, threshold_ratio)
        if outcome in (Outcome.SLOWER, Outcome.FASTER)
        else None,
        tagged=deviation.assumed,
        notes=notes,
    )


def batch_logs(series: Float64Array) -> Float64Array:
    """Logarithms of the means of up to eight equal, contiguous batches; what does not fit is left out at the front."""
    count = min(int(BATCHES.default), len(series) // 2)
    size = len(series) // count
    logs: Float64Array = np.log(series[len(series) - count * size :].reshape(count, size).mean(-1))
    return logs


def _usable(series: Sequence[float]) -> tuple[Float64Array, bool]:
    """The steady part and whether there is one. Short captures keep every step: warm-up was left out by their marks."""
    values = np.asarray(series, dtype=np.float64)
    if len(values) < MSER_MIN_STEPS.default:
        return values, True
    steady = steady_part(values)
    return steady.kept, steady.settled


def _within(batches: Sequence[Float64Array]) -> tuple[float, float]:
    """Standard error of the difference of batch means, with Welch's degrees of freedom."""
    parts = [float(logs.var(ddof=1)) / len(logs) for logs in batches]
    total = sum(parts)
    if total == 0:
        return 0.0, float(min(len(logs) for logs in batches) - 1)
    df = total**2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, batches, strict=True))
    return math.sqrt(total), df


def _effect(ratio: float, error: float, df: float) -> Effect:
    at = interval(ratio, error, df, 1 - ALPHA.default)
    return Effect(math.exp(ratio), math.exp(float(at.low)), math.exp(float(at.high)), 1 - ALPHA.default)


def _verdict_notes(series: Sequence[Float64Array], batches: Sequence[Float64Array]) -> tuple[str, ...]:
    notes = []
    size = min(len(side) // len(logs) for side, logs in zip(series, batches, strict=True))
    if size < MSER_BATCH.default:
        notes.append(f"batches of {size} steps: the noise within a run is known roughly")
    if max(map(_lag1, batches)) > BATCH_LAG1.default:
        notes.append("neighbouring batches are alike: the noise within a run is understated")
    return tuple(notes)


def _lag1(logs: Float64Array) -> float:
    rest = logs - logs.mean()
    power = float((rest**2).sum())
    return float((rest[1:] * rest[:-1]).sum()) / power if power > 0 else 0.0


def _unsaid(threshold_ratio: float, reason: Reason, why: str, remedy: str) -> Verdict:
    return Verdict(Outcome.INCONCLUSIVE, threshold_ratio, None, reason, why, remedy)


def compare_captures(
    sides: tuple[Trace, Trace],
    diagnoses: tuple[Diagnosis, Diagnosis] | None = None,
    *,
    threshold_ratio: float = STEP_THRESHOLD.default,
    deviation: RunDeviation | None = None,
    facts: tuple[Mapping[str, str], Mapping[str, str]] | None = None,
    allowed: Sequence[str] = (),
) -> GateResult:
    """The comparison of two traces; of what became of their findings, where they were diagnosed.

    `facts` are what is known of each capture, such as its manifest says; without them, what the traces say themselves.
    Facts that are `allowed` to differ forbid no comparison. Without a `deviation` between runs there is no verdict.
    """
    before, after = facts or (trace_facts(sides[0]), trace_facts(sides[1]))
    differing = changes(before, after)
    times_ns = [[float(value) for value in step_series(trace)] for trace in sides]
    series = [[value / 1e9 for value in side] for side in times_ns]
    parts = step_parts(sides[0]), step_parts(sides[1])
    verdict = comparability(differing, allowed, threshold_ratio)
    if verdict is None:
        verdict = judge_captures(series[0], series[1], threshold_ratio, deviation)
    means = [sum(side) / len(side) if side else None for side in series]
    rows = [GateRow("step time (mean)", "s", means[0], means[1], verdict), *_shares(sides, verdict)]
    invalid = verdict.outcome is Outcome.INVALID
    moved = () if invalid else contributions(*parts)
    return GateResult(
        "",
        "two captures",
        tuple(rows),
        differing,
        moved,
        grouped(moved),
        () if diagnoses is None else finding_changes(*diagnoses),
        notes=(
            *_notes(parts, moved, differing),
            *([] if invalid else single_changes(times_ns[0], times_ns[1], threshold_ratio)),
        ),
    )


def comparability(
    differing: Mapping[str, tuple[str, str]], allowed: Sequence[str], threshold_ratio: float
) -> Verdict | None:
    """An invalid verdict where captures measure different things, else None."""
    forbidding = [name for name in HARD if name in differing and name not in allowed]
    if not forbidding:
        return None
    why = "; ".join(f"{name}: {differing[name][0]} before, {differing[name][1]} after" for name in forbidding)
    reason = Reason.OTHER_WORK if "ranks" in forbidding else Reason.OTHER_ENVIRONMENT
    way = "capture both sides alike, or accept with --allow-env-diff"
    return Verdict(Outcome.INVALID, threshold_ratio, None, reason, why, way)


def _shares(sides: tuple[Trace, Trace], verdict: Verdict) -> list[GateRow]:
    """Shares of the step and launches per step, shown and not judged: one run says little of them."""
    before, after = (step_metrics(trace) for trace in sides)
    quiet = Verdict(Outcome.INCONCLUSIVE, verdict.threshold_ratio, None, Reason.UNCALIBRATED, "one run per side")
    return [
        GateRow(name, before[name].unit, before[name].value, after[name].value, quiet, how=after[name].how, gated=False)
        for name in sorted(before.keys() & after.keys())
    ]


def _notes(
    parts: tuple[StepParts, StepParts], moved: Sequence[Contribution], differing: Mapping[str, tuple[str, str]]
) -> list[str]:
    notes = [f"{side}: {_paced(part)}" for side, part in zip(("before", "after"), parts, strict=True)]
    if moved:
        new, gone = (sum(part.name.endswith(fate) for part in moved) for fate in ("(new)", "(vanished)"))
        notes.append(f"{len(moved)} parts: {new} new, {gone} vanished")
    if len(differing) > 1:
        notes.append(f"not one change: {len(differing)} facts differ, so no one of them explains the difference alone")
    return notes


def _paced(part: StepParts) -> str:
    """How many steps were taken apart, and where."""
    places = [f"{count} on rank {rank} device {device}" for (rank, device), count in part.paced_by.items()]
    return f"{part.step_count} steps, {', '.join(places)}" if places else "no GPU work"
