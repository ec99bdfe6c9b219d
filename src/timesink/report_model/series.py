"""Step times in order, one series per rank."""

from __future__ import annotations

import polars as pl

from timesink.measures.spikes import spikes
from timesink.measures.steps import step_times, steps
from timesink.measures.timeline import Device
from timesink.model.trace import Trace
from timesink.report_data import StepSeries

SHOWN_RANKS = 8


def step_series(trace: Trace) -> tuple[StepSeries, ...]:
    """The ranks with the slowest median, in order of rank; a rank with several GPUs is shown by its first one."""
    found = steps(trace)
    slowest = sorted(found.by_rank, key=lambda rank: (-(found.by_rank[rank].p50_ns or 0.0), rank))[:SHOWN_RANKS]
    timed = {rank: found.windows.filter(pl.col("rank") == rank) for rank in sorted(slowest)}
    return tuple(_series(trace, rank, rows) for rank, rows in timed.items() if rows.height)


def _series(trace: Trace, rank: int, rows: pl.DataFrame) -> StepSeries:
    device = int(rows["device"].min())  # type: ignore[arg-type]
    rows = rows.filter(pl.col("device") == device).sort("step")
    times = step_times(rows["period_ns"].to_numpy())
    return StepSeries(
        rank=rank,
        numbers=tuple(rows["step"].to_list()),
        period_ns=tuple(rows["period_ns"].to_list()),
        p50_ns=times.p50_ns,
        p90_ns=times.p90_ns,
        p99_ns=times.p99_ns,
        spikes=_standing_out(trace, (rank, device), rows),
    )


def _standing_out(trace: Trace, device: Device, rows: pl.DataFrame) -> tuple[tuple[int, str], ...]:
    """The long steps themselves: a spike names the step in which its cause struck, which may be the one after."""
    found: dict[int, str] = {}
    for spike in spikes(trace).found:
        if spike.device == device:
            alike = rows.filter(pl.col("period_ns") == spike.period_ns)["step"].to_list()
            found[min(alike, key=lambda step: (abs(step - spike.step), step))] = spike.kind.value
    return tuple(sorted(found.items()))
