"""Is this change allowed in? The step time of new runs against a stored baseline.

The same-job A/B (`experiment`) is the better gate where the old build can be run; this one serves where it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

import numpy as np

from timesink.verify.baseline import Baseline, Unusable
from timesink.verify.limits import (
    BASELINE_AGE,
    BASELINE_LEVEL,
    BASELINE_NEW_RUNS,
    BASELINE_RUNS,
    STEP_THRESHOLD,
    UNSTEADY_RUNS,
)
from timesink.verify.outcomes import ChangeVerdict, GateRow, Outcome, Reason, RunRow, inconclusive, invalid
from timesink.verify.statistics import interval_verdict, t_interval

_STEP_TIME = "step time (mean)"


def gate_step_time(
    baseline: Baseline | Unusable,
    make_runs: Callable[[], Sequence[RunRow]],
    today: date,
    threshold_ratio: float = STEP_THRESHOLD.default,
    canary_ratio: float | None = None,
) -> tuple[GateRow, tuple[RunRow, ...]]:
    """The step-time row. `make_runs` makes at least three runs; a slow-down fails only if a second set agrees.

    A baseline past its age without a canary is stale: nothing is run against it.
    """
    if isinstance(baseline, Unusable):
        verdict = invalid(threshold_ratio, baseline.reason, baseline.explanation, baseline.to_resolve)
        return GateRow(_STEP_TIME, "s", None, None, verdict), ()
    stored = [run.mean for run in baseline.runs]
    before = float(np.exp(np.mean(np.log(stored)))) if stored else None
    age = (today - baseline.last_run).days if baseline.last_run else 0
    if age > BASELINE_AGE.default and canary_ratio is None:
        why = f"the newest baseline run is {age} days old (limit {BASELINE_AGE.default:.0f})"
        stale = inconclusive(threshold_ratio, Reason.STALE_BASELINE, why, "update the baseline, or pass --canary")
        return GateRow(_STEP_TIME, "s", before, None, stale), ()
    rows = list(make_runs())
    verdict = _of_runs(stored, rows, threshold_ratio, canary_ratio or 1.0)
    if verdict.outcome is Outcome.SLOWER:
        again = list(make_runs())
        second = _of_runs(stored, again, threshold_ratio, canary_ratio or 1.0)
        rows += again
        if second.outcome is not Outcome.SLOWER:
            why = f"slower in the first {len(rows) - len(again)} runs, {second.label} in the next {len(again)}"
            verdict = inconclusive(
                threshold_ratio, Reason.UNCONFIRMED, why, "compare with the old build in the same job"
            )
    after = float(np.exp(np.mean(np.log([row.mean_s for row in rows]))))
    return GateRow(_STEP_TIME, "s", before, after, verdict), tuple(rows)


def against_baseline(
    stored: Sequence[float], new: Sequence[float], threshold_ratio: float, canary_ratio: float = 1.0
) -> ChangeVerdict:
    """New run means against stored ones: t prediction interval of the new mean, on the log scale, plus the threshold.

    `canary_ratio` is how much slower a frozen reference program runs today than when the baseline was made; the new
    means are divided by it.
    """
    if len(stored) < BASELINE_RUNS.default:
        why = f"{len(stored)} stored runs of at least {BASELINE_RUNS.default:.0f}"
        return inconclusive(threshold_ratio, Reason.INSUFFICIENT_BASELINE, why, "update the baseline with more runs")
    if len(new) < BASELINE_NEW_RUNS.default:
        why = f"{len(new)} new runs of at least {BASELINE_NEW_RUNS.default:.0f}"
        return inconclusive(threshold_ratio, Reason.TOO_FEW_RUNS, why, "make more runs")
    values = np.array([*stored, *new], dtype=np.float64)
    if not (np.all(np.isfinite(values)) and np.all(values > 0) and math.isfinite(canary_ratio) and canary_ratio > 0):
        return inconclusive(
            threshold_ratio, Reason.BAD_VALUES, "a run mean is no positive number", "check the step source"
        )
    before, after = np.log(stored), np.log(np.asarray(new) / canary_ratio)
    sd = float(before.std(ddof=1))
    error = sd * math.sqrt(1 / len(after) + 1 / len(before))
    interval = t_interval(after.mean() - before.mean(), error, len(before) - 1, BASELINE_LEVEL.default)
    verdict = interval_verdict(interval, threshold_ratio, BASELINE_LEVEL.default)
    undecided = verdict.outcome is Outcome.INCONCLUSIVE
    return replace(
        verdict,
        explanation=f"{len(new)} new runs against {len(stored)} stored"
        + ("; the prediction interval crosses a threshold" if undecided else ""),
        to_resolve="compare with the old build in the same job: timesink verify" if undecided else "",
        run_sd_ratio=sd,
    )


def _of_runs(
    stored: Sequence[float], rows: Sequence[RunRow], threshold_ratio: float, canary_ratio: float
) -> ChangeVerdict:
    """The verdict of one set of runs, unless the set itself cannot be used."""
    unsettled = sum(not row.settled for row in rows)
    if unsettled > UNSTEADY_RUNS.default * len(rows):
        why = f"{unsettled} of {len(rows)} runs never settle"
        return inconclusive(threshold_ratio, Reason.NOT_STEADY, why, "time more steps per run")
    if foreign := [row for row in rows if row.foreign]:
        return inconclusive(
            threshold_ratio, Reason.FOREIGN_PROCESS, f"shared with {foreign[0].foreign[0]}", "take the GPU for yourself"
        )
    return against_baseline(stored, [row.mean_s for row in rows], threshold_ratio, canary_ratio)
