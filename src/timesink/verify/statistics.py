"""Statistics of repeated runs: where warm-up ends, the t interval of log ratios, and which outcome it allows.

A run is the unit, never a step: steps of one run share its memory layout, clocks and placement, so they are not
independent samples, and run-to-run deviation dominates. Each pair is one run before and one after, back to back, so
slow drift cancels. Source: Kalibera and Jones, Rigorous benchmarking in reasonable time (ISMM 2013).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from timesink.model.arrays import Float64Array, Int64Array
from timesink.records import Record, replace
from timesink.verify.limits import DRIFT_P, FIXED_DROP, MSER_BATCH, MSER_MIN_STEPS, QUIET, SIGN_P, STEADY_CUT
from timesink.verify.outcomes import ChangeVerdict, Effect, Outcome, Reason
from timesink.verify.power import seen_ratio

_BATCH: Final = MSER_BATCH
_FEWEST_BATCHES: Final = 4  # of fewer, one batch alone turns the line


class Steady(Record, eq=False):
    """The steady part of one run: `kept` step times, and how many steps were `dropped` before them as warm-up.

    `settled` is False where the series never becomes steady. `drift_ratio` is the relative change over the kept part
    along its Theil-Sen line, 0 where the trend test sees none; `slope_ratio` what that line gives over a whole
    run, seen or not.
    """

    kept: Float64Array
    dropped: int
    settled: bool
    drift_ratio: float
    slope_ratio: float


def steady_part(series: npt.ArrayLike) -> Steady:
    """Cut the warm-up off one run's step times (any unit). Series too short for MSER-5 lose a fixed share."""
    values = np.asarray(series, dtype=np.float64)
    count = len(values)
    if count < MSER_MIN_STEPS:
        cut = int(np.ceil(count * FIXED_DROP)) if count > 1 else 0
        return Steady(values[cut:], cut, True, *_drift(values, cut))
    cut = int(mser_cut(values))
    settled = cut < int(count // _BATCH * STEADY_CUT) * _BATCH
    return Steady(values[cut:], cut, settled, *_drift(values, cut))


def mser_cut(series: npt.ArrayLike) -> Int64Array:
    """Steps to drop by MSER over the last axis (whole batches of them); elementwise over leading axes.

    With batch means Y_1 ... Y_n, MSER drops the first d batches where

        z(d) = sum over i > d of (Y_i - mean of Y_{d+1} ... Y_n)^2 / (n - d)^2

    is smallest: the squared standard error of the mean of what remains. Candidates end at half the batches: past it few
    batches are left, which often lie close together by chance. A cut at that end means the series never settled.

    Sources: White (1997); White, Cobb and Spratt (2000), who found batches of five (MSER-5) the best of five rules.
    """
    means = _batch_means(np.asarray(series, dtype=np.float64))
    count = means.shape[-1]
    means = means - means.mean(-1, keepdims=True)
    left = np.arange(count, 0, -1)
    total = np.flip(np.cumsum(np.flip(means, -1), -1), -1)
    squares = np.flip(np.cumsum(np.flip(means**2, -1), -1), -1)
    statistic = (squares - total**2 / left) / left**2
    return np.asarray(np.argmin(statistic[..., : int(count * STEADY_CUT) + 1], axis=-1) * _BATCH, dtype=np.int64)


def _batch_means(values: Float64Array) -> Float64Array:
    """The means of whole batches over the last axis."""
    count = values.shape[-1] // _BATCH
    means: Float64Array = values[..., : count * _BATCH].reshape(*values.shape[:-1], count, _BATCH).mean(-1)
    return means


def _drift(values: Float64Array, cut: int) -> tuple[float, float]:
    """What its trend changes a run from `cut` on, 0 where none is seen, and what its slope makes of all of it."""
    kept = values[cut:]
    change = _slope(kept)
    return trend(kept), change * len(values) / len(kept) if change else 0.0


def trend(values: Float64Array) -> float:
    """Relative change along the Theil-Sen line of the batch means where a Mann-Kendall test sees a trend; else 0.

    Sources: Mann (1945) and Kendall (1975) for the test.
    """
    change, means = _slope(values), _batch_means(values)
    return change if change and stats.kendalltau(np.arange(len(means)), means).pvalue < DRIFT_P else 0.0


def _slope(values: Float64Array) -> float:
    """Relative change along the Theil-Sen line of the batch means; 0 of too few. Source: Theil (1950), Sen (1968)."""
    means = _batch_means(values)
    if len(means) < _FEWEST_BATCHES:
        return 0.0
    slope, level, _, _ = stats.theilslopes(means, np.arange(len(means)))
    return float(slope * (len(means) - 1) / level) if level > 0 else 0.0


class LogInterval(Record, eq=False):
    """A t interval of a mean log ratio after / before: `mean` and its bounds `low` and `high`.

    Arrays over the leading axes of the input. `se` is the standard error of the mean, with `df` degrees of freedom;
    `level` is what the interval covers.
    """

    mean: Float64Array
    low: Float64Array
    high: Float64Array
    se: Float64Array
    df: float
    level: float

    def widened(self, by: float) -> "LogInterval":
        """The interval where values may be off by so much in all pairs alike, as a coarse clock makes them."""
        return replace(self, low=self.low - by, high=self.high + by)

    def effect(self, level: float) -> Effect:
        """The interval as ratios. `level` is what it covers once all looks at the data are counted."""
        return Effect(math.exp(self.mean), math.exp(self.low), math.exp(self.high), level)


def paired_interval(log_ratios: npt.ArrayLike, level: float) -> LogInterval:
    """Student t interval of the mean over the last axis, which holds one log(after / before) per pair."""
    values = np.asarray(log_ratios, dtype=np.float64)
    pairs = values.shape[-1]
    if pairs < 2:
        raise ValueError(f"an interval needs two pairs, not {pairs}")
    return t_interval(values.mean(-1), values.std(-1, ddof=1) / np.sqrt(pairs), pairs - 1, level)


def t_interval(mean: npt.ArrayLike, se: npt.ArrayLike, df: float, level: float) -> LogInterval:
    """The interval mean ± t(0.5 + level / 2; df) · se, for a standard error with `df` degrees of freedom."""
    centre, error = np.asarray(mean, np.float64), np.asarray(se, np.float64)
    half = _critical_t(df, level) * error
    return LogInterval(centre, centre - half, centre + half, error, df, level)


@lru_cache(maxsize=64)
def look_level(looks: tuple[int, ...], alpha: float) -> float:
    """The level of the interval at each look so that all of them together leave the truth out with chance `alpha`.

    Looks see the same pairs again, so they err together: four cost less than four times one. The chance that a random
    walk stays within c standard errors at each look is integrated step by step, and c solved for. Source: Armitage,
    McPherson and Rowe, Repeated significance tests on accumulating data (JRSS A 1969); Pocock (Biometrika 1977).
    """

    def erring(bound: float) -> float:
        points, weights = bound * nodes, bound * widths
        density = _bell(points * math.sqrt(looks[0]), looks[0])
        for before, now in pairwise(looks):
            apart = points[:, None] * math.sqrt(now) - points * math.sqrt(before)
            density = _bell(apart, now - before) @ (density * weights * math.sqrt(before))
        return 1 - float(density @ weights) * math.sqrt(looks[-1]) - alpha

    nodes, widths = np.polynomial.legendre.leggauss(_WALK)
    bound = float(optimize.brentq(erring, 0.0, _FARTHEST))
    return 1 - 2 * float(stats.norm.sf(bound))


def _bell(values: Float64Array, variance: float) -> Float64Array:
    """The density of a normal distribution around 0."""
    return np.asarray(np.exp(values**2 / (-2 * variance)) / math.sqrt(2 * math.pi * variance))


_WALK: Final = 201  # points of the integral, by Gauss and Legendre
_FARTHEST: Final = 9.0  # standard errors


UNDECIDED: Final = 2
_OUTCOME_OF_CODE: Final = {
    1: Outcome.SLOWER, -1: Outcome.FASTER, 0: Outcome.NO_DIFFERENCE, UNDECIDED: Outcome.INCONCLUSIVE
}  # fmt: skip


def classify(low: Any, high: Any, threshold_ratio: float) -> Int64Array:
    """+1 slower, -1 faster, 0 no difference, 2 undecided, from log interval bounds; elementwise over arrays.

    The equivalence zone is symmetric on the log scale: (1 / (1 + d), 1 + d).
    """
    edge = np.log1p(threshold_ratio)
    low, high = np.asarray(low), np.asarray(high)
    codes = np.full(np.broadcast(low, high).shape, UNDECIDED, dtype=np.int64)
    codes[(low > -edge) & (high < edge)] = 0
    codes[low > edge] = 1
    codes[high < -edge] = -1
    return codes


def most_lie_beyond(log_ratios: Float64Array, threshold_ratio: float) -> bool:
    """Whether so many ratios lie above the threshold that a median there is unlikely: a sign test.

    It keeps a few pairs that a mode of the process throws far off from passing for a change, as the t interval of six
    or twelve such values lets them once in a hundred times. Fewer than four pairs must all lie beyond it.
    """
    pairs, beyond = len(log_ratios), int((log_ratios > np.log1p(threshold_ratio)).sum())
    return beyond == pairs or bool(stats.binom.sf(beyond - 1, pairs, 0.5) <= SIGN_P)


def interval_verdict(interval: LogInterval, threshold_ratio: float, level: float) -> ChangeVerdict:
    """What one interval says of a change; `level` is what it covers once all looks at the data are counted."""
    outcome = _OUTCOME_OF_CODE[int(classify(interval.low, interval.high, threshold_ratio))]
    return ChangeVerdict(
        outcome,
        threshold_ratio,
        interval.effect(level),
        reason=Reason.TOO_NOISY if outcome is Outcome.INCONCLUSIVE else None,
        false_alarm_ratio=false_alarm(float(interval.se), interval.df, interval.level, threshold_ratio)
        if outcome in (Outcome.SLOWER, Outcome.FASTER)
        else None,
        seen_ratio=seen_ratio(float(interval.se), interval.df, interval.level, threshold_ratio),
    )


def false_alarm(se: float, df: float, level: float, threshold_ratio: float) -> float:
    """Chance that one such interval lies beyond the threshold on one given side when nothing changed.

    The interval is beyond it where t exceeds its critical value by the threshold in standard errors; the observed
    standard error stands for the true one.
    """
    if se == 0:
        return 0.0
    return float(stats.t.sf(_critical_t(df, level) + np.log1p(threshold_ratio) / se, df))


def is_no_chance(interval: LogInterval) -> bool:
    """Whether an unchanged program would show such a mean at most once in a thousand times, however loud it is: the
    threshold bars chance only where noise is small beside it. Two or three pairs cannot tell."""
    if interval.df < 3 or not interval.se > 0:
        return True
    return bool(2 * stats.t.sf(abs(float(interval.mean / interval.se)), interval.df) <= QUIET)


def detectable(sd: float, pairs: int, level: float, threshold_ratio: float) -> float:
    """Smallest relative slow-down found in half of all trials of this size: threshold plus half-width."""
    return float(np.expm1(np.log1p(threshold_ratio) + _critical_t(pairs - 1, level) * sd / np.sqrt(pairs)))


def pairs_to_decide(mean: float, sd: float, level: float, threshold_ratio: float, most: int) -> int | None:
    """Pairs at which an interval of this mean and deviation would clear the nearest threshold; None beyond `most`."""
    edge = np.log1p(threshold_ratio)
    pairs = np.arange(2, most + 1)
    half = _critical_ts(pairs - 1, level) * sd / np.sqrt(pairs)
    enough = pairs[half < min(abs(mean - edge), abs(mean + edge))]
    return int(enough[0]) if enough.size else None


def _critical_t(df: float, level: float) -> float:
    """Half-width of the interval in standard errors."""
    return float(_critical_ts(df, level))


def _critical_ts(df: npt.ArrayLike, level: float) -> Float64Array:
    """The same for each number of degrees of freedom."""
    return np.asarray(stats.t.ppf(0.5 + level / 2, df), np.float64)


def geometric_mean(values: Sequence[float]) -> float | None:
    """The exponential of the mean logarithm; None of no values."""
    return float(np.exp(np.mean(np.log(values)))) if values else None


def lag1_correlation(residuals: Float64Array) -> float:
    """Correlation of neighbours in a series whose level has been taken out; 0 for a constant one."""
    power = float((residuals**2).sum())
    return float((residuals[1:] * residuals[:-1]).sum()) / power if power > 0 else 0.0
