"""The tables of an Nsight Systems export that are read, with the columns wanted of each: NVIDIA's schema, 2021 to 2026.

Readers take them, and a redacted copy keeps them.
"""

from collections.abc import Mapping
from typing import Final, Literal

from timesink.records import Record

ColumnKind = Literal["int64", "int32", "real", "text"]


class ExportTable(Record, eq=False):
    """One table of the export and the columns wanted of it. Rows in which a `required` column is null are damaged."""

    name: str
    columns: Mapping[str, ColumnKind]
    required: tuple[str, ...] = ()


def _table(
    name: str, int64: str = "", *, int32: str = "", real: str = "", text: str = "", required: str = ""
) -> ExportTable:
    """The table of that name, with its wanted columns by the kind of their values."""
    by_kind: tuple[tuple[ColumnKind, str], ...] = (("int64", int64), ("int32", int32), ("real", real), ("text", text))
    kinds: dict[str, ColumnKind] = {column: kind for kind, columns in by_kind for column in columns.split()}
    return ExportTable(name, kinds, tuple(required.split()))


# Two may read other columns of one table.
# fmt: off
KERNELS: Final = _table(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "start end contextId streamId correlationId globalPid demangledName staticSharedMemory dynamicSharedMemory "
    "graphNodeId graphId", int32="deviceId registersPerThread gridX gridY gridZ blockX blockY blockZ",
    required="start end",
)
COPIES: Final = _table(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "start end contextId streamId correlationId globalPid bytes copyKind srcKind dstKind migrationCause graphNodeId",
    int32="deviceId", required="start end",
)
SETS: Final = _table(
    "CUPTI_ACTIVITY_KIND_MEMSET", "start end contextId streamId correlationId globalPid bytes memKind graphNodeId",
    int32="deviceId", required="start end",
)
GRAPHS: Final = _table(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start end contextId streamId correlationId globalPid graphId graphExecId",
    int32="deviceId", required="start end",
)
SYNCHRONISATIONS: Final = _table(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "start end contextId streamId correlationId globalPid syncType deprecatedSyncType eventId eventSyncId",
    int32="deviceId", required="start end",
)
CUDA_EVENTS: Final = _table(
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "contextId streamId correlationId globalPid eventId eventSyncId",
    int32="deviceId", required="streamId eventId",
)
CALLS: Final = _table(
    "CUPTI_ACTIVITY_KIND_RUNTIME", "start end globalTid nameId correlationId", int32="eventClass", required="start end",
)
OS_RUNTIME: Final = _table("OSRT_API", "start end globalTid nameId", int32="eventClass", required="start end")
GRAPH_NODE_EVENTS: Final = _table(
    "CUDA_GRAPH_NODE_EVENTS", "start globalTid graphNodeId originalGraphNodeId", required="start graphNodeId",
)
CUBLAS: Final = _table("CUBLAS_EVENTS", "start end globalTid nameId", required="start end")
CUDNN: Final = _table("CUDNN_EVENTS", "start end globalTid nameId", required="start end")
OVERHEAD: Final = _table("PROFILER_OVERHEAD", "start end globalTid nameId", required="start end")
CUDA_OVERHEAD: Final = _table(
    "CUPTI_ACTIVITY_KIND_OVERHEAD", "start end globalTid nameId correlationId overheadType", required="start end",
)
NVTX: Final = _table(
    "NVTX_EVENTS", "start end globalTid textId domainId category color uint64Value int64Value uint32Value int32Value",
    int32="eventType", real="doubleValue floatValue", text="text", required="start eventType",
)
MPI: Final = (
    _table("MPI_P2P_EVENTS", "start end globalTid textId", required="start"),
    _table("MPI_COLLECTIVES_EVENTS", "start end globalTid textId", required="start"),
    _table("MPI_START_WAIT_EVENTS", "start end globalTid textId", required="start"),
    _table("MPI_OTHER_EVENTS", "start end globalTid textId", required="start"),
)
MPI_RANKS: Final = _table("MPI_RANKS", "globalTid", int32="rank", required="globalTid rank")
SCHEDULING: Final = _table(
    "SCHED_EVENTS", "start globalTid threadState", int32="isSchedIn", required="start globalTid isSchedIn",
)
CPU_SAMPLES: Final = _table("COMPOSITE_EVENTS", "id start globalTid", required="id start globalTid")
SAMPLE_CHAINS: Final = _table(
    "SAMPLING_CALLCHAINS", "id symbol module stackDepth unresolved", required="id symbol stackDepth",
)
CALL_CHAINS: Final = _table(
    "CUDA_CALLCHAINS", "id symbol module stackDepth unresolved", required="id symbol stackDepth",
)
CALL_STACKS: Final = _table("CUPTI_ACTIVITY_KIND_RUNTIME", "start globalTid callchainId", required="start")
PYTHON_STACKS: Final = _table(
    "NVTX_EVENTS", "start globalTid jsonTextId", int32="eventType", text="jsonText", required="start eventType",
)
PYTHON_SCHEMAS: Final = _table("NVTX_PAYLOAD_SCHEMAS", text="name")
THREAD_NAMES: Final = _table("ThreadNames", "globalTid nameId priority", required="globalTid")
MEMORY_USAGE: Final = _table(
    "CUDA_GPU_MEMORY_USAGE_EVENTS", "start globalPid address bytes memKind memoryOperationType streamId",
    int32="deviceId", required="start bytes",
)
GPUS: Final = _table(
    "TARGET_INFO_GPU", "l2CacheSize totalMemory memoryBandwidth clockRate",
    int32="id cuDevice smCount computeMajor computeMinor", text="name", required="id",
)
CUDA_GPUS: Final = _table(
    "TARGET_INFO_CUDA_GPU", "l2CacheSize",  # of memory and clocks the unit differs from version to version
    int32="deviceId numMultiprocessors computeCapabilityMajor computeCapabilityMinor", text="name", required="deviceId",
)
CUDA_DEVICES: Final = _table("TARGET_INFO_CUDA_DEVICE", "pid", int32="gpuId cudaId", required="gpuId cudaId pid")
METRIC_NAMES: Final = _table(
    "TARGET_INFO_GPU_METRICS", "typeId metricId", text="metricName", required="typeId metricId",
)
METRICS: Final = _table(
    "GPU_METRICS", "timestamp typeId metricId", real="value", required="timestamp typeId metricId value",
)
STRINGS: Final = _table("StringIds", "id", text="value", required="id")
SESSION_START: Final = _table("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
DIAGNOSTICS: Final = _table("DIAGNOSTIC_EVENT", "severity", text="text")
EXPORT_META: Final = (
    _table("META_DATA_EXPORT", text="name value", required="name"),
    _table("EXPORT_META_DATA", text="name value", required="name"),
)
CAPTURE_META: Final = _table("META_DATA_CAPTURE", text="name value", required="name")
SYSTEM_INFO: Final = _table("TARGET_INFO_SYSTEM_ENV", text="name value", required="name")
MEMORY_KINDS: Final = _table("ENUM_CUDA_MEM_KIND", "id", text="name label", required="id")
COPY_KINDS: Final = _table("ENUM_CUDA_MEMCPY_OPER", "id", text="name label", required="id")
SYNC_KINDS: Final = _table("ENUM_CUPTI_SYNC_TYPE", "id", text="name label", required="id")
OVERHEAD_TYPES: Final = _table("ENUM_CUPTI_OVERHEAD_TYPE", "id", text="name label", required="id")
MEMORY_ACTIONS: Final = _table("ENUM_CUDA_DEV_MEM_EVENT_OPER", "id", text="name label", required="id")
SCHEDULER_STATES: Final = _table("ENUM_SAMPLING_THREAD_STATE", "id", text="name label", required="id")
EVENT_TYPES: Final = _table("ENUM_NSYS_EVENT_TYPE", "id", text="name label", required="id")
DECLARED: Final = (
    KERNELS, COPIES, SETS, GRAPHS, SYNCHRONISATIONS, CUDA_EVENTS, CALLS, OS_RUNTIME, GRAPH_NODE_EVENTS, CUBLAS,
    CUDNN, OVERHEAD, CUDA_OVERHEAD, NVTX, *MPI, MPI_RANKS, SCHEDULING, CPU_SAMPLES, SAMPLE_CHAINS, CALL_CHAINS,
    CALL_STACKS, PYTHON_STACKS, PYTHON_SCHEMAS, THREAD_NAMES, MEMORY_USAGE, GPUS, CUDA_GPUS, CUDA_DEVICES, METRIC_NAMES,
    METRICS, STRINGS, SESSION_START, DIAGNOSTICS, *EXPORT_META, CAPTURE_META, SYSTEM_INFO, MEMORY_KINDS,
    COPY_KINDS, SYNC_KINDS, OVERHEAD_TYPES, MEMORY_ACTIONS, SCHEDULER_STATES, EVENT_TYPES,
)
# fmt: on
"""Every table that is read."""
