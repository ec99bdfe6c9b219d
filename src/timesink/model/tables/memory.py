"""Memory: what was allocated and freed, what the allocator holds, and what was alive."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import END, NAME, PROCESS, RANK, SIZES, START, TIME, Column, Table, optional

BlockState = pl.Enum(["active", "awaiting_free", "inactive"])

MEMORY_EVENTS = Table(
    "memory_events",
    "One row per allocation or release the profiler recorded, in the order it happened.",
    {
        "rank": RANK,
        "process": PROCESS,
        "device": Column(pl.Int32, "GPU ordinal; -1 for host memory"),
        "thread": optional(pl.Int64, "thread that asked"),
        "action": NAME,
        "time_ns": TIME,
        "address": optional(pl.UInt64, "address of the block"),
        "bytes": Column(
            pl.Int64,
            "bytes allocated; negative where released; 0 where no tensor's memory changes (segment_alloc, oom)",
            unit="bytes",
            within=(-SIZES[1], SIZES[1]),
        ),
        "total_allocated_bytes": optional(
            pl.Int64,
            "allocated after the event, as the allocator counts (snapshots: as asked for, before rounding)",
            unit="bytes",
        ),
        "total_reserved_bytes": optional(pl.Int64, "reserved after the event, as the allocator counts", unit="bytes"),
        "stream": optional(pl.Int64, "stream of the allocation"),
        "stack": optional(pl.Categorical(), "call stack, innermost first, frames separated by ';'"),
        "category": optional(pl.Categorical(), "what the profiler says it is for, such as parameter or gradient"),
        "size_bytes": optional(pl.Int64, "size of the block or segment the event is about, never negative", "bytes"),
    },
    sorted_by=("rank", "device", "time_ns"),
)

MEMORY_SEGMENTS = Table(
    "memory_segments",
    "One row per segment the caching allocator held when the snapshot was taken: what it asked of the driver at once.",
    {
        "rank": RANK,
        "device": Column(pl.Int32, "GPU ordinal"),
        "address": Column(pl.UInt64, "address of the segment"),
        "total_bytes": Column(pl.Int64, "size of the segment", unit="bytes", within=SIZES),
        "allocated_bytes": Column(pl.Int64, "in blocks that tensors use", unit="bytes"),
        "active_bytes": Column(pl.Int64, "in use, or freed and still awaited by a stream", unit="bytes"),
        "requested_bytes": optional(pl.Int64, "in use, as asked for, before rounding", unit="bytes"),
        "largest_free_bytes": Column(pl.Int64, "largest block of it that is free", unit="bytes"),
        "stream": optional(pl.Int64, "stream its blocks belong to"),
        "is_large": Column(pl.Boolean, "serves requests over 1 MiB"),
        "is_expandable": Column(pl.Boolean, "grows by mapping pages (expandable_segments)"),
        "is_private": Column(pl.Boolean, "belongs to a private pool, such as a captured graph's"),
    },
    sorted_by=("rank", "device", "address"),
)

MEMORY_BLOCKS = Table(
    "memory_blocks",
    "One row per block of a segment when the snapshot was taken, in use or free.",
    {
        "rank": RANK,
        "device": Column(pl.Int32, "GPU ordinal"),
        "segment": Column(pl.UInt64, "address of its segment", refers_to="memory_segments.address"),
        "address": Column(pl.UInt64, "address of the block"),
        "bytes": Column(pl.Int64, "size of the block", unit="bytes", within=SIZES),
        "requested_bytes": Column(pl.Int64, "what was asked for; 0 where it is free", unit="bytes"),
        "state": Column(BlockState, "whether a tensor uses it, a stream still awaits it, or it is free"),
        "stack": optional(pl.Categorical(), "call stack of the allocation, innermost first, separated by ';'"),
    },
    sorted_by=("rank", "device", "address"),
)

MEMORY_MARKS = Table(
    "memory_marks",
    "One row per annotation in a memory snapshot (record_function), such as `Optimizer.step#AdamW.step`.",
    {
        "rank": RANK,
        "device": Column(pl.Int32, "GPU ordinal"),
        "name": NAME,
        "start_ns": START,
        "end_ns": END,
    },
    sorted_by=("rank", "device", "start_ns", "end_ns"),
)
