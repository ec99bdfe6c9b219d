"""Where the mean step of each device goes, idle time by its cause."""

from __future__ import annotations

import polars as pl

from timesink.measures.budget import time_budget
from timesink.measures.idle_blame import idle_blame, intervals_of
from timesink.measures.per_step import per_step_ns, period_ns
from timesink.measures.steps import steps
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.report_data import Part, StepBudget


def step_budget_parts(trace: Trace) -> tuple[StepBudget, ...]:
    """One budget per device: compute, exposed communication, exposed copies, then idle time by cause, largest first."""
    counts = {key: rows.height for key, rows in steps(trace).windows.group_by("rank", "device")}
    return tuple(_budget(trace, (part.rank, part.device), counts) for part in time_budget(trace))


def _budget(trace: Trace, device: tuple[int, int], counts: dict[tuple[object, ...], int]) -> StepBudget:
    """Each part is measured by itself; that they sum to the period is a law, not an arrangement."""
    budget = time_budget(trace)[device]
    busy = {
        "compute": device_timeline(trace)[device].compute,
        "communication": budget.exposed_communication,
        "copy": budget.exposed_copy,
    }
    parts = [Part(kind, per_step_ns(trace, device, intervals)) for kind, intervals in busy.items()]
    kept = tuple(part for part in (*parts, *_idle(trace, device)) if part.time_ns > 0)
    return StepBudget(*device, steps=counts.get(device, 0), period_ns=period_ns(trace, device), parts=kept)


def _idle(trace: Trace, device: tuple[int, int]) -> list[Part]:
    frame = idle_blame(trace).frame.filter((pl.col("rank") == device[0]) & (pl.col("device") == device[1]))
    parts = [
        Part(cause, per_step_ns(trace, device, _of(frame.filter(pl.col("cause") == cause), device)))
        for cause in frame["cause"].unique().cast(pl.String).sort()
    ]
    return sorted(parts, key=lambda part: (-part.time_ns, part.kind))


def _of(stretches: pl.DataFrame, device: tuple[int, int]) -> Intervals:
    found = intervals_of(stretches)
    return found.get(device, Intervals.none())
