"""Step times in order, one series per rank."""

from __future__ import annotations

import polars as pl

from timesink.measures.steps import steps
from timesink.model.trace import Trace
from timesink.report_data import StepSeries

SHOWN_RANKS = 8


def step_series(trace: Trace) -> tuple[StepSeries, ...]:
    """The ranks with the slowest median, in order of rank; a rank with several GPUs is shown by its first one."""
    found = steps(trace)
    slowest = sorted(found.by_rank, key=lambda rank: (-(found.by_rank[rank].p50_ns or 0.0), rank))[:SHOWN_RANKS]
    return tuple(_series(rank, found.windows, trace) for rank in sorted(slowest) if found.by_rank[rank].count)


def _series(rank: int, windows: pl.DataFrame, trace: Trace) -> StepSeries:
    rows = windows.filter(pl.col("rank") == rank)
    rows = rows.filter(pl.col("device") == rows["device"].min()).sort("step")
    times = steps(trace).by_rank[rank]
    return StepSeries(
        rank=rank,
        numbers=tuple(rows["step"].to_list()),
        period_ns=tuple(rows["period_ns"].to_list()),
        p50_ns=times.p50_ns,
        p90_ns=times.p90_ns,
        p99_ns=times.p99_ns,
    )
