"""The host and device tables of a Kineto trace, each from the decoded events of its kind; None where none were
recorded.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl

from timesink import _native
from timesink.knowledge import profiler_texts
from timesink.knowledge.calls import CAPTURE_BEGIN, CAPTURE_END
from timesink.knowledge.frames import CALL_LINES, PLACE, SAMPLES
from timesink.model.names import matches
from timesink.model.schema import ColumnValues, Table, nulls
from timesink.model.tables import LAUNCH_SHAPE, MEMORY_EVENTS, RANGES, CopyKind, MemoryKind, OpKind, SyncKind
from timesink.readers.kineto.decoded import DecodedTrace

# c10::DeviceType of the host; every other type is a GPU with its own ordinal.
CPU_DEVICE_TYPE = 0


def plain(decoded: DecodedTrace, table: Table) -> ColumnValues | None:
    """The columns of a table as the file has them, texts as categories; None where the file has no such event."""
    if not decoded.seen[table.name]:
        return None
    rows = decoded.tables[table.name]
    taken = {name: rows.take(name) for name in table.columns if name in rows}
    is_text = {name: table.columns[name].dtype == pl.Categorical for name in taken}
    return {name: decoded.named(column) if is_text[name] else column for name, column in taken.items()}


def graph_nodes(decoded: DecodedTrace, calls: pl.DataFrame | None) -> ColumnValues | None:
    """Launches that name their kernel, between the begin and the end of a capture. None where there are none."""
    rows = decoded.tables.get("named_launches")
    if rows is None or not rows.height or calls is None:
        return None
    names = decoded.named(rows.take("name"))
    columns = {name: rows.take(name) for name in ("process", "thread", "start_ns", *LAUNCH_SHAPE)}
    frame = pl.DataFrame({name: column for name, column in columns.items() if column is not None} | {"name": names})
    begun = calls.filter(matches(calls["name"], CAPTURE_BEGIN))["end_ns"].sort().to_numpy()
    ended = calls.filter(matches(calls["name"], CAPTURE_END))["start_ns"].sort().to_numpy()
    recorded = frame["start_ns"].to_numpy()
    number = np.searchsorted(begun, recorded, side="right") - 1
    inside = np.searchsorted(ended, recorded, side="right") <= number  # one more has begun than ended
    frame = frame.with_columns(pl.Series("capture", number, pl.Int32)).filter(pl.Series(inside))
    return {column.name: column for column in frame.rename({"start_ns": "recorded_ns"})} if frame.height else None


def ranges(decoded: DecodedTrace, *, recorded: bool) -> ColumnValues | None:
    """User annotations. They are recorded whenever operators are, so that none may mean that none happened."""
    rows = decoded.tables["ranges"]
    if not decoded.seen["ranges"] and not recorded:
        return None
    if not rows.height:
        return {name: [] for name in ("process", "thread", "start_ns", "end_ns", "name", "kind", "depth")}
    columns = plain(decoded, RANGES) or {}
    depth = _depths(*(columns[name].to_numpy() for name in ("process", "thread", "start_ns", "end_ns")))
    return columns | {"kind": "push_pop", "depth": pl.Series(depth)}


def frames(decoded: DecodedTrace) -> ColumnValues | None:
    """Python calls; None where the profiler took no stacks."""
    rows = decoded.tables["frames"]
    if not rows.height:
        recorded = decoded.seen["frames"] or decoded.properties.get("with_stack") == 1
        return {name: [] for name in ("process", "thread", "name", "start_ns", "end_ns")} if recorded else None
    numbers = ("process", "thread", "start_ns", "end_ns", "frame_id", "parent_id")
    columns: ColumnValues = {name: rows.take(name) for name in numbers}
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


def host_stacks(decoded: DecodedTrace, process: int) -> ColumnValues | None:
    """The stacks that timesink's capture looked at; None where it did not, or something else wrote them."""
    added = decoded.properties.get(SAMPLES)
    if not isinstance(added, dict):
        return None
    try:
        texts, thread, stack = (
            pl.Series(added.get(name), dtype=dtype)
            for name, dtype in (("stacks", pl.String), ("thread", pl.Int64), ("stack", pl.UInt32))
        )
        times = pl.Series(added.get("later_ns"), dtype=pl.Int64).cum_sum()
        rows = pl.DataFrame({"thread": thread, "time_ns": times, "stack": texts[stack]}).drop_nulls()
    except (TypeError, OverflowError, IndexError, pl.exceptions.PolarsError):
        return None
    columns: ColumnValues = {name: rows[name] for name in ("thread", "time_ns")}
    return columns | {"process": process, "kind": "sample", "stack": rows["stack"].cast(pl.Categorical())}


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
    columns = plain(decoded, MEMORY_EVENTS) or {}
    size = columns["bytes"]
    device_type, device = (
        pl.repeat(absent, rows.height, dtype=pl.Int64, eager=True) if column is None else column.fill_null(absent)
        for column, absent in ((rows.take("device_type"), CPU_DEVICE_TYPE), (rows.take("device_id"), -1))
    )
    on_host = (device_type == CPU_DEVICE_TYPE) | (device < 0) | (device > np.iinfo(np.int32).max)
    if "address" in columns:
        columns["address"] = columns["address"].cast(pl.UInt64, strict=False)
    return columns | {
        "device": device.set(on_host, -1).cast(pl.Int32),
        "action": pl.Series(["free", "alloc"], dtype=pl.Categorical())[(size >= 0).cast(pl.UInt32)],
        "time_ns": rows.take("start_ns"),
    }


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
    match = profiler_texts.COPY_DIRECTION.search(text)
    if not match:
        return None
    source, target = (match[1], match[2]) if match[1] else (match[3][0], match[4][0])
    return _DIRECTIONS.get((source + target).replace("A", "D"), "unknown")


def source_memory(text: str) -> str | None:
    """Kind of memory a copy reads, by its name; a memset has none."""
    match = profiler_texts.COPY_MEMORY.search(text)
    return _MEMORIES.get(match[1], "unknown") if match and match[2] else None


def target_memory(text: str) -> str | None:
    """Kind of memory a copy writes or a memset sets, by its name."""
    match = profiler_texts.COPY_MEMORY.search(text)
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
    """The GPUs the file describes, and those that did work though it does not: such as the others, where these are all
    alike and either several or idle (roctracer counts GPUs that HIP_VISIBLE_DEVICES hides)."""
    described = decoded.properties.get("deviceProperties") or decoded.properties.get("computeProperties") or []
    if not isinstance(described, list):
        described = []
    described_gpus: dict[int, Mapping[str, Any]] = {}
    for place, entry in enumerate(described):
        if isinstance(entry, dict) and (ordinal := _ordinal(entry, place)) is not None:
            described_gpus[ordinal] = entry
    kinds = {json.dumps({**entry, "id": None}, sort_keys=True): entry for entry in described_gpus.values()}
    told = len(described_gpus) > 1 or described_gpus.keys().isdisjoint(worked)
    alike = next(iter(kinds.values())) if len(kinds) == 1 and told else {}
    for ordinal in worked:
        described_gpus.setdefault(ordinal, alike)
    if not described_gpus:
        return None
    entries = [entry for _, entry in sorted(described_gpus.items())]
    names = [entry.get("name") for entry in entries]
    return {
        "device": sorted(described_gpus),
        "name": pl.Series([name if isinstance(name, str) and name else None for name in names], dtype=pl.String),
        "compute_major": _column(entries, pl.Int32, "computeMajor", "major"),
        "compute_minor": _column(entries, pl.Int32, "computeMinor", "minor"),
        "sm_count": _column(entries, pl.Int32, "numSms", "multiProcessorCount"),
        "memory_bytes": _column(entries, pl.Int64, "totalGlobalMem"),
    }


_OF_SYNCS = (
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


def syncs(
    decoded: DecodedTrace, process: int, calls: pl.DataFrame | None
) -> tuple[ColumnValues | None, ColumnValues | None, int]:
    """Synchronisations, edges between streams, and the number of edges whose record cannot be right."""
    rows = decoded.tables["syncs"]
    if not decoded.seen["syncs"]:
        return None, None, 0
    written = rows.take("kind")
    if written is None:
        written = nulls(pl.UInt32, rows.height)
    kind = decoded.classified(written, lambda text: _SYNCS.get(text, "unknown"), SyncKind).fill_null("unknown")
    columns = {name: rows.take(name) for name in _OF_SYNCS}
    frame = pl.DataFrame(
        {name: nulls(pl.Int64, rows.height) if column is None else column for name, column in columns.items()}
    )
    numbers = [name for name in _OF_SYNCS if name not in ("start_ns", "end_ns", "correlation")]
    frame = frame.with_columns(
        pl.when(~pl.col(name).is_in(_INVALID)).then(pl.col(name)).name.keep() for name in numbers
    )
    edges, disowned = _edges(frame.filter(kind == "stream_wait_event"), calls)
    kept = {name: frame[name] for name in _OF_SYNCS if not name.startswith("wait_")}
    return {"process": process, "kind": kind, **kept}, {"process": process, **edges.to_dict()}, disowned


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


def _column(entries: list[Mapping[str, Any]], dtype: type[pl.DataType], *keys: str) -> pl.Series:
    """An integer property of each device, null where it is absent or out of range."""
    values = [next((entry[key] for key in keys if isinstance(entry.get(key), int)), None) for entry in entries]
    wide = [value if value is not None and abs(value) < 1 << 62 else None for value in values]
    return pl.Series(wide, dtype=pl.Int64).cast(dtype, strict=False)
