"""The canonical tables of what is read beside the profile of a run: kernels profiled one by one, and compilations."""

from __future__ import annotations

from typing import Final

import polars as pl

from timesink.model.schema import NAME, PROCESS, RANK, SHAPE, SPAN, Column, Table, optional

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
        **SHAPE,
        "compute_major": optional(pl.Int32, "compute capability, major"),
        "compute_minor": optional(pl.Int32, "compute capability, minor"),
        "gpu": optional(pl.Categorical(), "product name of the GPU; untrusted text"),
        "duration_ns": optional(
            pl.Float64, "time of the launch while profiled; NaN where its pass failed", "ns", (0, 1e18)
        ),
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
        "text": optional(pl.Categorical(), "value of a text metric; of executed opcodes `OPCODE: count; ...`"),
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

CompileEvent = pl.Enum(
    [
        "compile", "graph_break", "recompile", "failure", "skipped", "limit", "cache_hit", "cache_miss",
        "cache_bypass", "phase", "guards", "perf_hint",
    ]
)  # fmt: skip

COMPILE_EVENTS = Table(
    "compile_events",
    "One row per thing that happened while PyTorch compiled (TORCH_TRACE, TORCH_LOGS).",
    {
        "rank": RANK,
        "process": PROCESS,
        "event": Column(
            CompileEvent,
            "compile: one attempt's or frame's compilation; graph_break; recompile: a guard failed; failure: the frame "
            "runs eagerly; skipped: nothing in it to compile; limit: compiled too often, runs eagerly from now on; "
            "phase: a timed part of a compilation",
        ),
        "frame": optional(pl.Int32, "number of the Python frame, as the compiler counts them"),
        "compilation": optional(pl.Int32, "how often that frame had been compiled before: 0 is the first time"),
        "attempt": optional(pl.Int32, "attempts of one compilation, restarts at graph breaks included"),
        "function": optional(pl.Categorical(), "the function compiled, or the phase's or the cache's name; untrusted"),
        "file": optional(pl.Categorical(), "source file of the function, or of the graph break; untrusted text"),
        "line": optional(pl.Int32, "line in that file"),
        "reason": optional(pl.String, "why, in the compiler's words: a break's reason, the guard that failed"),
        "guards": optional(pl.Int32, "guards that are checked before the compiled code may run"),
        "graph_ops": optional(pl.Int32, "operators in the graph"),
        **SPAN,
    },
    sorted_by=("rank", "process", "start_ns", "end_ns"),
)

GENERATED_KERNELS = Table(
    "generated_kernels",
    "One row per line of the program that a call of a kernel in a compiled graph's code computes (TORCH_TRACE).",
    {
        "rank": RANK,
        "process": PROCESS,
        "graph": optional(pl.Categorical(), "key of the graph, as the profiler's range around its call says it"),
        "kernel": Column(pl.Categorical(), "name of the generated kernel, or of the library's after extern_kernels"),
        "call": Column(pl.Int32, "number of the call in the code of the graph; 1 is the first"),
        "stack": optional(
            pl.Categorical(), "frames 'file(line): function', innermost first, separated by ';'; untrusted text"
        ),
    },
    sorted_by=("rank", "process"),
)

COMPANIONS: Final = (KERNEL_PROFILES, KERNEL_METRICS, KERNEL_RULES, COMPILE_EVENTS, GENERATED_KERNELS)
