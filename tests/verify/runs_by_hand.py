"""Runs with stated mean step times, for tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timesink.records import replace
from timesink.verify.outcomes import RunRow
from timesink.verify.statistics import UNDECIDED, classify, paired_interval


def row(mean_s: float, side: str = "before", number: int = 0, **changed: object) -> RunRow:
    plain = RunRow(number, side, mean_s, mean_s, mean_s * 1.1, 200, 5, True, 0.0, receipt="7")
    return replace(plain, **changed)  # type: ignore[arg-type]


def pairs(*ratios: float, **changed: object) -> list[tuple[RunRow, RunRow]]:
    """One pair per ratio: 10 ms before, 10 ms x ratio after."""
    return [(row(0.01, "before", **changed), row(0.01 * ratio, "after", **changed)) for ratio in ratios]


def sequential_codes(
    log_ratios: npt.ArrayLike, looks: tuple[int, ...], alpha: float, threshold_ratio: float
) -> npt.NDArray[np.int64]:
    """What the plan with these looks concludes, for each row of (..., pairs): the first look that decides wins."""
    values = np.asarray(log_ratios, dtype=np.float64)
    level = 1 - alpha / len(looks)
    codes = np.full(values.shape[:-1], UNDECIDED, dtype=np.int64)
    for pairs in looks:
        interval = paired_interval(values[..., :pairs], level)
        codes = np.where(codes == UNDECIDED, classify(interval.low, interval.high, threshold_ratio), codes)
    return codes
