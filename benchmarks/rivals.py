"""Decision rules in common use, over many experiments at once: True where the rule says "different"."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

Values = npt.NDArray[np.float64]
Calls = npt.NDArray[np.bool_]
_RESAMPLES = 499


def welch(before: Values, after: Values) -> Calls:
    """Welch's t on the values as if independent."""
    return stats.ttest_ind(before, after, axis=-1, equal_var=False).pvalue < 0.05


def mann_whitney(before: Values, after: Values) -> Calls:
    """Mann-Whitney U on the values as if independent."""
    return stats.mannwhitneyu(before, after, axis=-1, method="asymptotic").pvalue < 0.05


def bootstrap_mean(before: Values, after: Values) -> Calls:
    """Percentile bootstrap of the difference of means; resampling indices are shared by all experiments."""
    rng = np.random.default_rng(1)
    count = before.shape[-1]
    weights = rng.multinomial(count, np.full(count, 1 / count), size=(2, _RESAMPLES)).T / count
    difference = after @ weights[:, :, 1] - before @ weights[:, :, 0]
    low, high = np.percentile(difference, [2.5, 97.5], axis=-1)
    return (low > 0) | (high < 0)


def two_standard_errors(before: Values, after: Values) -> Calls:
    """|difference of means| > 2 standard errors."""
    count = before.shape[-1]
    error = np.sqrt((before.var(-1, ddof=1) + after.var(-1, ddof=1)) / count)
    return np.abs(after.mean(-1) - before.mean(-1)) > 2 * error


def batch_means(before: Values, after: Values) -> Calls:
    """Welch's t on eight batch means per run."""
    return welch(*(side.reshape(*side.shape[:-1], 8, -1).mean(-1) for side in (before, after)))


RULES = {
    "Welch t": welch,
    "Mann-Whitney": mann_whitney,
    "bootstrap of mean": bootstrap_mean,
    "2 x SE": two_standard_errors,
}
