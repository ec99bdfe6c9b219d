"""Device tables of a Kineto trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from timesink.model.tables import CopyKind, MemoryKind, OpKind, SyncKind
from timesink.readers.kineto.decoded import Decoded

Columns = dict[str, Any]

_KINDS = pl.Series(["kernel", "copy", "set"], dtype=OpKind)

# "Memcpy HtoD (Pageable -> Device)" of CUPTI; ROCm writes "HtoD" or "CopyHostToDevice". A is an array: device memory.
_DIRECTION = re.compile(r"(?:Memcpy )?([HDAP])to([HDAP])\b|Copy(Host|Device)To(Host|Device)")
_MEMORY = re.compile(r"\((\w+)[\w ]*(?: -> (\w+)[\w ]*)?\)")
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
    found = _DIRECTION.search(text)
    if not found:
        return None
    source, target = (found[1], found[2]) if found[1] else (found[3][0], found[4][0])
    return _DIRECTIONS.get((source + target).replace("A", "D"), "unknown")


def source_memory(text: str) -> str | None:
    """Kind of memory a copy reads, by its name; a memset has none."""
    found = _MEMORY.search(text)
    return _MEMORIES.get(found[1], "unknown") if found and found[2] else None


def target_memory(text: str) -> str | None:
    """Kind of memory a copy writes or a memset sets, by its name."""
    found = _MEMORY.search(text)
    return _MEMORIES.get(found[2] or found[1], "unknown") if found else None


def device_ops(decoded: Decoded, process: int) -> Columns | None:
    """Kernels, copies and memsets; None where the file holds none, for it cannot tell whether GPUs were watched."""
    rows = decoded.tables["device_ops"]
    if not decoded.seen["device_ops"]:
        return None
    kind = rows.take("kind")
    names = rows.take("name")
    spoken = rows.take("copy_kind")
    assert kind is not None and names is not None
    columns: Columns = {name: rows.take(name) for name in list(rows.columns)}
    columns |= {"process": process, "kind": _KINDS.gather(kind.cast(pl.UInt32)), "name": decoded.named(names)}
    if not (kind > 0).any():
        return columns
    copies, moves = kind == 1, kind > 0
    only_copies, only_moves = _where(names, copies), _where(names, moves)
    direction = decoded.classified(only_copies, copy_direction, CopyKind)
    if spoken is not None:
        told = decoded.classified(_where(spoken, copies), copy_direction, CopyKind)
        direction = pl.select(pl.coalesce(direction, told))[:, 0] if direction.null_count() else direction
    columns["copy_kind"] = pl.select(pl.when(copies).then(direction.fill_null("unknown")))[:, 0]
    columns["src_memory"] = decoded.classified(only_copies, source_memory, MemoryKind)
    columns["dst_memory"] = decoded.classified(only_moves, target_memory, MemoryKind)
    return columns


def devices(decoded: Decoded, worked: Iterable[int]) -> Columns | None:
    """The GPUs the file describes, and those that did work though it does not."""
    described = decoded.properties.get("deviceProperties") or decoded.properties.get("computeProperties") or []
    if not isinstance(described, list):
        described = []
    found: dict[int, Mapping[str, Any]] = {}
    for place, entry in enumerate(described):
        if isinstance(entry, dict) and (ordinal := _ordinal(entry, place)) is not None:
            found[ordinal] = entry
    for ordinal in worked:
        found.setdefault(ordinal, {})
    if not found:
        return None
    ordered = sorted(found.items())
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
    """Columns of both tables that synchronisation events fill."""

    syncs: Columns
    event_waits: Columns


def syncs(decoded: Decoded, process: int, calls: pl.DataFrame | None) -> tuple[Waits | None, int]:
    """Synchronisations, and edges between streams, with the number of edges whose record cannot be right."""
    rows = decoded.tables["syncs"]
    if not decoded.seen["syncs"]:
        return None, 0
    spoken = rows.take("kind")
    if spoken is None:
        spoken = pl.repeat(None, rows.height, dtype=pl.UInt32, eager=True)
    kind = decoded.classified(spoken, lambda text: _SYNCS.get(text, "unknown"), SyncKind).fill_null("unknown")
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
