"""Files that stand beside traces: a compile log, a memory snapshot. They speak of a rank and claim none.

A snapshot's memory events take the place of those the profiler recorded for the same rank, which carry no stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from timesink.model.tables import COMPILE_EVENTS, MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS, MEMORY_SEGMENTS, SOURCES
from timesink.model.trace import Trace

_OF_SNAPSHOT = {SOURCES, MEMORY_EVENTS, MEMORY_SEGMENTS, MEMORY_BLOCKS, MEMORY_MARKS}


def is_companion(trace: Trace) -> bool:
    """Whether the trace is a compile log or a memory snapshot."""
    return set(trace.tables) == {COMPILE_EVENTS, SOURCES} or is_snapshot(trace)


def is_snapshot(trace: Trace) -> bool:
    """Whether the trace holds what a memory snapshot holds, and nothing else."""
    return MEMORY_SEGMENTS in trace and set(trace.tables) <= _OF_SNAPSHOT


def placed(trace: Trace, rank: int) -> Trace:
    """A snapshot as part of that rank's trace: its rows under the rank."""
    column = pl.lit(rank, dtype=pl.Int32).alias("rank")
    return replace(trace, tables={table: frame.with_columns(column) for table, frame in trace.tables.items()})


def rank_beside(number: int, named: int | None, count: int, held: Sequence[int]) -> int:
    """The rank a snapshot speaks of: the one its name states, else by position where there are as many as ranks."""
    if named is not None:
        return named
    return held[number] if count == len(held) else number


def without_their_memory(trace: Trace, ranks: set[int]) -> Trace:
    """The trace less its own memory events of those ranks."""
    if MEMORY_EVENTS not in trace:
        return trace
    kept = trace[MEMORY_EVENTS].filter(~pl.col("rank").is_in(sorted(ranks)))
    return replace(trace, tables={**trace.tables, MEMORY_EVENTS: kept})
