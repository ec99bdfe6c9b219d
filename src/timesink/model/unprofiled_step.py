"""The step time without a profiler: measured by `timesink capture` or told by a person, kept with a trace's sources."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from timesink.model.tables import SOURCES
from timesink.model.trace import Trace


def unprofiled_step_ns(trace: Trace) -> float | None:
    """The longest of all ranks, which sets the pace of a synchronous job; None where no source knows it."""
    longest = trace.get(SOURCES)["unprofiled_step_ns"].max()
    return longest if isinstance(longest, float) else None


def told_unprofiled_step(trace: Trace, step_ns: float) -> Trace:
    """The trace with that step time for every source, so that measures may hold profiled times against it."""
    sources = trace.get(SOURCES)
    if sources.is_empty():  # a trace that was not read from a file
        unnamed = {"rank": pl.lit(0, pl.Int32), "path": pl.lit(trace.source), "format": pl.lit("")}
        sources = sources.clear(1).with_columns(**unnamed)
    told = sources.with_columns(unprofiled_step_ns=pl.lit(step_ns, pl.Float64))
    return replace(trace, tables={**trace.tables, SOURCES: told})
