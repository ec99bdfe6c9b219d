"""What GPUs there are, what ran on them, and what a kernel profiler says of single launches and their counters."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import (
    BLOCKS,
    CLOCK,
    CORRELATION,
    DEVICE,
    END,
    EXTERNAL_ID,
    NAME,
    PROCESS,
    RANK,
    SIZES,
    START,
    THREADS,
    TIME,
    Column,
    Table,
    optional,
)

OpKind = pl.Enum(["kernel", "copy", "set", "graph"])
CopyKind = pl.Enum(["h2d", "d2h", "d2d", "h2h", "p2p", "unknown"])
MemoryKind = pl.Enum(["pageable", "pinned", "device", "array", "managed", "unknown"])
SyncKind = pl.Enum(["device", "stream", "event", "stream_wait_event", "unknown"])

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
        "memory_bytes": optional(pl.Int64, "device memory", "bytes", SIZES),
        "bandwidth_bytes_per_s": optional(pl.Float64, "peak DRAM bandwidth the file states", "bytes/s", SIZES),
        "l2_bytes": optional(pl.Int64, "L2 cache", "bytes", SIZES),
        "clock_hz": optional(pl.Int64, "maximum SM clock", "Hz", (0, 1 << 40)),
    },
    sorted_by=("rank", "device"),
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
        "start_ns": START,
        "end_ns": END,
        "correlation": CORRELATION,
        "external_id": EXTERNAL_ID,
        "graph_id": optional(pl.Int64, "executable graph this op was replayed from"),
        "graph_node_id": optional(pl.Int64, "node of that graph"),
        "bytes": optional(pl.Int64, "bytes copied or set", "bytes", SIZES),
        "copy_kind": optional(CopyKind, "direction of a copy"),
        "src_memory": optional(MemoryKind, "kind of memory a copy reads"),
        "dst_memory": optional(MemoryKind, "kind of memory a copy writes, or a memset sets"),
        "grid_x": optional(pl.Int32, "blocks along x", within=BLOCKS),
        "grid_y": optional(pl.Int32, "blocks along y", within=BLOCKS),
        "grid_z": optional(pl.Int32, "blocks along z", within=BLOCKS),
        "block_x": optional(pl.Int32, "threads of a block along x", within=THREADS),
        "block_y": optional(pl.Int32, "threads of a block along y", within=THREADS),
        "block_z": optional(pl.Int32, "threads of a block along z", within=THREADS),
        "registers": optional(pl.Int32, "registers per thread", within=(0, 1_024)),
        "shared_memory_bytes": optional(pl.Int64, "static and dynamic shared memory of a block", "bytes", SIZES),
    },
    sorted_by=("rank", "device", "start_ns", "end_ns"),
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
        "grid_x": optional(pl.Int32, "blocks along x", within=BLOCKS),
        "grid_y": optional(pl.Int32, "blocks along y", within=BLOCKS),
        "grid_z": optional(pl.Int32, "blocks along z", within=BLOCKS),
        "block_x": optional(pl.Int32, "threads of a block along x", within=THREADS),
        "block_y": optional(pl.Int32, "threads of a block along y", within=THREADS),
        "block_z": optional(pl.Int32, "threads of a block along z", within=THREADS),
    },
    sorted_by=("rank", "process", "thread", "recorded_ns"),
)

SYNCS = Table(
    "syncs",
    "One row per synchronisation that the profiler recorded beside the API call that asked for it.",
    {
        "rank": RANK,
        "process": PROCESS,
        "device": optional(pl.Int32, "GPU ordinal"),
        "context": optional(pl.Int64, "CUDA context id"),
        "stream": optional(pl.Int64, "stream waited for (stream sync) or made to wait (stream_wait_event)"),
        "kind": Column(SyncKind, "what was waited for"),
        "start_ns": START,
        "end_ns": END,
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
        "device": optional(pl.Int32, "GPU ordinal, where the device work was found"),
        "stream": optional(pl.Int64, "stream of the device work"),
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
            pl.Int64, "start of its device op; of the host call where no device op was found", unit="ns", within=CLOCK
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
        "grid_x": optional(pl.Int32, "blocks along x", within=BLOCKS),
        "grid_y": optional(pl.Int32, "blocks along y", within=BLOCKS),
        "grid_z": optional(pl.Int32, "blocks along z", within=BLOCKS),
        "block_x": optional(pl.Int32, "threads of a block along x", within=THREADS),
        "block_y": optional(pl.Int32, "threads of a block along y", within=THREADS),
        "block_z": optional(pl.Int32, "threads of a block along z", within=THREADS),
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
