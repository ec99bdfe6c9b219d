"""What is read from an Nsight Systems export, which rows of it, and what becomes of damaged ones.

The column names are those of NVIDIA's export schema, 2021 to 2026. Any table and any column may be missing: tables are
created when their first event is, and every release adds columns.

Which rows of a table are wanted for a window is said twice: in SQL, which leaves out what is surely outside and spares
reading it, and as a filter of each batch, which decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge import profiler_texts
from timesink.model.record import dataclass
from timesink.model.trace import ImportNote, NoteKind
from timesink.model.window import touching

ColumnKind = Literal["int64", "int32", "real", "text"]

POLARS_TYPE: Mapping[ColumnKind, type[pl.DataType]] = MappingProxyType(
    {"int64": pl.Int64, "int32": pl.Int32, "real": pl.Float64, "text": pl.String}
)


@dataclass(frozen=True, slots=True, eq=False)
class ExportTable:
    """One table of the export and the columns wanted of it. Rows in which a `required` column is null are damaged."""

    name: str
    columns: Mapping[str, ColumnKind]
    required: tuple[str, ...] = ()


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


def _source(name: str, *, required: str = "", **columns: str) -> ExportTable:
    """`int64=`, `int32=`, `real=` and `text=` list column names, separated by blanks."""
    kinds: dict[str, ColumnKind] = {}
    for kind in POLARS_TYPE:
        kinds.update(dict.fromkeys(columns.get(kind, "").split(), kind))
    return ExportTable(name, MappingProxyType(kinds), tuple(required.split()))


_SPAN = "start end"
_ON_DEVICE = "start end contextId streamId correlationId globalPid"

STRINGS = _source("StringIds", int64="id", text="value", required="id")
KERNELS = _source(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    int64=f"{_ON_DEVICE} demangledName staticSharedMemory dynamicSharedMemory graphNodeId graphId",
    int32="deviceId registersPerThread gridX gridY gridZ blockX blockY blockZ",
    required=_SPAN,
)
COPIES = _source(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    int64=f"{_ON_DEVICE} bytes copyKind srcKind dstKind graphNodeId",
    int32="deviceId",
    required=_SPAN,
)
SETS = _source(
    "CUPTI_ACTIVITY_KIND_MEMSET",
    int64=f"{_ON_DEVICE} bytes memKind graphNodeId",
    int32="deviceId",
    required=_SPAN,
)
GRAPHS = _source(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    int64=f"{_ON_DEVICE} graphId graphExecId",
    int32="deviceId",
    required=_SPAN,
)
SYNCHRONISATIONS = _source(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    int64=f"{_ON_DEVICE} syncType deprecatedSyncType eventId eventSyncId",
    int32="deviceId",
    required=_SPAN,
)
CUDA_EVENTS = _source(
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    int64="contextId streamId correlationId globalPid eventId eventSyncId",
    int32="deviceId",
    required="eventId streamId",
)
CALLS = _source(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    int64="start end globalTid correlationId nameId",
    int32="eventClass",
    required=_SPAN,
)
OS_RUNTIME = _source("OSRT_API", int64="start end globalTid nameId", int32="eventClass", required=_SPAN)
GRAPH_NODE_EVENTS = _source(
    "CUDA_GRAPH_NODE_EVENTS",
    int64="start globalTid graphNodeId originalGraphNodeId",
    required="start graphNodeId",
)
CUBLAS = _source("CUBLAS_EVENTS", int64="start end globalTid nameId", required=_SPAN)
CUDNN = _source("CUDNN_EVENTS", int64="start end globalTid nameId", required=_SPAN)
OVERHEAD = _source("PROFILER_OVERHEAD", int64="start end globalTid nameId", required=_SPAN)
CUDA_OVERHEAD = _source(
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    int64="start end globalTid correlationId nameId overheadType",
    required=_SPAN,
)
NVTX = _source(
    "NVTX_EVENTS",
    int64="start end globalTid textId domainId category color uint64Value int64Value uint32Value int32Value",
    int32="eventType",
    real="doubleValue floatValue",
    text="text",
    required="start eventType",
)
MPI = tuple(
    _source(name, int64="start end globalTid textId", required="start")
    for name in ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
)
MPI_RANKS = _source("MPI_RANKS", int64="globalTid", int32="rank", required="globalTid rank")
SCHEDULING = _source(
    "SCHED_EVENTS",
    int64="start globalTid threadState",
    int32="isSchedIn",
    required="start globalTid isSchedIn",
)
CPU_SAMPLES = _source("COMPOSITE_EVENTS", int64="id start globalTid", required="id start globalTid")
_CHAIN = {"int64": "id symbol module stackDepth unresolved", "required": "id symbol stackDepth"}
SAMPLE_CHAINS = _source("SAMPLING_CALLCHAINS", **_CHAIN)
CALL_CHAINS = _source("CUDA_CALLCHAINS", **_CHAIN)
CALL_STACKS = _source(CALLS.name, int64="start globalTid callchainId", required="start")
PYTHON_STACKS = _source(
    NVTX.name, int64="start globalTid jsonTextId", int32="eventType", text="jsonText", required="start eventType"
)
PYTHON_SCHEMAS = _source("NVTX_PAYLOAD_SCHEMAS", text="name")
THREAD_NAMES = _source("ThreadNames", int64="globalTid nameId priority", required="globalTid")
MEMORY_USAGE = _source(
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    int64="start globalPid address bytes memKind memoryOperationType streamId",
    int32="deviceId",
    required="start bytes",
)
GPUS = _source(
    "TARGET_INFO_GPU",
    int64="l2CacheSize totalMemory memoryBandwidth clockRate",
    int32="id cuDevice smCount computeMajor computeMinor",
    text="name",
    required="id",
)
CUDA_DEVICES = _source("TARGET_INFO_CUDA_DEVICE", int64="pid", int32="gpuId cudaId", required="gpuId cudaId pid")
METRIC_NAMES = _source(
    "TARGET_INFO_GPU_METRICS", int64="typeId metricId", text="metricName", required="typeId metricId"
)
METRICS = _source(
    "GPU_METRICS",
    int64="timestamp typeId metricId",
    real="value",
    required="timestamp typeId metricId value",
)
SESSION_START = _source("TARGET_INFO_SESSION_START_TIME", int64="utcEpochNs")
DIAGNOSTICS = _source("DIAGNOSTIC_EVENT", int64="severity", text="text")
EXPORT_META = tuple(
    _source(name, text="name value", required="name") for name in ("META_DATA_EXPORT", "EXPORT_META_DATA")
)
CAPTURE_META = _source("META_DATA_CAPTURE", text="name value", required="name")
SYSTEM_INFO = _source("TARGET_INFO_SYSTEM_ENV", text="name value", required="name")


def enum_source(name: str) -> ExportTable:
    """An `ENUM_*` table: number, symbol and label."""
    return _source(name, int64="id", text="name label", required="id")


DEVICE_WORK = (KERNELS, COPIES, SETS, GRAPHS)
EVENT_SOURCES = (
    *DEVICE_WORK,
    SYNCHRONISATIONS,
    CUDA_EVENTS,
    CALLS,
    OS_RUNTIME,
    CUBLAS,
    CUDNN,
    OVERHEAD,
    CUDA_OVERHEAD,
    NVTX,
    *MPI,
    SCHEDULING,
    CPU_SAMPLES,
    MEMORY_USAGE,
    METRICS,
)
OTHER_SOURCES = (
    GRAPH_NODE_EVENTS,
    STRINGS,
    MPI_RANKS,
    SAMPLE_CHAINS,
    CALL_CHAINS,
    PYTHON_SCHEMAS,
    THREAD_NAMES,
    GPUS,
    CUDA_DEVICES,
    METRIC_NAMES,
    SESSION_START,
    DIAGNOSTICS,
    *EXPORT_META,
    CAPTURE_META,
    SYSTEM_INFO,
)
ENUMS = (
    "ENUM_CUDA_MEM_KIND",
    "ENUM_CUDA_MEMCPY_OPER",
    "ENUM_CUPTI_SYNC_TYPE",
    "ENUM_CUPTI_OVERHEAD_TYPE",
    "ENUM_CUDA_DEV_MEM_EVENT_OPER",
    "ENUM_SAMPLING_THREAD_STATE",
    "ENUM_NSYS_EVENT_TYPE",
)
KNOWN = frozenset((*(source.name for source in (*EVENT_SOURCES, *OTHER_SOURCES)), *ENUMS))

EVENT_TABLE = re.compile(profiler_texts.EVENT_TABLE)


def unread_note(tables: Sequence[str]) -> list[ImportNote]:
    """One note that names the event tables which hold rows and have no place in the canonical tables."""
    if not tables:
        return []
    shown = ", ".join(tables[:8]) + (f" and {len(tables) - 8} more" if len(tables) > 8 else "")
    return [ImportNote(NoteKind.SKIPPED, f"tables with events that are not read: {shown}", len(tables))]


RowFilter = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Keep:
    """`rows` takes the wanted rows out of a batch, which has those of the source's columns that the export has. A row
    for which `outside` (SQL, empty for none) is true is not wanted; it must not be true for a value of another type.
    """

    rows: RowFilter
    outside: str = ""


def within(source: ExportTable, start: int, end: int) -> Keep:
    """The rows that touch the half-open window on the export's own clock, and those with no end that begin before it
    closes: nsys writes no end where a range was open when the recording stopped.
    """
    if "timestamp" in source.columns:
        return Keep(lambda batch: batch.filter(_moment("timestamp", start, end)), _not_between("timestamp", start, end))
    if "end" not in source.columns:
        return Keep(lambda batch: batch.filter(_moment("start", start, end)), _not_between("start", start, end))
    touches = touching(start, end, ("start", "end"))
    still_open = pl.col("end").is_null() & (pl.col("start") < end)
    return Keep(lambda batch: batch.filter(touches.fill_null(False) | still_open), outside(start, end))


def outside(start: int, end: int) -> str:
    """SQL that is true for rows whose interval is surely outside. SQLite sorts text after all numbers, so types
    are asked for first.
    """
    integers = "typeof(\"start\") = 'integer' AND typeof(\"end\") = 'integer'"
    return f'{_after("start", end)} OR ({integers} AND "end" <= {start} AND "start" < {start})'


def _not_between(column: str, start: int, end: int) -> str:
    return f'{_after(column, end)} OR (typeof("{column}") = \'integer\' AND "{column}" < {start})'


def _after(column: str, end: int) -> str:
    return f'(typeof("{column}") = \'integer\' AND "{column}" >= {end})'


def _moment(column: str, start: int, end: int) -> pl.Expr:
    return (pl.col(column) >= start) & (pl.col(column) < end)


def turns(start: int, end: int) -> Keep:
    """The scheduling events of the window, and of each thread those around it: an interval is between two events.

    Every batch keeps its own last before and first after, so some more than needed stay.
    """

    def rows(batch: pl.DataFrame) -> pl.DataFrame:
        ordered = batch.with_row_index("row").sort("start", "row")
        before = ordered.filter(pl.col("start") < start).group_by("globalTid").agg(pl.col("row").last())
        after = ordered.filter(pl.col("start") >= end).group_by("globalTid").agg(pl.col("row").first())
        around = pl.concat([before["row"], after["row"]])
        inside = pl.col("start").is_between(start, end, closed="left")
        wanted = batch.with_row_index("row").filter(inside.fill_null(False) | pl.col("row").is_in(around.implode()))
        return wanted.drop("row")

    return Keep(rows)


TEXT_CHARACTERS = 65_536
EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
# Without these a trace would look idle, or its kernels nameless, where it is only unreadable.
INDISPENSABLE = frozenset(source.name for source in (*DEVICE_WORK, CALLS, STRINGS))


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


def kept_rows(frame: pl.DataFrame, source: ExportTable, keep: Keep | None) -> pl.DataFrame:
    """The rows to keep of a part of the table, whose columns may be fewer than the source's."""
    if keep is None:
        return frame
    absent = [name for name in source.columns if name not in frame.columns]
    nulls = (pl.lit(None, dtype=POLARS_TYPE[source.columns[name]]).alias(name) for name in absent)
    return keep.rows(frame.with_columns(nulls)).select(frame.columns)


def complete_columns(frame: pl.DataFrame, source: ExportTable, notes: list[ImportNote]) -> pl.DataFrame:
    """Exactly the wanted columns, absent ones null; rows without a required value are left out and counted."""
    absent = [name for name in source.columns if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None, dtype=POLARS_TYPE[source.columns[name]]).alias(name) for name in absent)
    frame = frame.select(*source.columns)
    if not source.required or not frame.height:
        return frame
    kept_rows = frame.drop_nulls(source.required)
    if lost := frame.height - kept_rows.height:
        message = f"rows of {source.name} without a usable {' or '.join(source.required)}"
        notes.append(ImportNote(NoteKind.DATA_LOSS, message, lost, source.name))
    return kept_rows


def spoiled_note(source: ExportTable, count: int) -> list[ImportNote]:
    """The note for cells that hold something else than their column should."""
    message = f"cells of {source.name} that do not hold what their column should, read as missing"
    return [ImportNote(NoteKind.DATA_LOSS, message, count, source.name)] if count else []
