"""Memory: what was allocated and freed, and what was alive."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import Column, Table
from timesink.model.tables.columns import NAME, PROCESS, RANK, TIME, optional

MEMORY_EVENTS = Table(
    "memory_events",
    "One row per allocation or release the profiler recorded.",
    {
        "rank": RANK,
        "process": PROCESS,
        "device": Column(pl.Int32, "GPU ordinal; -1 for host memory"),
        "thread": optional(pl.Int64, "thread that asked"),
        "action": NAME,
        "time_ns": TIME,
        "address": optional(pl.UInt64, "address of the block"),
        "bytes": Column(pl.Int64, "bytes allocated; negative where released", unit="bytes"),
        "total_allocated_bytes": optional(pl.Int64, "allocated after the event, as the allocator counts", unit="bytes"),
        "total_reserved_bytes": optional(pl.Int64, "reserved after the event, as the allocator counts", unit="bytes"),
        "stream": optional(pl.Int64, "stream of the allocation"),
        "stack": optional(pl.Categorical(), "Python stack, innermost first, frames separated by ';'"),
    },
    sorted_by=("rank", "device", "time_ns"),
)
