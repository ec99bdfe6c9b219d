"""A lasting change in a history of run means, and whether it is more than chance.

The statistic is the largest two-sample t over all splits; its distribution when nothing changed comes from permuting
blocks of the history, so that correlation between neighbours stays in. Seeded: the same history gives the same answer.
Sources: Worsley (1979) for the maximally selected t; Kuensch (1989) for blocks.
"""

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

from timesink.errors import UsageError
from timesink.model.arrays import Float64Array, Int64Array
from timesink.records import Record
from timesink.verify import check_history, limits
from timesink.verify.counters import _finite, _json
from timesink.verify.outcomes import ChangeVerdict, Effect, GateResult, GateRow, Outcome, Reason, inconclusive
from timesink.verify.statistics import lag1_correlation

_SEED = 20_261_120
_BLOCK = 3
_LEAST = 3  # points on each side of a candidate split


class ChangePoint(Record):
    """The likeliest split: `index` is the first point after it, `p` by permutation, `ratio` is level after / before."""

    index: int
    p: float
    ratio: float


def split_statistic(series: npt.ArrayLike) -> tuple[Float64Array, Int64Array]:
    """Largest pooled-variance |t| over splits, and the first index after that split; over leading axes."""
    values = np.asarray(series, dtype=np.float64)
    count = values.shape[-1]
    values = values - values.mean(-1, keepdims=True)
    left = np.arange(_LEAST, count - _LEAST + 1)
    sums = np.cumsum(values, -1)[..., left - 1]
    gap = -sums / (count - left) - sums / left  # mean after minus mean before, since the total is zero
    between = gap**2 * left * (count - left) / count
    total = (values**2).sum(-1, keepdims=True)
    # Rounding can leave a residual just below zero where two constant levels fit exactly.
    within = np.maximum(total - between, total * 1e-15 + 1e-300)
    score = between / within
    best = score.argmax(-1)
    t = np.sqrt(np.take_along_axis(score, best[..., None], -1)[..., 0] * (count - 2))
    return t, left[best]


def lag1(values: Float64Array) -> float:
    """Correlation of neighbours once the two levels of the best split are removed: a change is no correlation."""
    index = int(split_statistic(values)[1])
    levels = [values[:index].mean(), values[index:].mean()]
    return lag1_correlation(values - np.repeat(levels, [index, len(values) - index]))


def change_point(series: npt.ArrayLike, block: int) -> ChangePoint:
    """The likeliest split of a series of logarithms, with its p-value (k + 1) / (permutations + 1)."""
    values = np.asarray(series, dtype=np.float64)
    largest_t, index = split_statistic(values)
    rng, permutations = np.random.default_rng(_SEED), limits.HISTORY_PERMUTATIONS
    shuffled = values[block_permutations(rng, len(values), block, permutations)]
    as_large = int((split_statistic(shuffled)[0] >= largest_t).sum())
    first = int(index)
    ratio = float(np.exp(values[first:].mean() - values[:first].mean()))
    return ChangePoint(first, (as_large + 1) / (permutations + 1), ratio)


def block_permutations(rng: np.random.Generator, count: int, block: int, permutations: int) -> Int64Array:
    """Index rows in which blocks of neighbours change places; block borders start at a random offset in each row."""
    offset = rng.integers(0, block, size=(permutations, 1))
    block_of = (np.arange(count) + offset) // block
    rank = np.take_along_axis(rng.random((permutations, count // block + 2)), block_of, axis=1)
    return np.argsort(rank, axis=1, kind="stable")


def judge_history(
    means: npt.ArrayLike, threshold_ratio: float = limits.STEP_THRESHOLD
) -> tuple[ChangeVerdict, ChangePoint | None]:
    """What a history of run means (oldest first, any unit) says: an alert at most, never a failed gate."""
    values = np.asarray(means, dtype=np.float64)[-limits.HISTORY_MAX :]
    undecided = partial(inconclusive, threshold_ratio, tagged=True)
    if not np.all(np.isfinite(values) & (values > 0)):
        return undecided(Reason.BAD_VALUES, "a mean in the history is not a positive number", "remove that entry"), None
    if len(values) < limits.HISTORY_MIN:
        why = f"{len(values)} points of at least {limits.HISTORY_MIN}"
        return undecided(Reason.INSUFFICIENT_BASELINE, why, "let more runs on the trunk accumulate"), None
    logs = np.log(values)
    correlation = lag1(logs)
    if correlation > limits.HISTORY_LAG1_UNSTABLE:
        why = f"adjacent points correlate by {correlation:.2f} (limit {limits.HISTORY_LAG1_UNSTABLE})"
        return undecided(
            Reason.UNSTABLE_HISTORY, why, "find what wanders: clocks, other jobs, the machine itself"
        ), None
    change = change_point(logs, _BLOCK if correlation >= limits.HISTORY_LAG1_FREE else 1)
    points_after = len(values) - change.index
    if change.p > limits.HISTORY_ALPHA or abs(np.log(change.ratio)) < np.log1p(threshold_ratio):
        why = f"no lasting change in {len(values)} points"
        return ChangeVerdict(Outcome.NO_DIFFERENCE, threshold_ratio, explanation=why, tagged=True), None
    if points_after < limits.HISTORY_AFTER:
        why = f"a change of {100 * (change.ratio - 1):+.1f} % is seen in the last {points_after} points only"
        return undecided(Reason.UNCONFIRMED, why, f"wait for {limits.HISTORY_AFTER} points after it"), None
    return _describe_change(logs, change, threshold_ratio), change


def _describe_change(logs: Float64Array, change: ChangePoint, threshold_ratio: float) -> ChangeVerdict:
    outcome = Outcome.SLOWER if change.ratio > 1 else Outcome.FASTER
    before, after = logs[: change.index], logs[change.index :]
    error = float(np.sqrt(before.var(ddof=1) / len(before) + after.var(ddof=1) / len(after)))
    level = 1 - limits.HISTORY_ALPHA
    half = float(stats.t.ppf(0.5 + level / 2, min(len(before), len(after)) - 1)) * error
    low, high = change.ratio * float(np.exp(-half)), change.ratio * float(np.exp(half))
    explanation = f"lasting change {len(after)} points ago, p = {change.p:.3f} by permutation"
    effect = Effect(change.ratio, low, high, level)
    return ChangeVerdict(
        outcome, threshold_ratio, effect, explanation=explanation, false_alarm_ratio=change.p, is_alert=True
    )


def read_history(path: Path) -> list[float]:
    """Run means, oldest first, from JSON lines with a number at ``mean``."""
    check_history(path)
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


def gate_history(path: Path, suite: str, threshold_ratio: float) -> GateResult:
    """Whether the trunk changed for good, by the run means of a history file; an alert that fails nothing."""
    means = read_history(path)
    verdict, change = judge_history(means, threshold_ratio)
    before = means[-1] / verdict.effect.ratio if verdict.effect and means else None
    row = GateRow("step time (mean)", "s", before if change else None, means[-1] if change else None, verdict)
    return GateResult(suite, "trunk history", (row,), notes=(f"{len(means)} points in {path.name}",))
