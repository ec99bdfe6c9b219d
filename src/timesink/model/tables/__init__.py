"""The canonical tables that the profile of a run fills. `ALL` is every table, in the order of the reference pages."""

from __future__ import annotations

from typing import Final

import polars as pl

from timesink.model.schema import (
    CALLER,
    CLOCK,
    CORRELATION,
    DEVICE,
    END,
    EXTERNAL_ID,
    NAME,
    NAMED_SPAN,
    PROCESS,
    RANK,
    SHAPE,
    SIZES,
    SPAN,
    TIME,
    Column,
    Table,
    optional,
)
from timesink.model.tables.companions import COMPANIONS
from timesink.model.tables.companions import COMPILE_EVENTS as COMPILE_EVENTS
from timesink.model.tables.companions import GENERATED_KERNELS as GENERATED_KERNELS
from timesink.model.tables.companions import KERNEL_METRICS as KERNEL_METRICS
from timesink.model.tables.companions import KERNEL_PROFILES as KERNEL_PROFILES
from timesink.model.tables.companions import KERNEL_RULES as KERNEL_RULES
from timesink.model.tables.companions import ClockControl as ClockControl
from timesink.model.tables.companions import CompileEvent as CompileEvent

_BY_THREAD: Final = ("rank", "process", "thread", "start_ns", "end_ns")

SOURCES = Table(
    "sources",
    "One row per input file.",
    {
        "rank": RANK,
        "path": Column(pl.String, "file as it was named on the command line"),
        "format": Column(pl.String, "reader that took it: kineto_json, nsys_sqlite, nsys_arrow, ..."),
        "tool_version": optional(pl.String, "version of the profiler that wrote it"),
        "sha256": optional(pl.String, "digest of the file's bytes, hexadecimal"),
        "size_bytes": optional(pl.Int64, "size of the file on disk", unit="bytes"),
        "clock_origin_ns": optional(
            pl.Int64, "what was added to the file's own times to reach the trace's clock", unit="ns"
        ),
        "start_ns": optional(pl.Int64, "start of the recorded window, where the file says", unit="ns"),
        "end_ns": optional(pl.Int64, "end of the recorded window, where the file says", unit="ns"),
        "host": optional(pl.String, "host name, where recorded"),
        "world_size": optional(pl.Int32, "number of ranks in the job, where recorded"),
    },
)

SETTINGS = Table(
    "settings",
    "One row per setting that a file states and that ranks of one job ought to share.",
    {
        "rank": RANK,
        "name": Column(pl.String, "a library, a driver, an option of the profiler, a variable of an allow-list"),
        "value": Column(pl.String, "its version or value; untrusted text"),
    },
    sorted_by=("rank", "name"),
)

DEVICES = Table(
    "devices",
    "One row per GPU that the file describes or that did work.",
    {
        "rank": RANK,
        "device": DEVICE,
        "name": optional(pl.String, "product name; untrusted text"),
        "compute_major": optional(pl.Int32, "compute capability, major"),
        "compute_minor": optional(pl.Int32, "compute capability, minor"),
        "sm_count": optional(pl.Int32, "streaming multiprocessors", within=(0, 65_536)),
        "memory_bytes": optional(pl.Int64, "GPU memory", "bytes", SIZES),
        "bandwidth_bytes_per_s": optional(pl.Float64, "peak DRAM bandwidth the file states", "bytes/s", SIZES),
        "l2_bytes": optional(pl.Int64, "L2 cache", "bytes", SIZES),
        "clock_hz": optional(pl.Int64, "maximum SM clock", "Hz", (0, 1 << 40)),
    },
    sorted_by=("rank", "device"),
)

OpKind = pl.Enum(["kernel", "copy", "set", "graph"])

CopyKind = pl.Enum(["h2d", "d2h", "d2d", "h2h", "p2p", "unknown"])

MemoryKind = pl.Enum(["pageable", "pinned", "device", "array", "managed", "unknown"])

DEVICE_OPS = Table(
    "device_ops",
    "One row per kernel, copy or memset that ran on a GPU; a CUDA graph traced as a whole is one row of kind graph.",
    {
        "rank": RANK,
        "device": DEVICE,
        "process": PROCESS,
        "context": optional(pl.Int64, "CUDA context id within the process"),
        "stream": Column(pl.Int64, "CUDA stream id within the context; -1 where not recorded"),
        "kind": Column(OpKind, "kernel, copy (memcpy), set (memset), or graph (a whole replay, kernels unknown)"),
        "name": NAME,
        **SPAN,
        "correlation": CORRELATION,
        "external_id": EXTERNAL_ID,
        "graph_id": optional(pl.Int64, "executable graph this op was replayed from"),
        "graph_node_id": optional(pl.Int64, "node of that graph"),
        "bytes": optional(pl.Int64, "bytes copied or set", "bytes", SIZES),
        "copy_kind": optional(CopyKind, "direction of a copy"),
        "src_memory": optional(MemoryKind, "kind of memory a copy reads"),
        "dst_memory": optional(MemoryKind, "kind of memory a copy writes, or a memset sets"),
        **SHAPE,
        "registers": optional(pl.Int32, "registers per thread", within=(0, 1_024)),
        "shared_memory_bytes": optional(pl.Int64, "static and dynamic shared memory of a block", "bytes", SIZES),
    },
    sorted_by=("rank", "device", "start_ns", "end_ns"),
)

API_CALLS = Table(
    "api_calls",
    "One row per call into the CUDA or HIP runtime or driver.",
    {
        **NAMED_SPAN,
        "correlation": Column(pl.Int64, "links the call to the GPU work it caused, within one process", nullable=True),
    },
    sorted_by=_BY_THREAD,
)

HOST_OPS = Table(
    "host_ops",
    "One row per framework operator (PyTorch cpu_op), nested ones included.",
    {
        **NAMED_SPAN,
        "external_id": Column(pl.UInt64, "id that device_ops.external_id refers to", nullable=True),
        "sequence_number": optional(pl.Int64, "links a forward operator to its backward one"),
        "forward_thread": optional(pl.Int64, "profiler's number of the thread that ran the forward operator"),
        "input_shapes": optional(pl.Categorical(), "JSON text of the input dimensions"),
        "input_dtypes": optional(pl.Categorical(), "JSON text of the input types"),
        "input_strides": optional(pl.Categorical(), "JSON text of the input strides"),
        "concrete_inputs": optional(pl.Categorical(), "JSON text of scalar inputs"),
        "call_stack": optional(pl.Categorical(), "Python stack, innermost first, frames separated by ';'"),
    },
    sorted_by=_BY_THREAD,
)

RangeKind = pl.Enum(["push_pop", "start_end"])

RANGES = Table(
    "ranges",
    "One row per NVTX or user range on the CPU (record_function, ProfilerStep, torch.cuda.nvtx).",
    {
        **CALLER,
        "domain": optional(pl.Categorical(), "NVTX domain; null for the default domain and for PyTorch's own ranges"),
        "name": NAME,
        **SPAN,
        "kind": Column(RangeKind, "push_pop ranges nest on a thread; start_end ranges may cross"),
        "depth": Column(pl.Int32, "how many ranges of the thread enclose it; 0 is outermost"),
        "category": optional(pl.Categorical(), "NVTX category: its name, or its number where it has none"),
        "color": optional(pl.Int64, "NVTX colour, ARGB"),
        "payload": optional(pl.Float64, "NVTX payload, the number that the program attached"),
    },
    sorted_by=_BY_THREAD,
)

FRAMES = Table(
    "frames",
    "One row per Python function call (with_stack=True).",
    {
        **CALLER,
        "name": NAME,
        "file": optional(pl.Categorical(), "source file; untrusted text"),
        "line": optional(pl.Int32, "line of the function's definition"),
        "call_line": optional(pl.Int32, "line of the caller that called it; timesink's own captures record it"),
        **SPAN,
        "frame_id": optional(pl.Int64, "profiler's id of the call"),
        "parent_id": optional(pl.Int64, "id of the calling frame"),
    },
    sorted_by=_BY_THREAD,
)

StackKind = pl.Enum(["sample", "call"])

HOST_STACKS = Table(
    "host_stacks",
    "One row per stack that was taken of a CPU thread: at regular intervals, or where it called CUDA.",
    {
        **CALLER,
        "time_ns": TIME,
        "kind": Column(StackKind, "sample: taken at regular intervals; call: taken as the thread called CUDA"),
        "stack": Column(
            pl.Categorical(), "frames 'file(line): function', innermost first, separated by ';'; untrusted text"
        ),
    },
    sorted_by=("rank", "process", "thread", "time_ns"),
)

OS_CALLS = Table("os_calls", "One row per traced operating-system runtime call.", {**NAMED_SPAN}, sorted_by=_BY_THREAD)

THREAD_STATES = Table(
    "thread_states",
    "One row per interval in which a thread was scheduled, waiting, or holding or waiting for the GIL.",
    {**CALLER, "state": NAME, **SPAN},
    sorted_by=_BY_THREAD,
)

THREADS = Table(
    "threads",
    "One row per CPU thread that has a name.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": Column(pl.Int64, "operating-system thread id"),
        "name": Column(pl.String, "name as the profiler wrote it; untrusted text"),
    },
    sorted_by=("rank", "process", "thread"),
)

GRAPH_NODES = Table(
    "graph_nodes",
    "One row per operation that was recorded into a CUDA graph, which runs when the graph is launched.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": Column(pl.Int64, "thread that recorded it"),
        "recorded_ns": Column(
            pl.Int64, "when the call that recorded it ran, on the trace's clock", unit="ns", within=CLOCK
        ),
        "capture": optional(pl.Int32, "number of the capture that recorded it, where the file shows captures"),
        "name": optional(pl.Categorical(), "kernel, where its launch names it; untrusted text"),
        "graph_node_id": optional(pl.Int64, "node that replays it, as in device_ops"),
        **SHAPE,
    },
    sorted_by=("rank", "process", "thread", "recorded_ns"),
)

SyncKind = pl.Enum(["device", "stream", "event", "stream_wait_event", "unknown"])

SYNCS = Table(
    "syncs",
    "One row per synchronization that the profiler recorded beside the API call that asked for it.",
    {
        "rank": RANK,
        "process": PROCESS,
        "device": optional(pl.Int32, "GPU ordinal"),
        "context": optional(pl.Int64, "CUDA context id"),
        "stream": optional(pl.Int64, "stream waited for (stream sync) or made to wait (stream_wait_event)"),
        "kind": Column(SyncKind, "what was waited for"),
        **SPAN,
        "correlation": CORRELATION,
        "event_id": optional(pl.Int64, "CUDA event waited for"),
    },
    sorted_by=("rank", "start_ns", "end_ns"),
)

EVENT_WAITS = Table(
    "event_waits",
    "One row per edge from an event record on one stream to a wait on another.",
    {
        "rank": RANK,
        "process": PROCESS,
        "device": optional(pl.Int32, "GPU ordinal"),
        "context": optional(pl.Int64, "CUDA context id of the waiting stream"),
        "stream": Column(pl.Int64, "stream made to wait"),
        "waited_stream": optional(pl.Int64, "stream the event was recorded on"),
        "event_id": optional(pl.Int64, "CUDA event"),
        "record_correlation": optional(pl.Int64, "correlation of the cudaEventRecord call waited for"),
        "correlation": CORRELATION,
        "start_ns": Column(pl.Int64, "start of the cudaStreamWaitEvent call", unit="ns", within=CLOCK),
    },
    sorted_by=("rank", "start_ns"),
)

COLLECTIVES = Table(
    "collectives",
    "One row per collective or point-to-point operation of one rank.",
    {
        "rank": RANK,
        "process": PROCESS,
        "device": optional(pl.Int32, "GPU ordinal, where the GPU work was found"),
        "stream": optional(pl.Int64, "stream of the GPU work"),
        "correlation": CORRELATION,
        "group": optional(pl.Categorical(), "process group name"),
        "group_ranks": optional(pl.Categorical(), "members of the group, as the profiler wrote them"),
        "group_size": optional(pl.Int32, "number of members", within=(0, 1 << 24)),
        "sequence": optional(pl.Int64, "sequence number within the group"),
        "kind": Column(pl.Categorical(), "allreduce, allgather, reducescatter, alltoall, broadcast, send, recv, ..."),
        "peer": optional(pl.Int32, "rank that is sent to or received from"),
        "in_bytes": optional(pl.Int64, "bytes this rank puts in", "bytes", SIZES),
        "out_bytes": optional(pl.Int64, "bytes this rank gets out", "bytes", SIZES),
        "dtype": optional(pl.Categorical(), "element type"),
        "start_ns": Column(
            pl.Int64, "start of its GPU op; of the CPU call where no GPU op was found", unit="ns", within=CLOCK
        ),
        "end_ns": END,
        "external_id": EXTERNAL_ID,
    },
    sorted_by=("rank", "start_ns", "end_ns"),
)

GPU_METRICS = Table(
    "gpu_metrics",
    "One row per sample of a hardware counter.",
    {
        "rank": RANK,
        "device": DEVICE,
        "name": NAME,
        "time_ns": TIME,
        "value": Column(pl.Float64, "value in the counter's own unit, which stands in its name"),
    },
    sorted_by=("rank", "device", "time_ns"),
)

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

BlockState = pl.Enum(["active", "awaiting_free", "inactive"])

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
    {"rank": RANK, "device": Column(pl.Int32, "GPU ordinal"), "name": NAME, **SPAN},
    sorted_by=("rank", "device", "start_ns", "end_ns"),
)

PROFILER_OVERHEAD = Table(
    "profiler_overhead",
    "One row per interval the profiler spent on itself: buffer requests and flushes, instrumentation.",
    {
        "rank": RANK,
        "process": PROCESS,
        "thread": optional(pl.Int64, "thread that paid for it, where known"),
        "name": NAME,
        **SPAN,
        "correlation": CORRELATION,
    },
    sorted_by=("rank", "start_ns", "end_ns"),
)

_OWN: Final = [table for table in globals().values() if isinstance(table, Table) and table not in COMPANIONS]
ALL: Final[tuple[Table, ...]] = (*_OWN, *COMPANIONS)
