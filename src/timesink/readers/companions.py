"""Files beside traces: a compile log, a memory snapshot, a kernel report. They speak of a rank and claim none.

A snapshot's memory events take the place of those the profiler recorded for the same rank, which carry no stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from timesink.model.tables import (
    COMPILE_EVENTS,
    DEVICES,
    KERNEL_METRICS,
    KERNEL_PROFILES,
    KERNEL_RULES,
    MEMORY_BLOCKS,
    MEMORY_EVENTS,
    MEMORY_MARKS,
    MEMORY_SEGMENTS,
    SOURCES,
)
from timesink.model.trace import Trace

_OF_REPORT = {SOURCES, DEVICES, KERNEL_PROFILES, KERNEL_METRICS, KERNEL_RULES}
_OF_SNAPSHOT = {SOURCES, MEMORY_EVENTS, MEMORY_SEGMENTS, MEMORY_BLOCKS, MEMORY_MARKS}


def is_companion(trace: Trace) -> bool:
    """Whether the trace is a compile log, a memory snapshot or a kernel report."""
    return set(trace.tables) == {COMPILE_EVENTS, SOURCES} or is_snapshot(trace) or is_kernel_report(trace)


def is_kernel_report(trace: Trace) -> bool:
    """Whether the trace holds what an Nsight Compute report holds, and nothing else."""
    return KERNEL_PROFILES in trace and set(trace.tables) <= _OF_REPORT


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


def without_known_devices(trace: Trace, parts: Sequence[Trace]) -> Trace:
    """A kernel report less the devices that the traces beside it describe: profiled alone, a GPU is the same GPU."""
    if DEVICES not in trace or not any(DEVICES in part for part in parts):
        return trace
    keys = ["rank", "device"]
    known = pl.concat([part[DEVICES].select(keys) for part in parts if DEVICES in part])
    return replace(trace, tables={**trace.tables, DEVICES: trace[DEVICES].join(known, on=keys, how="anti")})


def without_their_memory(trace: Trace, ranks: set[int]) -> Trace:
    """The trace less its own memory events of those ranks."""
    if MEMORY_EVENTS not in trace:
        return trace
    kept = trace[MEMORY_EVENTS].filter(~pl.col("rank").is_in(sorted(ranks)))
    return replace(trace, tables={**trace.tables, MEMORY_EVENTS: kept})
