"""Time per steady step: how much of it a set of device intervals covers, and how each step's time splits."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl

from timesink.measures.steps import steps
from timesink.measures.steps.slow_steps import weights_in
from timesink.measures.timeline import Device, device_timeline
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered


def step_windows(trace: Trace, device: Device) -> tuple[Int64Array, Int64Array]:
    """Starts and ends of the steady steps on a device; its whole span, as one window, where there are no steps."""
    return _weighted_windows(trace, device)[:2]


def _weighted_windows(trace: Trace, device: Device) -> tuple[Int64Array, Int64Array, Float64Array]:
    """The same, and what each window counts for in a mean."""
    if (windows := _windows(trace).get(device)) is not None:
        return windows
    line = device_timeline(trace)[device]
    return np.array([line.span_start_ns], np.int64), np.array([line.span_end_ns], np.int64), np.ones(1)


@remembered
def _windows(trace: Trace) -> Mapping[Device, tuple[Int64Array, Int64Array, Float64Array]]:
    """Those of every device that has steady steps, as every rule asks for them. A device without any is measured in the
    longest there are, as far as they lie in what is recorded of it: its whole span is no step."""
    found = {}
    for (rank, device), part in steps(trace).windows.partition_by("rank", "device", as_dict=True).items():
        start, end = part["start_ns"].to_numpy(), part["end_ns"].to_numpy()
        found[rank, device] = start, end, weights_in(trace, rank, (end - start).astype(np.float64))
    if found:
        start, end, weight = max(found.values(), key=lambda one: float(np.average(one[1] - one[0], weights=one[2])))
        for device, line in device_timeline(trace).by_device.items():
            inside = (start >= line.span_start_ns) & (end <= line.span_end_ns)
            if device not in found and weight[inside].any():
                found[device] = start[inside], end[inside], weight[inside]
    return found


def period_name(trace: Trace) -> Literal["step", "window"]:
    """What figures "per step" are per: the recorded window, where the trace has no steady steps."""
    return "step" if steps(trace).windows.height else "window"


def step_weights(trace: Trace, device: Device) -> Float64Array:
    """What each of the device's windows counts for in a mean: slow steps as often as they come (`weights`)."""
    return _weighted_windows(trace, device)[2]


def period_ns(trace: Trace, device: Device) -> float:
    """Mean length of the device's windows, by `step_weights` as every mean per step."""
    start, end, weight = _weighted_windows(trace, device)
    return float(np.average(end - start, weights=weight))


def per_step_ns(trace: Trace, device: Device, intervals: Intervals) -> float:
    """Mean time of a step that the intervals cover."""
    start, end, weight = _weighted_windows(trace, device)
    return float(np.average(intervals.covered_ns(start, end), weights=weight))


def longest_period_ns(trace: Trace) -> float:
    """The period of the device where it is longest, which sets the pace of a job; 0 without device work."""
    return max((period_ns(trace, device) for device in device_timeline(trace).by_device), default=0.0)


def share_of_step(trace: Trace, device: Device, intervals: Intervals) -> float:
    """That time over the step, 0 to 1."""
    period = period_ns(trace, device)
    return per_step_ns(trace, device, intervals) / period if period else 0.0


def begun_per_step(trace: Trace, rank: int, instants: pl.Series) -> float:
    """How many of some instants of a rank's host lie in a kept step, the mean; all of them where there are no steps."""
    kept = steps(trace).kept.filter(pl.col("rank") == rank).sort("host_start_ns")
    if not kept.height:
        return float(instants.len())
    begun = kept["host_start_ns"].search_sorted(instants, side="right")
    ended = kept["host_end_ns"].sort().search_sorted(instants, side="right")
    return float((begun > ended).sum()) / kept.height


def in_most_steps(trace: Trace, rows: pl.DataFrame) -> bool:
    """Whether more than half of some rank's kept steps have one of these rows of the host begin in them."""
    if rows.is_empty():
        return False
    for (rank,), kept in steps(trace).kept.sort("host_start_ns").group_by("rank"):
        begins = rows.filter(pl.col("rank") == rank)["start_ns"].sort()
        first, after = (begins.search_sorted(kept[column]) for column in ("host_start_ns", "host_end_ns"))
        if 2 * int((after > first).sum()) > kept.height:
            return True
    return False


def largest_per_step_ns(trace: Trace, claimed: Mapping[Device, Intervals]) -> float:
    """The largest of several devices' times per step.

    Ranks of a synchronous job wait for each other, so the device with the most to gain bounds what the job can gain.
    """
    return max((per_step_ns(trace, device, part) for device, part in claimed.items()), default=0.0)


@remembered
def step_budgets(trace: Trace) -> pl.DataFrame:
    """The time of each kept step on each device, every nanosecond once: one row per (rank, device, step).

    Columns: rank, device, step, start_ns, end_ns, period_ns, compute_ns, exposed_communication_ns, exposed_copy_ns,
    idle_ns; in every row the last four sum to `period_ns`.
    """
    windows = steps(trace).windows
    names = ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    parts = [windows.clear().with_columns(pl.lit(None, pl.Int64).alias(name) for name in names)]
    for (rank, device), rows in windows.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
        line, start, end = device_timeline(trace)[rank, device], rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        shown = (line.compute, line.exposed_communication, line.exposed_copy)
        covered = [*(part.covered_ns(start, end) for part in shown), end - start - line.busy.covered_ns(start, end)]
        parts.append(rows.with_columns(pl.Series(*column) for column in zip(names, covered, strict=True)))
    return pl.concat(parts)
