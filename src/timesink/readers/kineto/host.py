"""Host tables of a Kineto trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from timesink import _native
from timesink.readers.kineto.decoded import Decoded

Columns = dict[str, Any]

# c10::DeviceType of the host; every other type is a GPU with its own ordinal.
CPU_DEVICE_TYPE = 0
# "torch/nn/modules/module.py(1530): _wrapped_call_impl"
_PLACE = r"^(.+?)\((\d+)\): "


def host_ops(decoded: Decoded) -> Columns | None:
    """Framework operators; None where none was recorded."""
    rows = decoded.tables["host_ops"]
    if not decoded.seen["host_ops"]:
        return None
    plain = ("process", "thread", "start_ns", "end_ns", "external_id", "sequence_number", "forward_thread")
    texts = ("name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs", "call_stack")
    columns: Columns = {name: rows.take(name) for name in plain}
    return columns | {name: decoded.named(rows.take(name)) for name in texts}


def api_calls(decoded: Decoded) -> Columns | None:
    """CUDA and HIP calls; None where none was recorded."""
    rows = decoded.tables["api_calls"]
    if not decoded.seen["api_calls"]:
        return None
    columns: Columns = {name: rows.take(name) for name in ("process", "thread", "start_ns", "end_ns", "correlation")}
    return columns | {"name": decoded.named(rows.take("name"))}


def ranges(decoded: Decoded, *, recorded: bool) -> Columns | None:
    """User annotations. They are recorded whenever operators are, so that none may mean that none happened."""
    rows = decoded.tables["ranges"]
    if not decoded.seen["ranges"] and not recorded:
        return None
    names = ("process", "thread", "start_ns", "end_ns")
    if not rows.height:
        return {name: [] for name in (*names, "name", "kind", "depth")}
    columns: Columns = {name: rows.take(name) for name in names}
    depth = _depths(*(columns[name].to_numpy() for name in names))
    return columns | {"name": decoded.named(rows.take("name")), "kind": "push_pop", "depth": pl.Series(depth)}


def frames(decoded: Decoded) -> Columns | None:
    """Python calls; None where the profiler took no stacks."""
    rows = decoded.tables["frames"]
    if not rows.height:
        recorded = decoded.seen["frames"] or decoded.properties.get("with_stack") == 1
        return {name: [] for name in _FRAME_COLUMNS} if recorded else None
    columns: Columns = {name: rows.take(name) for name in ("process", "thread", "start_ns", "end_ns", "frame_id")}
    columns["parent_id"] = rows.take("parent_id")
    codes = rows.take("name")
    assert codes is not None
    distinct = codes.unique()
    names = decoded.strings.gather(distinct)
    position = codes.replace_strict(distinct, range(len(distinct)), return_dtype=pl.UInt32)
    columns["name"] = decoded.named(codes)
    columns["file"] = names.str.extract(_PLACE, 1).cast(pl.Categorical()).gather(position)
    columns["line"] = names.str.extract(_PLACE, 2).cast(pl.Int32, strict=False).gather(position)
    return columns


_FRAME_COLUMNS = ("process", "thread", "name", "start_ns", "end_ns")


def threads(decoded: Decoded, processes: set[int]) -> Columns | None:
    """Names of host threads; the streams of a GPU are named the same way and are not threads."""
    rows = decoded.tables["threads"]
    if not rows.height or "name" not in rows:
        return None
    named = pl.DataFrame({name: rows.take(name) for name in ("process", "thread", "name")}).drop_nulls()
    named = named.filter(pl.col("process").is_in(list(processes))).unique(["process", "thread"], keep="last")
    named = named.sort("process", "thread")
    return {
        "process": named["process"],
        "thread": named["thread"],
        "name": decoded.strings.gather(named["name"]),
    }


def overheads(decoded: Decoded) -> Columns | None:
    """Time the profiler spent on itself; None where it did not say."""
    rows = decoded.tables["profiler_overhead"]
    if not decoded.seen["profiler_overhead"]:
        return None
    columns: Columns = {name: rows.take(name) for name in ("process", "thread", "start_ns", "end_ns", "correlation")}
    return columns | {"name": decoded.named(rows.take("name"))}


def memory_events(decoded: Decoded) -> Columns | None:
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
        "action": pl.Series(["free", "alloc"], dtype=pl.Categorical()).gather((size >= 0).cast(pl.UInt32)),
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
    _, group = np.unique(np.stack([process, thread]), axis=1, return_inverse=True)
    group = np.asarray(group, dtype=np.int64).reshape(-1)
    _, depth, _ = _native.enclose(group[order], start_ns[order], end_ns[order])
    depths = np.empty(len(order), np.int32)
    depths[order] = depth
    return depths
