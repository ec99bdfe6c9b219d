"""Hardware counters sampled along the timeline: how busy the multiprocessors, tensor cores and memory of a GPU were.

Samples of Nsight Systems are taken at a fixed rate and hold the share of the peak since the sample before. They are of
the whole GPU: what ran at that time, whoever launched it.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.metric_names.patterns import CLOCK, SAMPLED
from timesink.measures.kernels.facts import NO_FAULT, kernel_facts, of_each_device, times_of
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline import Device, device_timeline, of_device
from timesink.measures.timeline.ranges import range_work
from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import DEVICES, GPU_METRICS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif import Selection

LEAST_SAMPLES = 10
"""Fewer say nothing of a mean."""
ACTIVE: Final = "SMs active"
_MOST_HZ: Final = 1e4
"""A clock below it is stated in MHz."""


class SampledCounter(Record):
    """The mean of one counter over some stretches of time, as a share of its peak (0 to 1), and its samples' number."""

    what: str
    share: float
    samples: int


def sampled(trace: Trace, device: Device, during: Intervals) -> tuple[SampledCounter, ...]:
    """The counters known here (`SAMPLED`, in that order) that were sampled often enough during these stretches."""
    found = []
    for what, (time_ns, percent) in _series(trace).get(device, {}).items():
        inside = _inside(time_ns, during)
        if what != _CLOCK and np.count_nonzero(inside) >= LEAST_SAMPLES:
            found.append(SampledCounter(what, float(np.mean(percent[inside])) / 100, int(np.count_nonzero(inside))))
    return tuple(found)


def clock_hz(trace: Trace, device: Device, during: Intervals) -> tuple[float, int] | None:
    """The mean clock of the multiprocessors during these stretches, and its samples; None where there are too few."""
    time_ns, value = _series(trace).get(device, {}).get(_CLOCK, (np.empty(0, np.int64), np.empty(0)))
    inside = _inside(time_ns, during)
    if np.count_nonzero(inside) < LEAST_SAMPLES:
        return None
    mean = float(np.mean(value[inside]))
    return mean if mean > _MOST_HZ else mean * 1e6, int(np.count_nonzero(inside))


_CLOCK: Final = "clock"


@remembered
def _series(trace: Trace) -> dict[Device, dict[str, tuple[Int64Array, Float64Array]]]:
    """Times and values of each known counter by device. Of those with several names the first has the samples; NVLink's
    are parts: payload and protocol, of requests and of answers, which share the links."""
    rows, series = trace.get(GPU_METRICS), dict[Device, dict[str, tuple[Int64Array, Float64Array]]]()
    for what, pattern in (*SAMPLED.items(), (_CLOCK, CLOCK)) if rows.height else ():
        named = rows.filter(matches(rows["name"], pattern))
        for (rank, device), part in named.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
            first = str(part["name"].cast(pl.String).min())
            if " Data " in first:
                one = part.group_by("time_ns", maintain_order=True).agg(pl.col("value").sum())
            else:
                one = part.filter(pl.col("name").cast(pl.String) == first)
            of_device = series.setdefault((rank, device), {})
            of_device[what] = one["time_ns"].to_numpy(), one["value"].to_numpy()
    return series


def _inside(time_ns: Int64Array, during: Intervals) -> BoolArray:
    """A share is of the time before it is taken: the instant before it must be inside."""
    return np.asarray(during.covered_ns(time_ns - 1, time_ns) > 0, np.bool_)


class LowActivity(Record, eq=False):
    """Kernels of one device during which few multiprocessors had anything to do.

    `best` of the selection is the share of multiprocessors that were active while kernels of that name ran.
    `active` is that share over all kernels of the steady steps, `busy_ratio` how long kernels ran.
    """

    kernels: Selection
    active: SampledCounter
    busy_ratio: float


@of_each_device(kernel_facts)
def low_activity(trace: Trace, device: Device, kernels: pl.DataFrame) -> LowActivity | None:
    """Per device with samples: the kernels, by name, that were sampled often enough. Collectives and delays are left
    out: they keep few multiprocessors busy by design."""
    if ACTIVE not in _series(trace).get(device, {}):
        return None
    start, end = step_windows(trace, device)
    kernels = kernels.filter(~pl.col("family").is_in(NO_FAULT))
    ran = times_of(kernels) & Intervals(start, end)
    whole = {counter.what: counter for counter in sampled(trace, device, ran)}
    if ACTIVE not in whole:
        return None
    shares = _shares_by_name(trace, device, kernels)
    part = kernels.filter(pl.col("name").is_in(list(shares)))
    best = part["name"].replace_strict(shares, return_dtype=pl.Float64).to_numpy() if part.height else np.empty(0)
    chosen = Selection(device, {"low": part["row"].to_numpy()}, best=best)
    length = float(np.sum(end - start))
    return LowActivity(chosen, whole[ACTIVE], ran.total_ns / length if length else 0.0)


def _shares_by_name(trace: Trace, device: Device, kernels: pl.DataFrame) -> dict[int, float]:
    """The share of active multiprocessors while kernels of a name ran, where at most half were."""
    shares = {}
    for (name,), part in kernels.partition_by("name", as_dict=True, maintain_order=True).items():
        means = {counter.what: counter.share for counter in sampled(trace, device, times_of(part))}
        if means.get(ACTIVE, 1.0) <= 0.5:
            shares[name] = means[ACTIVE]
    return shares


class SlowClock(Record, eq=False):
    """The clock of one device while kernels ran in steady steps, the most it reaches, and those kernels."""

    device: Device
    clock_hz: float
    most_hz: float
    samples: int
    kernels: Selection


@of_each_device(kernel_facts)
def slow_clocks(trace: Trace, device: Device, kernels: pl.DataFrame) -> SlowClock | None:
    """Per device whose clock was sampled and whose highest clock is known."""
    clock = clock_hz(trace, device, times_of(kernels) & Intervals(*step_windows(trace, device)))
    stated = trace.get(DEVICES).filter(of_device(device))["clock_hz"].to_list()
    if clock is None or not any(stated[-1:]):
        return None
    (mean_hz, samples), most_hz = clock, float(stated[-1])
    best = np.full(kernels.height, min(mean_hz / most_hz, 1.0))
    chosen = Selection(device, {"slow": kernels["row"].to_numpy()}, best=best)
    return SlowClock(device, mean_hz, most_hz, samples, chosen)


class CounterMeans(Record):
    """The counters during one part of the program on one device: steady steps, a range's GPU work, the kernels of an
    operator or of a family.

    `time_ns` is how long it ran in all; `clock_hz` is None where it was not sampled.
    """

    device: Device
    part: str
    name: str
    time_ns: int
    shares: tuple[SampledCounter, ...]
    clock_hz: float | None


@remembered
def counter_means(trace: Trace) -> tuple[CounterMeans, ...]:
    """Steps, ranges and operators by the time of their GPU work, then families; those with samples enough."""
    works = sorted(range_work(trace).items(), key=lambda entry: -entry[1].total_ns) if _series(trace) else []
    parts: list[tuple[Device, str, str, Intervals]] = []
    for device in device_timeline(trace).by_device:
        if device not in _series(trace):
            continue
        parts.append((device, "steps", "", Intervals(*step_windows(trace, device))))
        parts += [(device, "range", name, work) for (*owner, name), work in works if tuple(owner) == device]
        kernels = kernel_facts(trace).on(device)
        for kind, column in (("operator", "op"), ("kernels", "family")):
            named = kernels.drop_nulls(column).partition_by(column, as_dict=True, maintain_order=True)
            timed = [(device, kind, str(name), times_of(part)) for (name,), part in named.items()]
            parts += sorted(timed, key=lambda part: -part[3].total_ns) if kind == "operator" else timed
    found = []
    for device, part, name, during in parts:
        if shares := sampled(trace, device, during):
            clock = clock_hz(trace, device, during)
            found.append(CounterMeans(device, part, name, during.total_ns, shares, clock[0] if clock else None))
    return tuple(found)
