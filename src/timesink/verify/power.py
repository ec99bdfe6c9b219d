"""What slow-down runs surely show, and the threshold at which an unchanged program is hardly ever called slower.

A deviation that few runs have shown may be larger in truth: each figure takes its upper bound, so that what is stated
holds in 19 of 20 cases. Source of the power of a t test: Owen, The power of Student's t-test (JASA 1965).
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from scipy import optimize, stats

from timesink.records import Record
from timesink.verify import limits

_FARTHEST: Final = 1e4  # standard errors: no slow-down is that far off
_FLAKY: Final = 0.1  # a tenth: who cannot see less of a slow-down gates nothing


class RunnerLimit(Record):
    """`slow_down_ratio` is seen by `pairs` pairs with 95 %; at `quiet_ratio` as the threshold an unchanged program is
    called slower at most once in a thousand times."""

    pairs: int
    slow_down_ratio: float
    quiet_ratio: float

    @property
    def is_flaky(self) -> bool:
        """Whether only slow-downs of a tenth or more are seen here."""
        return self.slow_down_ratio > _FLAKY


def seen_ratio(error: float, df: float, level: float, threshold_ratio: float) -> float:
    """The smallest slow-down that an interval with this standard error, of so many degrees of freedom, puts beyond the
    threshold in 95 % of cases."""
    return math.expm1(math.log1p(threshold_ratio) + _errors_off(df, level) * _at_most(error, df))


def runner_limit(
    run_sd_ratio: float, df: int, levels: dict[int, float], threshold_ratio: float = limits.STEP_THRESHOLD
) -> RunnerLimit:
    """What a comparison sees that looks at its pairs at these numbers of them, each with the level of its interval."""
    pair_sd, pairs = math.sqrt(2) * _at_most(run_sd_ratio, df), max(levels)

    def slow_down(threshold: float) -> float:
        error = pair_sd / math.sqrt(pairs)
        return math.expm1(math.log1p(threshold) + _errors_off(pairs - 1, levels[pairs]) * error)

    def too_loud(threshold: float) -> float:
        return _false_alarms(pair_sd, levels, threshold) - limits.QUIET

    quiet = threshold_ratio
    if pair_sd > 0 and too_loud(quiet) > 0:
        quiet = float(optimize.brentq(too_loud, quiet, math.expm1(20 * pair_sd) + quiet))
    return RunnerLimit(pairs, slow_down(threshold_ratio), quiet)


def _false_alarms(pair_sd: float, levels: dict[int, float], threshold_ratio: float) -> float:
    """At most how often any look calls an unchanged program slower."""
    edge = math.log1p(threshold_ratio)
    parts = (
        stats.nct.sf(stats.t.ppf(0.5 + level / 2, pairs - 1), pairs - 1, -edge * math.sqrt(pairs) / pair_sd)
        for pairs, level in levels.items()
    )
    return float(np.nansum(list(parts)))


def _at_most(deviation: float, df: float) -> float:
    """The upper bound of a deviation of so many degrees of freedom, which one in twenty passes."""
    return deviation * math.sqrt(df / float(stats.chi2.ppf(1 - limits.POWER, df)))


@lru_cache(maxsize=256)
def _errors_off(df: float, level: float) -> float:
    """True standard errors beyond the threshold at which the interval lies beyond it in 95 % of cases."""
    critical = float(stats.t.ppf(0.5 + level / 2, df))

    def missing(errors: float) -> float:
        return float(stats.nct.sf(critical, df, errors)) - limits.POWER

    low = high = critical
    while missing(low) > 0 and low > 0:
        low /= 2
    while high < _FARTHEST and not missing(high) > 0:
        high *= 2
    return float(optimize.brentq(missing, low, high)) if high < _FARTHEST else math.inf
