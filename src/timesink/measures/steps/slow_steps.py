"""How often slow steps come, and a trace without those that stand alone.

**Weights**: what each steady step counts for in a mean that stands for the whole run. A short capture shows few slow
steps, and its ends hide some: the last step is cut off, the first ones are left out as warm-up. By the host's time all
of them are seen. A slow first step counts as one of the slow ones where it takes about as long as they do, and as
warm-up else:

    steps      first 53   2.6  2.4  53.2  2.6   cut off at 2.5     ms
    slow?      yes        no   no   yes   no    no                 2 of 6, where steady steps alone say 1 of 4
    weight                8/9  8/9  4/3   8/9                      1/3 for slow steps, 2/3 for the others, times 4

**Usual steps**: a trace without the lone steps that stand out from its others. One step that collects garbage, compiles
or writes a checkpoint says nothing of the steady state, and of four steps it is half of the mean: causes that are small
in every other step pass their limits by it, and others fall below theirs. A step is lone where no other is nearly as
far beyond the rest:

    steps, ms            left out
    10 10 11 30          30        3 x the rest, and nothing is like it
    10 10 11 30 29       none      it comes back: the program has such steps; so too where the host shows another
    10 14 19 30          none      they all differ
    10 15 40 10          none      the two long ones wait for data: N workers give N batches at a time
    10 30                30        which of two is the usual one is not known, but both have what the shorter one has

Of twenty steps and more none is left out: one of them moves the others' figures little, and what fewer than a tenth of
the steps have comes last anyway (`timesink.diagnosis.headline.is_of_few_steps`).
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.idle.input_pipeline import input_prepared
from timesink.measures.steps import TRUNCATED, WARM_UP, steps
from timesink.measures.timeline import device_timeline
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS
from timesink.model.trace import Trace, remembered
from timesink.records import replace
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
    """Per rank with slow steps: the share of its steps that are slow, by the host where that shows. Ranks wait for each
    other: where only some hosts show it, the others have their rate."""
    by_host: dict[int, float] = {}
    by_device: dict[int, float] = {}
    for (rank,), frame in steps(trace).frame.partition_by("rank", as_dict=True).items():
        windows = steps(trace).windows.filter(pl.col("rank") == rank)
        periods = windows.group_by("step").agg(pl.col("period_ns").max())["period_ns"].to_numpy().astype(np.float64)
        slow_ones = slow(periods)
        if not slow_ones.any():
            continue
        called = trace.get(API_CALLS).filter(pl.col("rank") == rank)["start_ns"].max()  # so far the step cut off went
        end = pl.when(status=TRUNCATED).then(pl.max_horizontal("host_end_ns", pl.lit(called))).otherwise("host_end_ns")
        length = frame.select(end - pl.col("host_start_ns")).to_series().to_numpy().astype(np.float64)
        at_an_end = frame["status"].is_in([WARM_UP, TRUNCATED]).to_numpy()
        usual = np.quantile(length[(frame["status"] != WARM_UP).to_numpy()], 0.5, method="lower")
        excess = (periods[slow_ones] - median(periods)).min()
        # A host that runs ahead waits in some steps for many: what it then takes says nothing of the device's.
        long = (length > SLOW * usual) & (length - usual >= excess / SLOW)
        steady_long = length[long & ~at_an_end]
        by_device[int(rank)] = float(slow_ones.mean())
        if steady_long.size:  # else the host did not stand still: the device alone shows it
            worst = float(steady_long.max())
            like_them = ~at_an_end | ((length >= worst / SLOW) & (length <= worst * SLOW))
            by_host[int(rank)] = float((long & like_them).sum() / (~long | like_them).sum())
    shown = sum(by_host.values()) / len(by_host) if by_host else None
    return {rank: by_host.get(rank, rate if shown is None else shown) for rank, rate in by_device.items()}


def weights(rate: float, periods_ns: Float64Array) -> Float64Array:
    """What each step counts for where that share of all steps is slow: 1 on average."""
    long = slow(periods_ns)
    if not long.any():
        return np.ones(periods_ns.size)
    parts = np.where(long, min(rate, 1.0) / long.sum(), max(1 - rate, 0.0) / max((~long).sum(), 1))
    return np.asarray(parts * periods_ns.size, np.float64)


def weights_in(trace: Trace, rank: int, periods_ns: Float64Array) -> Float64Array:
    """The same of steps of a rank, by its device or its host: by the host one slow step may be two, as its stand is in
    one and its device's in the next. What all of them have beyond the usual is that of so many slow steps."""
    rate = slow_rates(trace).get(rank)
    if rate is None:
        return np.ones(periods_ns.size)
    own = steps(trace).windows.filter(pl.col("rank") == rank)["period_ns"].to_numpy().astype(np.float64)
    of_device, beyond = _beyond_usual(own), _beyond_usual(periods_ns)
    if of_device.size and beyond.size:
        rate *= float(of_device.mean()) / float(beyond.mean())
    return weights(rate, periods_ns)


def _beyond_usual(periods_ns: Float64Array) -> Float64Array:
    """What each slow step takes beyond the mean of the others."""
    long = slow(periods_ns)
    return periods_ns[long] - (periods_ns[~long].mean() if not long.all() else 0.0)


def usual_weights(periods_ns: Float64Array) -> Float64Array:
    """1 on average for steps that are not far longer than the others, and nothing for those that are."""
    if not periods_ns.size:
        return periods_ns
    usual = periods_ns <= SLOW * np.quantile(periods_ns, 0.5, method="lower")
    return np.asarray(usual * (periods_ns.size / usual.sum()), np.float64)


_QUARTER: Final = 0.25  # of the steps at least wait no longer than a loader that keeps up
_ALIKE: Final = 2  # a step whose excess is more than one part in two of another's is like it
_FEWER: Final = 3  # of all steps, at most one in three is left out
_MANY: Final = 20  # the docstring says why


@remembered
def usual_steps(trace: Trace) -> Trace | None:
    """The trace with its lone slow steps left out of the steady ones; None where it has none."""
    periods = _periods(trace)
    most = max((len(own) for own in periods.values()), default=0)
    left_out: set[int] = set()
    while not trace.left_out and most < _MANY and len(left_out) < max(most // _FEWER, 1):
        lone = {step for own in periods.values() if (step := _lone(own, left_out)) is not None}
        if len(lone) != 1:  # none, or other ranks have others
            break
        left_out |= lone
    if not left_out or _comes_back(trace) or _loads_again(trace, left_out) or _others_have(periods, left_out):
        return None
    return replace(trace, left_out=frozenset(left_out))


def of_usual_steps(trace: Trace) -> Trace:
    """The same, or the trace itself: what findings, prices, plan and bar are of."""
    return usual_steps(trace) or trace


def _others_have(periods: Mapping[int, Mapping[int, int]], left_out: AbstractSet[int]) -> bool:
    """Whether a rank has slow steps, and none of them is left out: ranks wait for each other, and what one has in
    several steps, by numbers of its own, comes back for all."""
    slow_ones = (
        {step for step, is_slow in zip(own, slow(np.array([*own.values()], np.float64)), strict=True) if is_slow}
        for own in periods.values()
    )
    return any(own and not own & left_out for own in slow_ones)


def _periods(trace: Trace) -> Mapping[int, Mapping[int, int]]:
    """Per rank: how long each steady step takes, by its number, on the device where it takes longest."""
    found: dict[int, dict[int, int]] = {}
    for rank, step, period_ns in steps(trace).windows.select("rank", "step", "period_ns").iter_rows():
        own = found.setdefault(rank, {})
        own[step] = max(own.get(step, 0), period_ns)
    return found


def _comes_back(trace: Trace) -> bool:
    """Whether the host stood still about as long in another step, be it warm-up or the last one, whose time on the
    device is not known: workers that start anew in each epoch are no accident of one step. While a kernel runs, a host
    that stands still may be ahead of it, with the queue of launches full; while a copy does, it may wait for that."""
    for (rank,), own in steps(trace).frame.partition_by("rank", as_dict=True).items():
        lines = [line for device, line in device_timeline(trace).by_device.items() if device[0] == rank]
        kernels = Intervals.union_all(line.compute | line.communication for line in lines)
        begin, end = own["host_start_ns"].to_numpy(), own["mark_end_ns"].to_numpy()
        still_ns = end - begin - kernels.covered_ns(begin, end)
        if still_ns.max() > SLOW * median(end - begin) and (still_ns >= still_ns.max() / SLOW).sum() > 1:
            return True
    return False


def _loads_again(trace: Trace, left_out: AbstractSet[int]) -> bool:
    """Whether long steps wait for data, and others too: a loader of N workers gives batches N at a time, so some steps
    wait for all of them and the rest for none. One step that waits is an accident; two are how the program runs."""
    apart = steps(trace).windows.filter(pl.col("step").is_in(list(left_out)))
    for rank, start_ns, end_ns in apart.select("rank", "start_ns", "end_ns").iter_rows():
        loading, own = input_prepared(trace, rank), steps(trace).frame.filter(pl.col("rank") == rank)
        begin, end = own["host_start_ns"].to_numpy(), own["host_end_ns"].to_numpy()
        waits_ns = loading.covered_ns(begin, end)
        usual_ns = median(end - begin - waits_ns)
        least = np.quantile(waits_ns, _QUARTER, method="lower") + (SLOW - 1) * usual_ns
        # A GPU's step goes on to the next one's first kernel, so what the host waits at the head of one is in another.
        waited_ns = loading.clip(start_ns, end_ns).total_ns
        if waited_ns > max(least, (end_ns - start_ns - usual_ns) / 2) and (waits_ns > least).sum() > 1:
            return True
    return False


def _lone(periods: Mapping[int, int], left_out: set[int]) -> int | None:
    """The number of the longest step, if no chance and no other step explains it."""
    kept = {step: period for step, period in periods.items() if step not in left_out}
    if len(kept) < 2:
        return None
    longest = max(kept, key=lambda step: (kept[step], -step))
    others: Int64Array = np.array([period for step, period in kept.items() if step != longest], np.int64)
    usual, deviation = usual_and_deviation(others)
    excess = kept[longest] - usual
    stands_out = excess > max(assumed.SPIKE_DEVIATIONS.value * deviation, assumed.SPIKE_PAUSE.value * usual)
    return longest if stands_out and _ALIKE * (float(others.max()) - usual) < excess else None
