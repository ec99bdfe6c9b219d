"""What the host did: framework operators, CUDA calls, ranges, Python frames, operating-system calls, compilations."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import CORRELATION, END, NAME, PROCESS, RANK, START, THREAD, TIME, Column, Table, optional

RangeKind = pl.Enum(["push_pop", "start_end"])

API_CALLS = Table(
    "api_calls",
    "One row per call into the CUDA or HIP runtime or driver.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": THREAD,
        "name": NAME,
        "start_ns": START,
        "end_ns": END,
        "correlation": Column(
            pl.Int64, "links the call to the device work it caused, within one process", nullable=True
        ),
    },
    sorted_by=("rank", "process", "thread", "start_ns", "end_ns"),
)

HOST_OPS = Table(
    "host_ops",
    "One row per framework operator (PyTorch cpu_op), nested ones included.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": THREAD,
        "name": NAME,
        "start_ns": START,
        "end_ns": END,
        "external_id": Column(pl.UInt64, "id that device_ops.external_id refers to", nullable=True),
        "sequence_number": optional(pl.Int64, "links a forward operator to its backward one"),
        "forward_thread": optional(pl.Int64, "profiler's number of the thread that ran the forward operator"),
        "input_shapes": optional(pl.Categorical(), "JSON text of the input dimensions"),
        "input_dtypes": optional(pl.Categorical(), "JSON text of the input types"),
        "input_strides": optional(pl.Categorical(), "JSON text of the input strides"),
        "concrete_inputs": optional(pl.Categorical(), "JSON text of scalar inputs"),
        "call_stack": optional(pl.Categorical(), "Python stack, innermost first, frames separated by ';'"),
    },
    sorted_by=("rank", "process", "thread", "start_ns", "end_ns"),
)

RANGES = Table(
    "ranges",
    "One row per NVTX or user range on the host (record_function, ProfilerStep, torch.cuda.nvtx).",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": THREAD,
        "domain": optional(pl.Categorical(), "NVTX domain; null for the default domain and for PyTorch's own ranges"),
        "name": NAME,
        "start_ns": START,
        "end_ns": END,
        "kind": Column(RangeKind, "push_pop ranges nest on a thread; start_end ranges may cross"),
        "depth": Column(pl.Int32, "how many ranges of the thread enclose it; 0 is outermost"),
        "category": optional(pl.Categorical(), "NVTX category: its name, or its number where it has none"),
        "color": optional(pl.Int64, "NVTX colour, ARGB"),
        "payload": optional(pl.Float64, "NVTX payload, the number that the program attached"),
    },
    sorted_by=("rank", "process", "thread", "start_ns", "end_ns"),
)

FRAMES = Table(
    "frames",
    "One row per Python function call (with_stack=True).",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": THREAD,
        "name": NAME,
        "file": optional(pl.Categorical(), "source file; untrusted text"),
        "line": optional(pl.Int32, "line of the function's definition"),
        "call_line": optional(pl.Int32, "line of the caller that called it; timesink's own captures record it"),
        "start_ns": START,
        "end_ns": END,
        "frame_id": optional(pl.Int64, "profiler's id of the call"),
        "parent_id": optional(pl.Int64, "id of the calling frame"),
    },
    sorted_by=("rank", "process", "thread", "start_ns", "end_ns"),
)

StackKind = pl.Enum(["sample", "call"])

HOST_STACKS = Table(
    "host_stacks",
    "One row per stack that was taken of a host thread: at regular intervals, or where it called CUDA.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": THREAD,
        "time_ns": TIME,
        "kind": Column(StackKind, "sample: taken at regular intervals; call: taken as the thread called CUDA"),
        "stack": Column(
            pl.Categorical(), "frames 'file(line): function', innermost first, separated by ';'; untrusted text"
        ),
    },
    sorted_by=("rank", "process", "thread", "time_ns"),
)

OS_CALLS = Table(
    "os_calls",
    "One row per traced operating-system runtime call.",
    {"rank": RANK, "process": PROCESS, "thread": THREAD, "name": NAME, "start_ns": START, "end_ns": END},
    sorted_by=("rank", "process", "thread", "start_ns", "end_ns"),
)

THREAD_STATES = Table(
    "thread_states",
    "One row per interval in which a thread was scheduled, waiting, or holding or waiting for the GIL.",
    {"rank": RANK, "process": PROCESS, "thread": THREAD, "state": NAME, "start_ns": START, "end_ns": END},
    sorted_by=("rank", "process", "thread", "start_ns", "end_ns"),
)

THREADS = Table(
    "threads",
    "One row per host thread that has a name.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": Column(pl.Int64, "operating-system thread id"),
        "name": Column(pl.String, "name as the profiler wrote it; untrusted text"),
    },
    sorted_by=("rank", "process", "thread"),
)

PROFILER_OVERHEAD = Table(
    "profiler_overhead",
    "One row per interval the profiler spent on itself: buffer requests and flushes, instrumentation.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": optional(pl.Int64, "thread that paid for it, where known"),
        "name": NAME,
        "start_ns": START,
        "end_ns": END,
        "correlation": CORRELATION,
    },
    sorted_by=("rank", "start_ns", "end_ns"),
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
        "start_ns": START,
        "end_ns": END,
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
