"""What a kernel profiler (Nsight Compute) says of single launches: the launch, its counters, its own rule messages."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import Column, Table
from timesink.model.tables.columns import NAME, PROCESS, RANK, optional

ClockControl = pl.Enum(["locked_base", "unlocked", "lock_failed"])

PROFILE = Column(pl.Int32, "number of the profiled launch in report order, from 0", refers_to="kernel_profiles.profile")

KERNEL_PROFILES = Table(
    "kernel_profiles",
    "One row per profiled launch of a kernel, in report order.",
    {
        "rank": RANK,
        "profile": Column(pl.Int32, "number of the launch in its report, from 0"),
        "process": PROCESS,
        "device": optional(pl.Int32, "GPU ordinal as the profiled process numbers it"),
        "name": Column(pl.Categorical(), "demangled name with template arguments; untrusted text"),
        "function": optional(pl.Categorical(), "name without template arguments and parameters"),
        "context": optional(pl.Int64, "CUDA context id"),
        "stream": optional(pl.Int64, "CUDA stream id"),
        "grid_x": optional(pl.Int32, "blocks along x"),
        "grid_y": optional(pl.Int32, "blocks along y"),
        "grid_z": optional(pl.Int32, "blocks along z"),
        "block_x": optional(pl.Int32, "threads of a block along x"),
        "block_y": optional(pl.Int32, "threads of a block along y"),
        "block_z": optional(pl.Int32, "threads of a block along z"),
        "compute_major": optional(pl.Int32, "compute capability, major"),
        "compute_minor": optional(pl.Int32, "compute capability, minor"),
        "gpu": optional(pl.Categorical(), "product name of the GPU; untrusted text"),
        "duration_ns": optional(pl.Float64, "time of the launch while profiled; NaN where its pass failed", unit="ns"),
        "clock_control": optional(ClockControl, "whether the profiler held the clock at base while it measured"),
        "nvtx": optional(pl.Categorical(), "NVTX ranges around the launch, outermost first, joined by '/'"),
        "tool_version": optional(pl.Categorical(), "version of the profiler"),
        "cuda_version": optional(pl.Categorical(), "CUDA version of the driver, as the report says it"),
        "driver_version": optional(pl.Categorical(), "display driver version"),
        "command": optional(pl.Categorical(), "command line of the profiler, as recorded; may hold secrets"),
        "metrics": Column(pl.Int32, "metrics the report holds for the launch"),
        "failed_metrics": Column(pl.Int32, "of these, NaN: their pass failed"),
    },
    sorted_by=("rank", "profile"),
)

KERNEL_METRICS = Table(
    "kernel_metrics",
    "One row per metric of a profiled launch, in the metric's base unit (ns, bytes, Hz, %).",
    {
        "rank": RANK,
        "profile": PROFILE,
        "metric": NAME,
        "unit": optional(pl.Categorical(), "base unit as timesink spells it; null where the report states none"),
        "value": optional(pl.Float64, "number; NaN where the pass failed, null for a text or an instanced metric"),
        "text": optional(pl.Categorical(), "value of a text metric"),
    },
)

KERNEL_RULES = Table(
    "kernel_rules",
    "One row per message of the profiler's own rules.",
    {
        "rank": RANK,
        "profile": PROFILE,
        "rule": Column(pl.Categorical(), "identifier of the rule, such as CPIStall"),
        "section": optional(pl.Categorical(), "identifier of the section it belongs to"),
        "kind": optional(pl.Categorical(), "ok, optimization, warning, error or none"),
        "title": optional(pl.String, "headline; untrusted text"),
        "message": optional(pl.String, "text with the profiler's markup removed; untrusted text"),
        "speedup_kind": optional(pl.Categorical(), "local (of the section) or global (of the kernel)"),
        "speedup_percent": optional(pl.Float64, "the profiler's own estimate; not additive, not a bound", unit="%"),
    },
)
