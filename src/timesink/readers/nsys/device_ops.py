"""Kernels, copies, memsets and whole graph replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import enums
from timesink.readers.nsys.export import CALLS, COPIES, DEVICE_WORK, GRAPHS, KERNELS, SETS, Export, Source
from timesink.readers.nsys.processes import process_of
from timesink.readers.nsys.session import Session, joined, unsorted

_COPY_NAME = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "h2h": "HtoH", "p2p": "PtoP", "unknown": "unknown"}
_GRID = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")

Rows = dict[str, pl.DataFrame]


def device_rows(export: Export) -> Rows:
    """The four tables of device work, as they stand in the export, with the process of each row."""
    return owned(export, {source.name: export.read(source) for source in DEVICE_WORK})


def owned(export: Export, rows: Rows) -> Rows:
    """Rows of those tables with the process of each."""
    unowned = [name for name, frame in rows.items() if frame.height and "globalPid" not in export.tables[name]]
    only = _only_caller(export) if unowned else 0
    return {
        name: frame.with_columns(
            pl.lit(only, dtype=pl.Int64).alias("process") if name in unowned else process_of(frame["globalPid"])
        )
        for name, frame in rows.items()
    }


def gpu_users(rows: Rows) -> list[tuple[int, int]]:
    """Each process that has device work, with the lowest device it used."""
    lowest: dict[int, int] = {}
    for frame in rows.values():
        for process, device in frame.group_by("process").agg(pl.col("deviceId").min()).iter_rows():
            lowest[process] = min(lowest.get(process, device or 0), device or 0)
    return sorted(lowest.items())


def device_ops(session: Session, rows: Rows) -> pl.DataFrame:
    """`device_ops`. A graph traced as a whole is one row; of its kernels nothing is known, and a note says so."""
    makers = {KERNELS: _kernels, COPIES: _copies, SETS: _sets, GRAPHS: _graphs}
    parts = []
    for source, maker in makers.items():
        frame = session.timed(rows.pop(source.name), source)
        if frame.height:
            parts.append(unsorted(DEVICE_OPS, {**_common(session, frame), **maker(session, frame)}))
    return joined(DEVICE_OPS, parts)


def _common(session: Session, frame: pl.DataFrame) -> dict[str, Any]:
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


def _kernels(session: Session, frame: pl.DataFrame) -> Mapping[str, Any]:
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


def _copies(session: Session, frame: pl.DataFrame) -> Mapping[str, Any]:
    memory = enums.memory_kinds(session.export)
    source, target = (enums.as_memory(frame[column], memory) for column in ("srcKind", "dstKind"))
    directions = enums.copy_kinds(session.export)
    kind = enums.as_copy(frame["copyKind"], directions)
    migrated = frame["copyKind"].is_in(sorted(enums.migrations(session.export)))
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


def _sets(session: Session, frame: pl.DataFrame) -> Mapping[str, Any]:
    memory = enums.as_memory(frame["memKind"], enums.memory_kinds(session.export))
    texts = [f"Memset ({kind.capitalize()})" for kind in memory.dtype.categories]  # type: ignore[attr-defined]
    names = pl.Series([*texts, "Memset"], dtype=pl.Categorical())
    return {
        "kind": "set",
        "name": names.gather(memory.to_physical().cast(pl.UInt32).fill_null(len(texts))),
        "bytes": frame["bytes"],
        "dst_memory": memory,
    }


def _graphs(session: Session, frame: pl.DataFrame) -> Mapping[str, Any]:
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


def _nonzero(ids: pl.Series) -> pl.Series:
    """Old exports write 0 where newer ones write nothing."""
    return ids.replace(0, None) if ids.null_count() < len(ids) else ids


def _only_caller(export: Export) -> int:
    """The process that calls CUDA, where only one does: rows without an owner are then its."""
    processes = np.unique(process_of(export.read(Source(CALLS.name, {"globalTid": "int64"}))["globalTid"]).to_numpy())
    return int(processes[0]) if len(processes) == 1 else 0
