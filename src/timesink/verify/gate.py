"""Is this change allowed in? Step time against a stored baseline, counters exactly, shares within a tolerance.

The same-job A/B (`verify`) is the better gate where the old build can be run; this one serves where it cannot.

Files that users and their programs hand over: counters to gate, and a history of run means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from timesink.errors import UsageError
from timesink.untrusted.plain_json import parsed
from timesink.verify.baseline import Baseline, Counter, Unusable
from timesink.verify.judge import classify, false_alarm, interval
from timesink.verify.limits import (
    BASELINE_AGE,
    BASELINE_LEVEL,
    BASELINE_NEW_RUNS,
    BASELINE_RUNS,
    EXACT_TOLERANCE,
    SHARE_TOLERANCE,
    STEP_THRESHOLD,
    UNSTEADY_RUNS,
)
from timesink.verify.outcomes import Better, Effect, GateRow, How, Outcome, Reason, RunRow, Verdict
from timesink.verify.records import rounded

_CODES = {1: Outcome.SLOWER, -1: Outcome.FASTER, 0: Outcome.NO_DIFFERENCE, 2: Outcome.INCONCLUSIVE}
_STEP_TIME = "step time (mean)"


def against_baseline(
    stored: Sequence[float], new: Sequence[float], threshold_ratio: float, canary_ratio: float = 1.0
) -> Verdict:
    """New run means against stored ones: t prediction interval of the new mean, on the log scale, plus the threshold.

    `canary_ratio` is how much slower a frozen reference program runs today than when the baseline was made; the new
    means are divided by it.
    """
    if len(stored) < BASELINE_RUNS.default:
        why = f"{len(stored)} stored runs of at least {BASELINE_RUNS.default:.0f}"
        return _unsaid(threshold_ratio, Reason.INSUFFICIENT_BASELINE, why, "update the baseline with more runs")
    if len(new) < BASELINE_NEW_RUNS.default:
        why = f"{len(new)} new runs of at least {BASELINE_NEW_RUNS.default:.0f}"
        return _unsaid(threshold_ratio, Reason.TOO_FEW_RUNS, why, "make more runs")
    values = np.array([*stored, *new], dtype=np.float64)
    if not (np.all(np.isfinite(values)) and np.all(values > 0) and math.isfinite(canary_ratio) and canary_ratio > 0):
        return _unsaid(threshold_ratio, Reason.BAD_VALUES, "a run mean is no positive number", "check the step source")
    before, after = np.log(stored), np.log(np.asarray(new) / canary_ratio)
    sd = float(before.std(ddof=1))
    error = sd * math.sqrt(1 / len(after) + 1 / len(before))
    at = interval(after.mean() - before.mean(), error, len(before) - 1, BASELINE_LEVEL.default)
    outcome = _CODES[int(classify(at.low, at.high, threshold_ratio))]
    undecided = outcome is Outcome.INCONCLUSIVE
    return Verdict(
        outcome,
        threshold_ratio,
        Effect(float(np.exp(at.mean)), float(np.exp(at.low)), float(np.exp(at.high)), BASELINE_LEVEL.default),
        reason=Reason.TOO_NOISY if undecided else None,
        explanation=f"{len(new)} new runs against {len(stored)} stored"
        + ("; the prediction interval crosses a threshold" if undecided else ""),
        to_resolve="compare with the old build in the same job: timesink verify" if undecided else "",
        run_sd_ratio=sd,
        false_alarm_ratio=false_alarm(error, at.df, BASELINE_LEVEL.default, threshold_ratio)
        if outcome in (Outcome.SLOWER, Outcome.FASTER)
        else None,
    )


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
        verdict = Verdict(
            Outcome.INVALID, threshold_ratio, None, baseline.reason, baseline.explanation, baseline.to_resolve
        )
        return GateRow(_STEP_TIME, "s", None, None, verdict), ()
    stored = [run.mean for run in baseline.runs]
    before = float(np.exp(np.mean(np.log(stored)))) if stored else None
    age = (today - baseline.last_run).days if baseline.last_run else 0
    if age > BASELINE_AGE.default and canary_ratio is None:
        why = f"the newest baseline run is {age} days old (limit {BASELINE_AGE.default:.0f})"
        stale = _unsaid(threshold_ratio, Reason.STALE_BASELINE, why, "update the baseline, or pass --canary")
        return GateRow(_STEP_TIME, "s", before, None, stale), ()
    rows = list(make_runs())
    verdict = _of_runs(stored, rows, threshold_ratio, canary_ratio or 1.0)
    if verdict.outcome is Outcome.SLOWER:
        again = list(make_runs())
        second = _of_runs(stored, again, threshold_ratio, canary_ratio or 1.0)
        rows += again
        if second.outcome is not Outcome.SLOWER:
            why = f"slower in the first {len(rows) - len(again)} runs, {second.label} in the next {len(again)}"
            verdict = _unsaid(threshold_ratio, Reason.UNCONFIRMED, why, "compare with the old build in the same job")
    after = float(np.exp(np.mean(np.log([row.mean_s for row in rows]))))
    return GateRow(_STEP_TIME, "s", before, after, verdict), tuple(rows)


def gate_counters(
    stored: Mapping[str, Counter],
    measured: Mapping[str, Counter],
    exact_tolerance_ratio: float = EXACT_TOLERANCE.default,
    share_tolerance: float = SHARE_TOLERANCE.default,
) -> list[GateRow]:
    """One row per counter on either side, by name. One that is missing now was not measured: no pass."""
    rows = []
    for name in sorted({*stored, *measured}):
        before, after = stored.get(name), measured.get(name)
        known = after or before
        assert known is not None
        tolerance = share_tolerance if known.how is How.SHARE else exact_tolerance_ratio
        verdict = _missing(before, after, tolerance)
        if before is not None and after is not None:
            verdict = compare_counter(before, after, tolerance)
        old, new = (None if side is None else side.value for side in (before, after))
        rows.append(GateRow(name, known.unit, old, new, verdict, known.better, known.how))
    return rows


def compare_counter(before: Counter, after: Counter, tolerance: float) -> Verdict:
    """Exact: relative difference within the tolerance. Share: absolute difference within it. No noise."""
    if before.unit != after.unit or before.how != after.how:
        why = f"{before.how} in {before.unit!r} before, {after.how} in {after.unit!r} now"
        return Verdict(Outcome.INVALID, tolerance, None, Reason.OTHER_STATISTIC, why, "update the baseline")
    if not (math.isfinite(before.value) and math.isfinite(after.value)):
        return Verdict(
            Outcome.INVALID, tolerance, None, Reason.BAD_VALUES, "a counter is not finite", "measure it again"
        )
    old, new = rounded(before.value), rounded(after.value)  # as a baseline file would hold them
    gap = new - old if after.better is Better.LOWER else old - new
    allowed = tolerance if after.how is How.SHARE else tolerance * abs(before.value)
    if abs(gap) <= allowed:
        return Verdict(Outcome.NO_DIFFERENCE, tolerance)
    explanation = f"{before.value:g} before, {after.value:g} now, {allowed:g} allowed"
    return Verdict(Outcome.SLOWER if gap > 0 else Outcome.FASTER, tolerance, explanation=explanation)


def _missing(before: Counter | None, after: Counter | None, tolerance: float) -> Verdict:
    if after is None:
        return Verdict(
            Outcome.INVALID,
            tolerance,
            None,
            Reason.NOT_MEASURED,
            "in the baseline, not measured now",
            "measure it, or update the baseline",
        )
    return _unsaid(tolerance, Reason.MISSING_BASELINE, "measured now, not in the baseline", "update the baseline")


def _of_runs(stored: Sequence[float], rows: Sequence[RunRow], threshold_ratio: float, canary_ratio: float) -> Verdict:
    """The verdict of one set of runs, unless the set itself cannot be used."""
    unsettled = sum(not row.settled for row in rows)
    if unsettled > UNSTEADY_RUNS.default * len(rows):
        why = f"{unsettled} of {len(rows)} runs never settle"
        return _unsaid(threshold_ratio, Reason.NOT_STEADY, why, "time more steps per run")
    if foreign := [row for row in rows if row.foreign]:
        return _unsaid(
            threshold_ratio, Reason.FOREIGN_PROCESS, f"shared with {foreign[0].foreign[0]}", "take the GPU for yourself"
        )
    return against_baseline(stored, [row.mean_s for row in rows], threshold_ratio, canary_ratio)


def _unsaid(threshold_ratio: float, reason: Reason, why: str, remedy: str) -> Verdict:
    return Verdict(Outcome.INCONCLUSIVE, threshold_ratio, None, reason, why, remedy)


_KEYS = {"value", "unit", "how", "better"}


def read_counters(path: Path) -> dict[str, Counter]:
    """``{"graph breaks": 3, "tokens/s": {"value": 812, "better": "higher", "how": "exact", "unit": "tokens/s"}}``."""
    content = _json(path, path.read_text("utf-8", "replace") if path.is_file() else None)
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no object", remedy='write {"name": {"value": 1, "unit": "launches"}}')
    return {str(name): _counter(path, str(name), entry) for name, entry in content.items()}


def read_history(path: Path) -> list[float]:
    """Run means, oldest first, from JSON lines with a number at ``mean``."""
    if not path.is_file():
        raise UsageError(f"there is no history at {path}", remedy='let the trunk job append {"mean": seconds} lines')
    means = []
    for place, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        entry = _json(f"{path} line {place}", line)
        mean = entry.get("mean") if isinstance(entry, dict) else None
        if not isinstance(mean, (int, float)) or isinstance(mean, bool):
            raise UsageError(f"{path} line {place} has no number at 'mean'", remedy="remove or mend that line")
        means.append(_finite(mean, f"{path} line {place}"))
    return means


def _counter(path: Path, name: str, entry: Any) -> Counter:
    fields = entry if isinstance(entry, dict) else {"value": entry}
    if unknown := sorted(set(fields) - _KEYS):
        raise UsageError(
            f"{path}: {name!r} has an unknown key {unknown[0]!r}", remedy=f"use {', '.join(sorted(_KEYS))}"
        )
    value = fields.get("value")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{path}: {name!r} has no number: {value!r}", remedy="give a number or an object with 'value'")
    try:
        how, better = How(fields.get("how", "exact")), Better(fields.get("better", "lower"))
    except ValueError as unknown_word:
        raise UsageError(
            f"{path}: {name!r}: {unknown_word}", remedy="how: exact or share; better: lower or higher"
        ) from None
    if how is How.RUNS:
        raise UsageError(f"{path}: {name!r} cannot be compared by runs from a file", remedy="time it with a command")
    return Counter(_finite(value, f"{path}: {name!r}"), str(fields.get("unit", "")), how, better)


def _finite(value: float, place: str) -> float:
    """The number as a float. A NaN or an infinity stays: what it means is the comparison's to say."""
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{place} holds a number of more than 308 digits", remedy="remove or mend it") from None


def _json(place: Path | str, text: str | None) -> Any:
    if text is None:
        raise UsageError(f"there is no file {place}", remedy="check the path")
    try:
        return parsed(text)
    except ValueError as broken:
        raise UsageError(f"{place} is no JSON: {broken}", remedy="mend it") from broken
