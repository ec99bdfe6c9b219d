"""What is read from an Nsight Systems export, and what becomes of damaged rows.

The column names are those of NVIDIA's export schema, 2021 to 2026. Any table and any column may be missing: tables are
created when their first event is, and every release adds columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge import profiler_texts
from timesink.model.trace import ImportNote, NoteKind, noted
from timesink.startup import dataclass

ColumnKind = Literal["int64", "int32", "real", "text"]

POLARS_TYPE: Mapping[str, type[pl.DataType]] = {
    "int64": pl.Int64, "int32": pl.Int32, "real": pl.Float64, "text": pl.String,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ExportTable:
    """One table of the export and the columns wanted of it. Rows in which a `required` column is null are damaged."""

    name: str
    columns: Mapping[str, ColumnKind]
    required: tuple[str, ...] = ()


RowFilter = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Keep:
    """`rows` takes the wanted rows out of a batch, which has those of the source's columns that the export has. A row
    for which `outside` (SQL, empty for none) is true is not wanted; it must not be true for a value of another type.
    """

    rows: RowFilter
    outside: str = ""


class Export(Protocol):
    """A readable export. `notes` collects what was lost; it grows while tables are read."""

    @property
    def path(self) -> Path:
        """The file or folder, as it was named."""

    @property
    def tables(self) -> Mapping[str, frozenset[str]]:
        """Names of the readable tables, with the columns that each has."""

    @property
    def notes(self) -> list[ImportNote]:
        """What could not be read."""

    def read(self, source: ExportTable, keep: Keep | None = None) -> pl.DataFrame:
        """All rows or those to keep, with exactly the wanted columns: those that the export lacks are null."""


DECLARED: list[ExportTable] = []
"""Every table that is read; two may read other columns of one."""


def _source(name: str, columns: str) -> ExportTable:
    """A table that is read. ``end`` is a column of 64-bit numbers, ``deviceId:int32`` one of another kind, and a row
    without a value in ``start!`` is damaged."""
    kinds: dict[str, ColumnKind] = {}
    for word in columns.split():
        column, _, kind = word.rstrip("!").partition(":")
        kinds[column] = kind or "int64"  # type: ignore[assignment]
    required = tuple(word.rstrip("!").partition(":")[0] for word in columns.split() if word.endswith("!"))
    DECLARED.append(ExportTable(name, kinds, required))
    return DECLARED[-1]


_WORK = "start! end! contextId streamId correlationId globalPid deviceId:int32"
_NAMED_CALL = "start! end! globalTid nameId"
_CHAIN = "id! symbol! module stackDepth! unresolved"
_PAIRS = "name:text! value:text"

KERNELS = _source(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    f"{_WORK} demangledName staticSharedMemory dynamicSharedMemory graphNodeId graphId registersPerThread:int32 "
    "gridX:int32 gridY:int32 gridZ:int32 blockX:int32 blockY:int32 blockZ:int32",
)
COPIES = _source("CUPTI_ACTIVITY_KIND_MEMCPY", f"{_WORK} bytes copyKind srcKind dstKind migrationCause graphNodeId")
SETS = _source("CUPTI_ACTIVITY_KIND_MEMSET", f"{_WORK} bytes memKind graphNodeId")
GRAPHS = _source("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", f"{_WORK} graphId graphExecId")
SYNCHRONISATIONS = _source(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", f"{_WORK} syncType deprecatedSyncType eventId eventSyncId"
)
CUDA_EVENTS = _source(
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "contextId streamId! correlationId globalPid eventId! eventSyncId deviceId:int32"
)
CALLS = _source("CUPTI_ACTIVITY_KIND_RUNTIME", f"{_NAMED_CALL} correlationId eventClass:int32")
OS_RUNTIME = _source("OSRT_API", f"{_NAMED_CALL} eventClass:int32")
GRAPH_NODE_EVENTS = _source("CUDA_GRAPH_NODE_EVENTS", "start! globalTid graphNodeId! originalGraphNodeId")
CUBLAS = _source("CUBLAS_EVENTS", _NAMED_CALL)
CUDNN = _source("CUDNN_EVENTS", _NAMED_CALL)
OVERHEAD = _source("PROFILER_OVERHEAD", _NAMED_CALL)
CUDA_OVERHEAD = _source("CUPTI_ACTIVITY_KIND_OVERHEAD", f"{_NAMED_CALL} correlationId overheadType")
NVTX = _source(
    "NVTX_EVENTS",
    "start! end globalTid textId domainId category color uint64Value int64Value uint32Value int32Value "
    "eventType:int32! doubleValue:real floatValue:real text:text",
)
MPI = tuple(
    _source(f"MPI_{kind}_EVENTS", "start! end globalTid textId")
    for kind in ("P2P", "COLLECTIVES", "START_WAIT", "OTHER")
)
MPI_RANKS = _source("MPI_RANKS", "globalTid! rank:int32!")
SCHEDULING = _source("SCHED_EVENTS", "start! globalTid! threadState isSchedIn:int32!")
CPU_SAMPLES = _source("COMPOSITE_EVENTS", "id! start! globalTid!")
SAMPLE_CHAINS = _source("SAMPLING_CALLCHAINS", _CHAIN)
CALL_CHAINS = _source("CUDA_CALLCHAINS", _CHAIN)
CALL_STACKS = _source(CALLS.name, "start! globalTid callchainId")
PYTHON_STACKS = _source(NVTX.name, "start! globalTid jsonTextId eventType:int32! jsonText:text")
PYTHON_SCHEMAS = _source("NVTX_PAYLOAD_SCHEMAS", "name:text")
THREAD_NAMES = _source("ThreadNames", "globalTid! nameId priority")
MEMORY_USAGE = _source(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "start! globalPid address bytes! memKind memoryOperationType streamId deviceId:int32",
)
GPUS = _source(
    "TARGET_INFO_GPU",
    "id:int32! l2CacheSize totalMemory memoryBandwidth clockRate cuDevice:int32 smCount:int32 computeMajor:int32 "
    "computeMinor:int32 name:text",
)
CUDA_DEVICES = _source("TARGET_INFO_CUDA_DEVICE", "gpuId:int32! cudaId:int32! pid!")
METRIC_NAMES = _source("TARGET_INFO_GPU_METRICS", "typeId! metricId! metricName:text")
METRICS = _source("GPU_METRICS", "timestamp! typeId! metricId! value:real!")
STRINGS = _source("StringIds", "id! value:text")
SESSION_START = _source("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
DIAGNOSTICS = _source("DIAGNOSTIC_EVENT", "severity text:text")
EXPORT_META = tuple(_source(name, _PAIRS) for name in ("META_DATA_EXPORT", "EXPORT_META_DATA"))
CAPTURE_META = _source("META_DATA_CAPTURE", _PAIRS)
SYSTEM_INFO = _source("TARGET_INFO_SYSTEM_ENV", _PAIRS)
MEMORY_KINDS, COPY_KINDS, SYNC_KINDS, OVERHEAD_TYPES, MEMORY_ACTIONS, SCHEDULER_STATES, EVENT_TYPES = (
    _source(f"ENUM_{name}", "id! name:text label:text")
    for name in (
        "CUDA_MEM_KIND", "CUDA_MEMCPY_OPER", "CUPTI_SYNC_TYPE", "CUPTI_OVERHEAD_TYPE", "CUDA_DEV_MEM_EVENT_OPER",
        "SAMPLING_THREAD_STATE", "NSYS_EVENT_TYPE",
    )
)  # fmt: skip

DEVICE_WORK = (KERNELS, COPIES, SETS, GRAPHS)
KNOWN = frozenset(source.name for source in DECLARED)
# Without these a trace would look idle, or its kernels nameless, where it is only unreadable.
INDISPENSABLE = frozenset(source.name for source in (*DEVICE_WORK, CALLS, STRINGS))
EVENT_TABLE = re.compile(profiler_texts.EVENT_TABLE)
EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"


def unread_note(tables: Sequence[str]) -> tuple[ImportNote, ...]:
    """One note that names the event tables which hold rows and have no place in the canonical tables."""
    shown = ", ".join(tables[:8]) + (f" and {len(tables) - 8} more" if len(tables) > 8 else "")
    return noted(NoteKind.SKIPPED, f"tables with events that are not read: {shown}", len(tables))


def readable(path: Path, source: ExportTable, columns: frozenset[str], notes: list[ImportNote]) -> bool:
    """Whether the table can be read at all. `UnreadableTrace` where it holds GPU work or CUDA calls and cannot."""
    if not columns:
        return False
    lacking = ", ".join(name for name in source.required if name not in columns)
    if lacking and source.name in INDISPENSABLE:
        raise UnreadableTrace(path, f"no column {lacking}", place=f"table {source.name}", remedy=EXPORT_AGAIN)
    if lacking:
        message = f"table {source.name} has no column {lacking}, so it was not read"
        notes.append(ImportNote(NoteKind.DATA_LOSS, message, 0, source.name))
    return not lacking and any(name in columns for name in source.columns)


def no_rows(source: ExportTable) -> pl.DataFrame:
    """No rows, with the wanted columns."""
    return pl.DataFrame(schema={name: POLARS_TYPE[kind] for name, kind in source.columns.items()})


def with_absent(frame: pl.DataFrame, source: ExportTable) -> pl.DataFrame:
    """The rows with the wanted columns that the export lacks, null."""
    absent = [name for name in source.columns if name not in frame.columns]
    return frame.with_columns(pl.lit(None, dtype=POLARS_TYPE[source.columns[name]]).alias(name) for name in absent)


def kept_rows(frame: pl.DataFrame, source: ExportTable, keep: Keep | None) -> pl.DataFrame:
    """The rows to keep of a part of the table, whose columns may be fewer than the source's."""
    return frame if keep is None else keep.rows(with_absent(frame, source)).select(frame.columns)


def complete_columns(frame: pl.DataFrame, source: ExportTable, notes: list[ImportNote]) -> pl.DataFrame:
    """Exactly the wanted columns, absent ones null; rows without a required value are left out and counted."""
    frame = with_absent(frame, source).select(*source.columns)
    if not source.required or not frame.height:
        return frame
    sound = frame.drop_nulls(source.required)
    message = f"rows of {source.name} without a usable {' or '.join(source.required)}"
    notes.extend(noted(NoteKind.DATA_LOSS, message, frame.height - sound.height, source.name))
    return sound


def spoiled_note(source: ExportTable, count: int) -> tuple[ImportNote, ...]:
    """The note for cells that hold something else than their column should."""
    message = f"cells of {source.name} that do not hold what their column should, read as missing"
    return noted(NoteKind.DATA_LOSS, message, count, source.name)
