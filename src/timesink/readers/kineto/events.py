"""The host and device tables of a Kineto trace, each from the decoded events of its kind; None where none were
recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from timesink import _native
from timesink.knowledge import profiler_texts
from timesink.knowledge.calls import CAPTURE_BEGIN, CAPTURE_END
from timesink.knowledge.frames import CALL_LINES, PLACE
from timesink.model.names import matches
from timesink.model.record import dataclass
from timesink.model.schema import ColumnValues
from timesink.model.tables import CopyKind, MemoryKind, OpKind, SyncKind
from timesink.readers.kineto.decoded import DecodedTrace
from timesink.startup import regex

# c10::DeviceType of the host; every other type is a GPU with its own ordinal.
CPU_DEVICE_TYPE = 0


def host_ops(decoded: DecodedTrace) -> ColumnValues | None:
    """Framework operators; None where none was recorded."""
    numbers = ("process", "thread", "start_ns", "end_ns", "external_id", "sequence_number", "forward_thread")
    texts = ("name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs", "call_stack")
    return _taken(decoded, "host_ops", numbers, texts)


def api_calls(decoded: DecodedTrace) -> ColumnValues | None:
    """CUDA and HIP calls; None where none was recorded."""
    return _taken(decoded, "api_calls", ("process", "thread", "start_ns", "end_ns", "correlation"), ("name",))


def graph_nodes(decoded: DecodedTrace, calls: pl.DataFrame | None) -> ColumnValues | None:
    """Launches that name their kernel, between the begin and the end of a capture. None where there are none."""
    rows = decoded.tables.get("named_launches")
    if rows is None or not rows.height or calls is None:
        return None
    names = decoded.named(rows.take("name"))
    columns = {name: rows.take(name) for name in ("process", "thread", "start_ns", *_SHAPE)}
    frame = pl.DataFrame({name: column for name, column in columns.items() if column is not None} | {"name": names})
    begun = calls.filter(matches(calls["name"], CAPTURE_BEGIN))["end_ns"].sort().to_numpy()
    ended = calls.filter(matches(calls["name"], CAPTURE_END))["start_ns"].sort().to_numpy()
    recorded = frame["start_ns"].to_numpy()
    number = np.searchsorted(begun, recorded, side="right") - 1
    inside = np.searchsorted(ended, recorded, side="right") <= number  # one more has begun than ended
    frame = frame.with_columns(pl.Series("capture", number, pl.Int32)).filter(pl.Series(inside))
    return {column.name: column for column in frame.rename({"start_ns": "recorded_ns"})} if frame.height else None


_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def overheads(decoded: DecodedTrace) -> ColumnValues | None:
    """Time the profiler spent on itself; None where it did not say."""
    return _taken(decoded, "profiler_overhead", ("process", "thread", "start_ns", "end_ns", "correlation"), ("name",))


def _taken(decoded: DecodedTrace, table: str, numbers: Sequence[str], texts: Sequence[str]) -> ColumnValues | None:
    """The columns of a table as the file has them; None where the file has no such event."""
    if not decoded.seen[table]:
        return None
    rows = decoded.tables[table]
    columns: ColumnValues = {name: rows.take(name) for name in numbers}
    return columns | {name: decoded.named(rows.take(name)) for name in texts}


def ranges(decoded: DecodedTrace, *, recorded: bool) -> ColumnValues | None:
    """User annotations. They are recorded whenever operators are, so that none may mean that none happened."""
    rows = decoded.tables["ranges"]
    if not decoded.seen["ranges"] and not recorded:
        return None
    names = ("process", "thread", "start_ns", "end_ns")
    if not rows.height:
        return {name: [] for name in (*names, "name", "kind", "depth")}
    columns: ColumnValues = {name: rows.take(name) for name in names}
    depth = _depths(*(columns[name].to_numpy() for name in names))
    return columns | {"name": decoded.named(rows.take("name")), "kind": "push_pop", "depth": pl.Series(depth)}


def frames(decoded: DecodedTrace) -> ColumnValues | None:
    """Python calls; None where the profiler took no stacks."""
    rows = decoded.tables["frames"]
    if not rows.height:
        recorded = decoded.seen["frames"] or decoded.properties.get("with_stack") == 1
        return {name: [] for name in _FRAME_COLUMNS} if recorded else None
    columns: ColumnValues = {name: rows.take(name) for name in ("process", "thread", "start_ns", "end_ns", "frame_id")}
    columns["parent_id"] = rows.take("parent_id")
    codes = rows.take("name")
    assert codes is not None
    distinct = codes.unique()
    names = decoded.strings[distinct]
    position = codes.replace_strict(distinct, range(len(distinct)), return_dtype=pl.UInt32)
    columns["name"] = decoded.named(codes)
    columns["file"] = names.str.extract(PLACE, 1).cast(pl.Categorical())[position]
    columns["line"] = names.str.extract(PLACE, 2).cast(pl.Int32, strict=False)[position]
    columns["call_line"] = _call_lines(decoded, columns["start_ns"])
    return columns


def _call_lines(decoded: DecodedTrace, start_ns: pl.Series | None) -> pl.Series | None:
    """The lines that timesink's capture added to the file, by the start of the call; None where it added none."""
    added = decoded.properties.get(CALL_LINES)
    if not isinstance(added, dict) or start_ns is None:
        return None
    later, line = (added.get(name) for name in ("start_ns", "line"))
    if not (isinstance(later, list) and isinstance(line, list)) or len(later) != len(line):
        return None
    try:
        known = pl.DataFrame(
            {"start_ns": pl.Series(later, dtype=pl.Int64).cum_sum(), "line": pl.Series(line, dtype=pl.Int32)}
        )
    except (TypeError, OverflowError, pl.exceptions.PolarsError):  # whoever wrote it, it was not timesink
        return None
    known = known.unique("start_ns", keep="first")
    return start_ns.to_frame("start_ns").join(known, on="start_ns", how="left", maintain_order="left")["line"]


_FRAME_COLUMNS = ("process", "thread", "name", "start_ns", "end_ns")


def threads(decoded: DecodedTrace, processes: set[int]) -> ColumnValues | None:
    """Names of host threads; the streams of a GPU are named the same way and are not threads."""
    rows = decoded.tables["threads"]
    if not rows.height or "name" not in rows:
        return None
    stated = pl.DataFrame({name: rows.take(name) for name in ("process", "thread", "name")}).rows()
    last = {(process, thread): name for process, thread, name in stated if process in processes and name is not None}
    own = [(*thread, name) for thread, name in sorted(last.items())]
    named = pl.DataFrame(own, schema={"process": pl.Int64, "thread": pl.Int64, "name": pl.UInt32}, orient="row")
    return {**named.to_dict(), "name": decoded.strings[named["name"]]}


def memory_events(decoded: DecodedTrace) -> ColumnValues | None:
    """Allocations and releases; None where the profiler did not watch memory."""
    rows = decoded.tables["memory_events"]
    if not rows.height:
        names = ("process", "device", "action", "time_ns", "bytes")
        recorded = decoded.seen["memory_events"] or decoded.properties.get("profile_memory") == 1
        return {name: [] for name in names} if recorded else None
    height = rows.height
    size = rows.take("bytes")
    assert size is not None
    device_type = _or_constant(rows.take("device_type"), CPU_DEVICE_TYPE, height)
    device = _or_constant(rows.take("device_id"), -1, height)
    on_host = (device_type == CPU_DEVICE_TYPE) | (device < 0) | (device > np.iinfo(np.int32).max)
    address = rows.take("address")
    return {
        "process": rows.take("process"),
        "thread": rows.take("thread"),
        "device": device.set(on_host, -1).cast(pl.Int32),
        "action": pl.Series(["free", "alloc"], dtype=pl.Categorical())[(size >= 0).cast(pl.UInt32)],
        "time_ns": rows.take("start_ns"),
        "bytes": size,
        "address": None if address is None else address.cast(pl.UInt64, strict=False),
        "total_allocated_bytes": rows.take("total_allocated_bytes"),
        "total_reserved_bytes": rows.take("total_reserved_bytes"),
    }


def _or_constant(column: pl.Series | None, value: int, height: int) -> pl.Series:
    return pl.repeat(value, height, dtype=pl.Int64, eager=True) if column is None else column.fill_null(value)


def _depths(process: Any, thread: Any, start_ns: Any, end_ns: Any) -> Any:
    """How many ranges of its own thread enclose each range."""
    order = np.lexsort((-end_ns, start_ns, thread, process))
    other = np.diff(process[order]).astype(bool) | np.diff(thread[order]).astype(bool)
    group = np.append(0, np.cumsum(other))
    _, depth, _ = _native.enclose(group, start_ns[order], end_ns[order])
    depths = np.empty(len(order), np.int32)
    depths[order] = depth
    return depths


_KINDS = pl.Series(["kernel", "copy", "set"], dtype=OpKind)

# "Memcpy HtoD (Pageable -> Device)" of CUPTI; ROCm writes "HtoD" or "CopyHostToDevice". A is an array: device memory.
_DIRECTION = regex(profiler_texts.COPY_DIRECTION)
_MEMORY = regex(profiler_texts.COPY_MEMORY)
_DIRECTIONS = {"HH": "h2h", "HD": "h2d", "DH": "d2h", "DD": "d2d", "PP": "p2p"}
_MEMORIES = {"Pageable": "pageable", "Pinned": "pinned", "Device": "device", "Array": "array", "Managed": "managed"}
_SYNCS = {
    "Context Sync": "device",
    "Device Sync": "device",
    "Stream Sync": "stream",
    "Event Sync": "event",
    "Stream Wait Event": "stream_wait_event",
}
# CUPTI's "no value" in signed and unsigned spelling.
_INVALID = (-1, 0xFFFFFFFF)


def copy_direction(text: str) -> str | None:
    """The direction a copy's name or kind states; None where it states none."""
    match = _DIRECTION.search(text)
    if not match:
        return None
    source, target = (match[1], match[2]) if match[1] else (match[3][0], match[4][0])
    return _DIRECTIONS.get((source + target).replace("A", "D"), "unknown")


def source_memory(text: str) -> str | None:
    """Kind of memory a copy reads, by its name; a memset has none."""
    match = _MEMORY.search(text)
    return _MEMORIES.get(match[1], "unknown") if match and match[2] else None


def target_memory(text: str) -> str | None:
    """Kind of memory a copy writes or a memset sets, by its name."""
    match = _MEMORY.search(text)
    return _MEMORIES.get(match[2] or match[1], "unknown") if match else None


def device_ops(decoded: DecodedTrace, process: int) -> ColumnValues | None:
    """Kernels, copies and memsets; None where the file holds none, for it cannot tell whether GPUs were watched."""
    rows = decoded.tables["device_ops"]
    if not decoded.seen["device_ops"]:
        return None
    kind = rows.take("kind")
    names = rows.take("name")
    written = rows.take("copy_kind")
    assert kind is not None and names is not None
    columns: ColumnValues = {name: rows.take(name) for name in list(rows.columns)}
    columns |= {"process": process, "kind": _KINDS[kind.cast(pl.UInt32)], "name": decoded.named(names)}
    if not (kind > 0).any():
        return columns
    copies, moves = kind == 1, kind > 0
    only_copies, only_moves = _where(names, copies), _where(names, moves)
    direction = decoded.classified(only_copies, copy_direction, CopyKind)
    if written is not None:
        stated = decoded.classified(_where(written, copies), copy_direction, CopyKind)
        direction = pl.select(pl.coalesce(direction, stated))[:, 0] if direction.null_count() else direction
    columns["copy_kind"] = pl.select(pl.when(copies).then(direction.fill_null("unknown")))[:, 0]
    columns["src_memory"] = decoded.classified(only_copies, source_memory, MemoryKind)
    columns["dst_memory"] = decoded.classified(only_moves, target_memory, MemoryKind)
    return columns


def devices(decoded: DecodedTrace, worked: Iterable[int]) -> ColumnValues | None:
    """The GPUs the file describes, and those that did work though it does not."""
    described = decoded.properties.get("deviceProperties") or decoded.properties.get("computeProperties") or []
    if not isinstance(described, list):
        described = []
    described_gpus: dict[int, Mapping[str, Any]] = {}
    for place, entry in enumerate(described):
        if isinstance(entry, dict) and (ordinal := _ordinal(entry, place)) is not None:
            described_gpus[ordinal] = entry
    for ordinal in worked:
        described_gpus.setdefault(ordinal, {})
    if not described_gpus:
        return None
    ordered = sorted(described_gpus.items())
    return {
        "device": [ordinal for ordinal, _ in ordered],
        "name": pl.Series([_text(entry, "name") for _, entry in ordered], dtype=pl.String),
        "compute_major": _column(ordered, pl.Int32, "computeMajor", "major"),
        "compute_minor": _column(ordered, pl.Int32, "computeMinor", "minor"),
        "sm_count": _column(ordered, pl.Int32, "numSms", "multiProcessorCount"),
        "memory_bytes": _column(ordered, pl.Int64, "totalGlobalMem"),
    }


@dataclass(frozen=True, slots=True)
class Waits:
    """ColumnValues of both tables that synchronisation events fill."""

    syncs: ColumnValues
    event_waits: ColumnValues


def syncs(decoded: DecodedTrace, process: int, calls: pl.DataFrame | None) -> tuple[Waits | None, int]:
    """Synchronisations, and edges between streams, with the number of edges whose record cannot be right."""
    rows = decoded.tables["syncs"]
    if not decoded.seen["syncs"]:
        return None, 0
    written = rows.take("kind")
    if written is None:
        written = pl.repeat(None, rows.height, dtype=pl.UInt32, eager=True)
    kind = decoded.classified(written, lambda text: _SYNCS.get(text, "unknown"), SyncKind).fill_null("unknown")
    names = (
        "device",
        "context",
        "stream",
        "start_ns",
        "end_ns",
        "correlation",
        "event_id",
        "wait_stream",
        "wait_record",
    )
    columns = {name: column for name in names if (column := rows.take(name)) is not None}
    frame = pl.DataFrame(columns).with_columns(
        pl.lit(None, pl.Int64).alias(name) for name in names if name not in columns
    )
    frame = frame.with_columns(
        pl.when(~pl.col(name).is_in(_INVALID)).then(pl.col(name)).name.keep()
        for name in ("device", "context", "stream", "event_id", "wait_stream", "wait_record")
    )
    kept = frame.select("device", "context", "stream", "start_ns", "end_ns", "correlation", "event_id")
    edges, disowned = _edges(frame.filter(kind == "stream_wait_event"), calls)
    return Waits(
        {"process": process, "kind": kind} | {column.name: column for column in kept},
        {"process": process} | {column.name: column for column in edges},
    ), disowned


def _edges(frame: pl.DataFrame, calls: pl.DataFrame | None) -> tuple[pl.DataFrame, int]:
    """Waits of one stream for another. The wait starts with its API call where that is in the file.

    Kineto before 2026-04 could name a record that came after the wait; such a record is not the one waited for.
    """
    frame = frame.filter(pl.col("stream").is_not_null())
    if calls is not None:
        starts = calls.drop_nulls("correlation").group_by("correlation").agg(pl.col("start_ns").min().alias("call_ns"))
        frame = frame.join(starts, on="correlation", how="left", maintain_order="left")
        frame = frame.with_columns(start_ns=pl.coalesce("call_ns", "start_ns"))
    future = (pl.col("wait_record") > pl.col("correlation")).fill_null(False)
    disowned = int(frame.select(future.sum()).item())
    return frame.select(
        "device",
        "context",
        "stream",
        pl.col("wait_stream").alias("waited_stream"),
        "event_id",
        pl.when(~future).then(pl.col("wait_record")).alias("record_correlation"),
        "correlation",
        "start_ns",
    ), disowned


def _where(codes: pl.Series, mask: pl.Series) -> pl.Series:
    """The codes where the mask holds, null elsewhere."""
    return pl.select(pl.when(mask).then(codes))[:, 0]


def _ordinal(entry: Mapping[str, Any], place: int) -> int | None:
    """The device number of an entry: what it says, or its place in the list; None where what it says is no ordinal."""
    value = entry.get("id", place)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else None


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) and value else None


def _column(entries: list[tuple[int, Mapping[str, Any]]], dtype: type[pl.DataType], *keys: str) -> pl.Series:
    """An integer property of each device, null where it is absent or out of range."""
    values = [next((entry[key] for key in keys if isinstance(entry.get(key), int)), None) for _, entry in entries]
    wide = [value if value is not None and abs(value) < 1 << 62 else None for value in values]
    return pl.Series(wide, dtype=pl.Int64).cast(dtype, strict=False)
