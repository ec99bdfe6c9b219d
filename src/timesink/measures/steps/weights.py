"""How often slow steps come: what each steady step counts for in a mean that stands for the whole run.

A short capture shows few slow steps, and its ends hide some: the last step is cut off, the first ones are left out as
warm-up. By the host's time all of them are seen. A slow first step counts as one of the slow ones where it takes about
as long as they do, and as warm-up else:

    steps      first 53   2.6  2.4  53.2  2.6   cut off at 2.5     ms
    slow?      yes        no   no   yes   no    no                 2 of 6, where steady steps alone say 1 of 4
    weight                8/9  8/9  4/3   8/9                      1/3 for slow steps, 2/3 for the others, times 4
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.steps.steps import WARM_UP, steps
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, median
from timesink.model.trace import Trace, remembered
from timesink.units import SIGMA_PER_MAD

SLOW: Final = 1.5  # times the median: no jitter of a steady step is as long


def slow(periods_ns: Float64Array) -> BoolArray:
    """Which steps take far longer than the median one."""
    return np.asarray(periods_ns > SLOW * median(periods_ns), np.bool_) if periods_ns.size else periods_ns > 0


def usual_and_deviation(periods_ns: Int64Array) -> tuple[float, float]:
    """The median and the standard deviation about it, from the median of distances: no slow step moves either."""
    usual = median(periods_ns)
    return usual, SIGMA_PER_MAD * median(np.abs(periods_ns - usual))


@remembered
def slow_rates(trace: Trace) -> Mapping[int, float]:
    """Per rank with slow steps: the share of its steps that are slow, by the host where that shows."""
    rates = {}
    for (rank,), frame in steps(trace).frame.partition_by("rank", as_dict=True).items():
        windows = steps(trace).windows.filter(pl.col("rank") == rank)
        periods = windows.group_by("step").agg(pl.col("period_ns").max())["period_ns"].to_numpy().astype(np.float64)
        length = (frame["mark_end_ns"] - frame["host_start_ns"]).to_numpy().astype(np.float64)
        warm_up = (frame["status"] == WARM_UP).to_numpy()
        slow_ones = slow(periods)
        if not slow_ones.any():
            continue
        usual = median(length[~warm_up])
        excess = (periods[slow_ones] - median(periods)).min()
        # A host that runs ahead waits in some steps for many: what it then takes says nothing of the device's.
        long = (length > SLOW * usual) & (length - usual >= excess / SLOW)
        steady_long = length[long & ~warm_up]
        if not steady_long.size:  # the host did not stand still: the device alone shows it
            rates[int(rank)] = float(slow_ones.mean())
            continue
        worst = float(steady_long.max())
        like_them = ~warm_up | ((length >= worst / SLOW) & (length <= worst * SLOW))
        rates[int(rank)] = float((long & like_them).sum() / (~long | like_them).sum())
    return rates


def weights(rate: float | None, periods_ns: Float64Array) -> Float64Array:
    """What each step counts for where that share of all steps is slow: 1 on average, 1 each where no rate is known."""
    long = slow(periods_ns)
    if rate is None or not long.any():
        return np.ones(periods_ns.size)
    parts = np.where(long, rate / long.sum(), (1 - rate) / max((~long).sum(), 1))
    return np.asarray(parts * periods_ns.size, np.float64)


def usual_weights(periods_ns: Float64Array) -> Float64Array:
    """1 on average for steps that are not far longer than the others, and nothing for those that are."""
    if not periods_ns.size:
        return periods_ns
    usual = periods_ns <= SLOW * np.quantile(periods_ns, 0.5, method="lower")
    return np.asarray(usual * (periods_ns.size / usual.sum()), np.float64)
