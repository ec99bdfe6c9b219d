"""How long the host takes for each steady step, and how much of that it is not waiting for the GPU."""

from __future__ import annotations

import polars as pl

from timesink.measures.steps import steps
from timesink.measures.synchronisations import synchronisations
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS
from timesink.model.trace import Trace

HOST_STEPS = {"rank": pl.Int32, "step": pl.Int32, "host_ns": pl.Int64, "host_busy_ns": pl.Int64}


def host_steps(trace: Trace) -> pl.DataFrame:
    """rank, step, host_ns, host_busy_ns of every kept step. Busy: outside blocking calls of the step's own thread.

    A rank of which no call was recorded has no row: nothing says what its host did.
    """
    seen = set(trace.get(API_CALLS)["rank"].unique())
    waits = synchronisations(trace).calls
    parts = [pl.DataFrame(schema=HOST_STEPS)]
    for (rank, process, thread), mine in (
        steps(trace).kept.partition_by("rank", "process", "thread", as_dict=True).items()
    ):
        if rank not in seen:
            continue
        own = (pl.col("rank") == rank) & (pl.col("process") == process)
        own = own & (pl.col("thread") == thread) if thread is not None else own
        blocked = Intervals.of(waits.filter(own))
        start, end = mine["host_start_ns"].to_numpy(), mine["host_end_ns"].to_numpy()
        parts.append(
            mine.select("rank", "step").with_columns(
                pl.Series("host_ns", end - start),
                pl.Series("host_busy_ns", end - start - blocked.covered_ns(start, end)),
            )
        )
    return pl.concat(parts).sort("rank", "step").unique(["rank", "step"], keep="first", maintain_order=True)
