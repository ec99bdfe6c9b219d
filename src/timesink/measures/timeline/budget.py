"""Where each GPU's time went, every nanosecond once: compute hides communication, both hide copies, the rest idles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.steps.steps import steps
from timesink.measures.timeline.timeline import (
    Device,
    DeviceTimeline,
    DeviceTimelines,
    device_timeline,
    linked_timeline,
)
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBudget:
    """One GPU's span split by priority: compute + exposed communication + exposed copy + idle = span, exactly.

    `communication_ns` and `copy_ns` are the whole unions, hidden part included; the exposed parts are intervals too.
    """

    rank: int
    device: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    copy_ns: int
    exposed_communication: Intervals
    exposed_copy: Intervals

    @property
    def exposed_communication_ns(self) -> int:
        """Communication that no computation hides."""
        return self.exposed_communication.total_ns

    @property
    def exposed_copy_ns(self) -> int:
        """Copying that neither computation nor communication hides."""
        return self.exposed_copy.total_ns

    @property
    def busy_ratio(self) -> float:
        """Busy time over span; 0 for an empty span."""
        return self.busy_ns / self.span_ns if self.span_ns else 0.0

    @property
    def idle_ratio(self) -> float:
        """Idle time over span; 0 for an empty span."""
        return self.idle_ns / self.span_ns if self.span_ns else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class TimeBudget:
    """Budgets by (rank, device), in that order."""

    by_device: Mapping[Device, DeviceBudget]

    def __getitem__(self, device: Device) -> DeviceBudget:
        return self.by_device[device]

    def __iter__(self) -> Iterator[DeviceBudget]:
        return iter(self.by_device.values())

    def __len__(self) -> int:
        return len(self.by_device)


@dataclass(frozen=True, slots=True, eq=False)
class StepBudgets:
    """The same split per kept step: one row per (rank, device, step).

    Columns: rank, device, step, start_ns, end_ns, period_ns, compute_ns, exposed_communication_ns, exposed_copy_ns,
    idle_ns; in every row the four parts sum to `period_ns`.
    """

    frame: pl.DataFrame


@remembered
def time_budget(trace: Trace) -> TimeBudget:
    """The budget of every device over all its ops."""
    return _budget(device_timeline(trace))


@remembered
def linked_time_budget(trace: Trace) -> TimeBudget:
    """The budget over the ops whose launch is in the window (see `linked_timeline`)."""
    return _budget(linked_timeline(trace))


@remembered
def step_budgets(trace: Trace) -> StepBudgets:
    """The budget of each kept step's window on each device."""
    lines, budgets = device_timeline(trace), time_budget(trace)
    windows = steps(trace).windows
    parts = [
        _step_rows(part, lines[rank, device], budgets[rank, device])
        for (rank, device), part in (
            (key, windows.filter((pl.col("rank") == key[0]) & (pl.col("device") == key[1]))) for key in lines.by_device
        )
        if part.height
    ]
    empty = windows.clear().with_columns(
        pl.lit(None, pl.Int64).alias(name)
        for name in ("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    )
    return StepBudgets(pl.concat([empty, *parts]))


def _budget(lines: DeviceTimelines) -> TimeBudget:
    return TimeBudget({key: _of(line) for key, line in lines.by_device.items()})


def _of(line: DeviceTimeline) -> DeviceBudget:
    return DeviceBudget(
        rank=line.rank,
        device=line.device,
        span_ns=line.span_ns,
        busy_ns=line.busy_ns,
        idle_ns=line.idle_ns,
        compute_ns=line.compute.total_ns,
        communication_ns=line.communication.total_ns,
        copy_ns=line.copy.total_ns,
        exposed_communication=line.communication - line.compute,
        exposed_copy=line.copy - (line.compute | line.communication),
    )


def _step_rows(windows: pl.DataFrame, line: DeviceTimeline, budget: DeviceBudget) -> pl.DataFrame:
    start, end = windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    return windows.with_columns(
        pl.Series("compute_ns", line.compute.covered_ns(start, end)),
        pl.Series("exposed_communication_ns", budget.exposed_communication.covered_ns(start, end)),
        pl.Series("exposed_copy_ns", budget.exposed_copy.covered_ns(start, end)),
        pl.Series("idle_ns", np.asarray(end - start - line.busy.covered_ns(start, end), np.int64)),
    )
