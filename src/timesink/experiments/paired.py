"""The paired t interval on log ratios of run summaries: the one test behind every verdict from repeated runs.

A run is the unit, never a step: steps of one run share its memory layout, clocks and placement, so they are not
independent samples, and run-to-run deviation dominates. Each pair is one run before and one after, back to back, so
slow drift cancels. Source: Kalibera and Jones, Rigorous benchmarking in reasonable time (ISMM 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LogInterval:
    """Mean log ratio with its interval [low, high]; arrays over the leading axes of the input. `se` is of the mean."""

    mean: Values
    low: Values
    high: Values
    se: Values
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


def classify(low: Any, high: Any, threshold_ratio: float) -> npt.NDArray[np.int64]:
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
) -> npt.NDArray[np.int64]:
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
