"""Is this change allowed in? The step time of new runs against a stored baseline.

The same-job A/B (`experiment`) is the better gate where the old build can be run; this one serves where it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path

import numpy as np

from timesink.model.record import dataclass, replace
from timesink.verify.baseline import Baseline, Unusable, find
from timesink.verify.counters import Counter, gate_counters
from timesink.verify.environment import differences, environment
from timesink.verify.limits import (
    BASELINE_AGE,
    BASELINE_LEVEL,
    BASELINE_NEW_RUNS,
    BASELINE_RUNS,
    STEP_THRESHOLD,
    UNSTEADY_RUNS,
)
from timesink.verify.outcomes import ChangeVerdict, GateResult, GateRow, Outcome, Reason, RunRow, inconclusive, invalid
from timesink.verify.processes import Command
from timesink.verify.runs import Launcher
from timesink.verify.statistics import geometric_mean, interval_verdict, t_interval

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
    before = geometric_mean(stored)
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
    return GateRow(_STEP_TIME, "s", before, geometric_mean([row.mean_s for row in rows]), verdict), tuple(rows)


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


@dataclass(frozen=True, slots=True)
class StoredGate:
    """A program held against the baseline of its suite in this environment; ratios as the options state them."""

    root: Path
    suite: str
    threshold_ratio: float
    share_tolerance: float
    canary_ratio: float | None

    def run(
        self,
        command: Command,
        workload: str,
        launcher: Launcher,
        measured: Mapping[str, Counter],
        *,
        allowed: Sequence[str],
        progress: Callable[[str], None],
    ) -> GateResult:
        """Make the runs that the baseline calls for and compare the step time and the counters.

        The hard facts of the environment that are `allowed` may differ from the baseline's.
        """
        here = environment(command)
        stored = find(self.root, self.suite, here, workload, allowed)
        kept = stored.counters if isinstance(stored, Baseline) else {}
        differing = differences(stored.environment, here.hard) if isinstance(stored, Baseline) else stored.differences
        numbers = count(2)

        def make_runs() -> list[RunRow]:
            rows = [launcher.launch("after", next(numbers)) for _ in range(int(BASELINE_NEW_RUNS.default))]
            for row in rows:
                progress(f"run {row.number}: {row.mean_s * 1e3:.4g} ms per step")
            return rows

        if isinstance(stored, Baseline):
            launcher.launch("after", 1)  # warms disks and caches; not counted
        today = datetime.now(UTC).date()
        first, runs = gate_step_time(stored, make_runs, today, self.threshold_ratio, self.canary_ratio)
        notes = (launcher.watch.remark,) if launcher.watch.remark else ()
        rows = gate_counters(kept, measured, share_tolerance=self.share_tolerance) if kept or measured else []
        return GateResult(self.suite, "stored baseline", (first, *rows), differing, runs=runs, notes=notes)
