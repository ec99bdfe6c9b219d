"""Step times in order, one series per rank."""

from __future__ import annotations

import polars as pl

from timesink.measures.steps import step_times, steps
from timesink.model.trace import Trace
from timesink.report_data import StepSeries

SHOWN_RANKS = 8


def step_series(trace: Trace) -> tuple[StepSeries, ...]:
    """The ranks with the slowest median, in order of rank; a rank with several GPUs is shown by its first one."""
    found = steps(trace)
    slowest = sorted(found.by_rank, key=lambda rank: (-(found.by_rank[rank].p50_ns or 0.0), rank))[:SHOWN_RANKS]
    timed = {rank: found.windows.filter(pl.col("rank") == rank) for rank in sorted(slowest)}
    return tuple(_series(rank, rows) for rank, rows in timed.items() if rows.height)


def _series(rank: int, rows: pl.DataFrame) -> StepSeries:
    rows = rows.filter(pl.col("device") == rows["device"].min()).sort("step")
    times = step_times(rows["period_ns"].to_numpy())
    return StepSeries(
        rank=rank,
        numbers=tuple(rows["step"].to_list()),
        period_ns=tuple(rows["period_ns"].to_list()),
        p50_ns=times.p50_ns,
        p90_ns=times.p90_ns,
        p99_ns=times.p99_ns,
    )
