"""What GPUs did: kernels, copies, memsets and whole graph replays; the GPUs, their sampled counters, their memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from timesink.model.tables import DEVICE_OPS, DEVICES, GPU_METRICS, GRAPH_NODES, MEMORY_EVENTS
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import identifiers
from timesink.readers.nsys.export import (
    CALLS,
    COPIES,
    CUDA_DEVICES,
    DEVICE_WORK,
    GPUS,
    GRAPH_NODE_EVENTS,
    GRAPHS,
    KERNELS,
    MEMORY_USAGE,
    METRIC_NAMES,
    METRICS,
    SETS,
    Export,
    ExportTable,
)
from timesink.readers.nsys.identifiers import process_of
from timesink.readers.nsys.session import ExportReading, combined, part_of

_COPY_NAME = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "h2h": "HtoH", "p2p": "PtoP", "unknown": "unknown"}
_CLONES_OF_CLONES = 8  # a graph within a graph is cloned once more
_GRID = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")

FrameByTable = dict[str, pl.DataFrame]


def device_rows(export: Export) -> FrameByTable:
    """The four tables of device work, as the export has them, with the process of each row."""
    return with_process(export, {source.name: export.read(source) for source in DEVICE_WORK})


def with_process(export: Export, rows: FrameByTable) -> FrameByTable:
    """Rows of those tables with the process of each."""
    unowned = [name for name, frame in rows.items() if frame.height and "globalPid" not in export.tables[name]]
    only = _only_caller(export) if unowned else 0
    return {
        name: frame.with_columns(
            pl.lit(only, dtype=pl.Int64).alias("process") if name in unowned else process_of(frame["globalPid"])
        )
        for name, frame in rows.items()
    }


def gpu_users(rows: FrameByTable) -> list[tuple[int, int]]:
    """Each process that has device work, with the lowest device it used."""
    lowest: dict[int, int] = {}
    for frame in rows.values():
        for process, device in frame.group_by("process").agg(pl.col("deviceId").min()).iter_rows():
            lowest[process] = min(lowest.get(process, device or 0), device or 0)
    return sorted(lowest.items())


def device_ops(session: ExportReading, rows: FrameByTable) -> pl.DataFrame:
    """`device_ops`. A graph traced as a whole is one row; of its kernels nothing is known, and a note says so."""
    makers = {KERNELS: _kernels, COPIES: _copies, SETS: _sets, GRAPHS: _graphs}
    parts = []
    for source, maker in makers.items():
        frame = session.timed(rows.pop(source.name), source)
        if frame.height:
            parts.append(part_of(DEVICE_OPS, {**_common(session, frame), **maker(session, frame)}))
    return combined(DEVICE_OPS, parts)


def _common(session: ExportReading, frame: pl.DataFrame) -> dict[str, Any]:
    node = frame["graphNodeId"] if "graphNodeId" in frame.columns else None
    return {
        "rank": session.ranks.of(frame["process"]),
        "device": frame["deviceId"].fill_null(0),
        "process": frame["process"],
        "context": frame["contextId"],
        "stream": frame["streamId"].fill_null(-1),
        "start_ns": frame["start"],
        "end_ns": frame["end"],
        "correlation": frame["correlationId"],
        "graph_node_id": None if node is None else _nonzero(node),
    }


def _kernels(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    names = frame["demangledName"]
    if lost := session.strings.unexplained(names):
        message = "kernels whose name the export does not hold"
        session.notes.append(ImportNote(NoteKind.DATA_LOSS, message, lost, DEVICE_OPS.name))
    shape = dict(zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), _GRID, strict=True))
    return {
        "kind": "kernel",
        "name": session.strings.names(names),
        "graph_id": _nonzero(frame["graphId"]),
        "registers": frame["registersPerThread"],
        "shared_memory_bytes": frame["staticSharedMemory"] + frame["dynamicSharedMemory"],
        **{ours: frame[theirs] for ours, theirs in shape.items()},
    }


def _copies(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    memory = identifiers.memory_kinds(session.export)
    source, target = (identifiers.as_memory(frame[column], memory) for column in ("srcKind", "dstKind"))
    directions = identifiers.copy_kinds(session.export)
    kind = identifiers.as_copy(frame["copyKind"], directions)
    migrated = frame["copyKind"].is_in(sorted(identifiers.migrations(session.export)))
    return {
        "kind": "copy",
        "name": _copy_names(kind, source, target, migrated),
        "bytes": frame["bytes"],
        "copy_kind": kind,
        "src_memory": source,
        "dst_memory": target,
    }


def _copy_names(kind: pl.Series, source: pl.Series, target: pl.Series, migrated: pl.Series) -> pl.Series:
    """As PyTorch's profiler writes them: ``Memcpy HtoD (Pageable -> Device)``; nsys keeps no name for a copy."""
    parts = pl.DataFrame({"kind": kind, "source": source, "target": target, "migrated": migrated})
    distinct = parts.unique(maintain_order=True)
    texts = [
        f"{'Unified memory ' if migrated else ''}Memcpy {_COPY_NAME[kind or 'unknown']}"
        + (f" ({source.capitalize()} -> {target.capitalize()})" if source and target else "")
        for kind, source, target, migrated in distinct.iter_rows()
    ]
    named = distinct.with_columns(pl.Series("name", texts, dtype=pl.Categorical()))
    return parts.join(named, on=parts.columns, how="left", nulls_equal=True, maintain_order="left")["name"]


def _sets(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    memory = identifiers.as_memory(frame["memKind"], identifiers.memory_kinds(session.export))
    texts = [f"Memset ({kind.capitalize()})" for kind in memory.dtype.categories]  # type: ignore[attr-defined]
    names = pl.Series([*texts, "Memset"], dtype=pl.Categorical())
    return {
        "kind": "set",
        "name": names[memory.to_physical().cast(pl.UInt32).fill_null(len(texts))],
        "bytes": frame["bytes"],
        "dst_memory": memory,
    }


def _graphs(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    graph = frame["graphExecId"].fill_null(frame["graphId"])
    message = (
        "CUDA graph replays were recorded as a whole: which kernels ran in them is unknown "
        "(nsys profile --cuda-graph-trace=node records each)"
    )
    session.notes.append(ImportNote(NoteKind.DATA_LOSS, message, frame.height, DEVICE_OPS.name))
    distinct = graph.unique(maintain_order=True)
    texts = pl.Series([f"CUDA graph {'?' if number is None else number}" for number in distinct])
    names = pl.DataFrame({"graph": distinct, "name": texts.cast(pl.Categorical())})
    named = pl.DataFrame({"graph": graph}).join(names, on="graph", how="left", nulls_equal=True, maintain_order="left")
    return {"kind": "graph", "name": named["name"], "graph_id": graph}


def graph_nodes(session: ExportReading) -> pl.DataFrame:
    """`graph_nodes`: each node with the moment at which the node that it is a clone of, of a clone and so on, was made.

    A graph is captured into nodes, and each executable graph made of it has clones of these, which its kernels name.
    """
    nodes = session.rows(GRAPH_NODE_EVENTS).sort("originalGraphNodeId", nulls_last=False)
    nodes = nodes.unique("graphNodeId", keep="last", maintain_order=True)
    made = nodes.select("graphNodeId", pl.col("start"), "globalTid", pl.col("originalGraphNodeId"))
    for _ in range(_CLONES_OF_CLONES):
        parents = nodes.select("start", "globalTid", pl.col("originalGraphNodeId").alias("above"), made="graphNodeId")
        joined = made.join(parents, left_on="originalGraphNodeId", right_on="made", how="left", maintain_order="left")
        if not joined["start_right"].count():
            break
        made = joined.select(
            "graphNodeId",
            pl.coalesce("start_right", "start").alias("start"),
            pl.coalesce("globalTid_right", "globalTid").alias("globalTid"),
            pl.when(pl.col("start_right").is_not_null()).then("above").alias("originalGraphNodeId"),
        )
    columns = {
        **session.whose(made["globalTid"].fill_null(0)),
        "recorded_ns": made["start"],
        "graph_node_id": made["graphNodeId"],
    }
    return combined(GRAPH_NODES, [part_of(GRAPH_NODES, columns)])


def _nonzero(ids: pl.Series) -> pl.Series:
    """Old exports write 0 where newer ones write nothing."""
    return ids.replace(0, None) if ids.null_count() < len(ids) else ids


def _only_caller(export: Export) -> int:
    """The process that calls CUDA, where only one does: rows without an owner are then its."""
    processes = np.unique(
        process_of(export.read(ExportTable(CALLS.name, {"globalTid": "int64"}))["globalTid"]).to_numpy()
    )
    return int(processes[0]) if len(processes) == 1 else 0


_GPU_IN_TYPE = (1 << 32) - 1  # low half of a metric's typeId; the virtual machine is above
_ON_HOST = ("pageable", "pinned")
_RELEASE = 1  # CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION


def devices(session: ExportReading, worked: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """`devices`: what each rank could see, and what it used; `worked` holds (rank, device)."""
    gpus = session.export.read(GPUS).unique("id", keep="first", maintain_order=True)
    described = {row["id"]: row for row in gpus.iter_rows(named=True)}
    ordinals = _gpu_of_ordinal(session, described)
    rows = sorted({*worked, *ordinals})
    gpus_seen = [described.get(ordinals.get(row, row[1]), {}) for row in rows]
    columns = {
        "name": "name",
        "compute_major": "computeMajor",
        "compute_minor": "computeMinor",
        "sm_count": "smCount",
        "memory_bytes": "totalMemory",
        "bandwidth_bytes_per_s": "memoryBandwidth",
        "l2_bytes": "l2CacheSize",
        "clock_hz": "clockRate",
    }
    return DEVICES.build(
        {
            "rank": pl.Series([rank for rank, _ in rows], dtype=pl.Int32),
            "device": pl.Series([device for _, device in rows], dtype=pl.Int32),
            **{
                ours: pl.Series([gpu.get(theirs) or None for gpu in gpus_seen], dtype=DEVICES.columns[ours].dtype)
                for ours, theirs in columns.items()
            },
        }
    )


def _gpu_of_ordinal(session: ExportReading, described: dict[int, dict[str, object]]) -> dict[tuple[int, int], int]:
    """Which GPU of the machine each (rank, device ordinal) is, as far as the file tells."""
    table = session.export.read(CUDA_DEVICES)
    gpus_seen = {
        (session.ranks.of_process[pid], ordinal): gpu
        for pid, gpu, ordinal in table.select("pid", "gpuId", "cudaId").iter_rows()
        if pid in session.ranks.of_process
    }
    if gpus_seen or len(session.ranks.all) > 1:
        return gpus_seen
    rank = session.ranks.all[0]
    ordinals = {gpu: row["cuDevice"] for gpu, row in described.items()}
    distinct = None not in ordinals.values() and len(set(ordinals.values())) == len(ordinals)
    return {(rank, int(str(ordinals[gpu])) if distinct else gpu): gpu for gpu in described}


def gpu_metrics(session: ExportReading) -> pl.DataFrame:
    """`gpu_metrics`: each sample with the rank and ordinal of its GPU; one that no rank saw is the lowest rank's."""
    frame = session.rows(METRICS)
    names = session.export.read(METRIC_NAMES).unique(["typeId", "metricId"], keep="first", maintain_order=True)
    frame = frame.join(names, on=["typeId", "metricId"], how="left", maintain_order="left")
    if lost := frame["metricName"].null_count():
        message = "samples of counters that the file does not name"
        session.notes.append(ImportNote(NoteKind.DATA_LOSS, message, lost, GPU_METRICS.name))
        frame = frame.drop_nulls("metricName")
    gpu = pl.Series("gpu", frame["typeId"].to_numpy() & _GPU_IN_TYPE, dtype=pl.Int64)
    described = {row["id"]: row for row in session.export.read(GPUS).iter_rows(named=True)}
    user_of = {number: user for user, number in sorted(_gpu_of_ordinal(session, described).items(), reverse=True)}
    numbers = gpu.unique(maintain_order=True)
    users = [user_of.get(number, (session.ranks.all[0], number)) for number in numbers]
    rank, device = (
        gpu.replace_strict(numbers, pl.Series(column, dtype=pl.Int64), return_dtype=pl.Int32)
        for column in ([rank for rank, _ in users], [device for _, device in users])
    )
    columns = {"rank": rank, "device": device, "name": frame["metricName"], "time_ns": frame["timestamp"]}
    return combined(GPU_METRICS, [part_of(GPU_METRICS, {**columns, "value": frame["value"]})])


def memory_events(session: ExportReading) -> pl.DataFrame:
    """`memory_events`: allocations and releases of CUDA memory; host memory is device -1."""
    frame = session.rows(MEMORY_USAGE)
    kind = identifiers.as_memory(frame["memKind"], identifiers.memory_kinds(session.export)).fill_null("unknown")
    actions = {0: "Allocation", 1: "Deallocation", **identifiers.labels(session.export, "ENUM_CUDA_DEV_MEM_EVENT_OPER")}
    action = frame["memoryOperationType"].replace_strict(actions, default="unknown", return_dtype=pl.String)
    released = frame["memoryOperationType"] == _RELEASE
    process = process_of(frame["globalPid"])
    on_host = pl.Series([-1], dtype=pl.Int32).new_from_index(0, frame.height)
    columns = {
        "rank": session.ranks.of(process),
        "process": process,
        "device": on_host.zip_with(kind.cast(pl.String).is_in(_ON_HOST), frame["deviceId"].fill_null(0)),
        "action": kind.cast(pl.String) + pl.Series([" "]) + action.fill_null("unknown"),
        "time_ns": frame["start"],
        "address": frame["address"].reinterpret(signed=False),
        "bytes": (-frame["bytes"]).zip_with(released.fill_null(False), frame["bytes"]),
        "stream": frame["streamId"],
    }
    return combined(MEMORY_EVENTS, [part_of(MEMORY_EVENTS, columns)])
