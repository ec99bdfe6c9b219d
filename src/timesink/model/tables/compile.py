"""What the compiler said of itself: compilations, graph breaks, recompilations, caches."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import Column, Table
from timesink.model.tables.columns import END, PROCESS, RANK, START, optional

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
        "start_ns": START,
        "end_ns": END,
    },
    sorted_by=("rank", "process", "start_ns", "end_ns"),
)
