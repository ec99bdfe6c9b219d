"""What GPUs did: kernels, copies, memsets and whole graph replays; the GPUs, their sampled counters, their memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from timesink.knowledge import nsys_tables
from timesink.knowledge.nsys_tables import ExportTable
from timesink.model.tables import DEVICE_OPS, DEVICES, GPU_METRICS, GRAPH_NODES, MEMORY_EVENTS
from timesink.model.trace import NoteKind
from timesink.readers.nsys import identifiers
from timesink.readers.nsys.export import Export
from timesink.readers.nsys.identifiers import COPY, MEMORY, process_of
from timesink.readers.nsys.session import ExportReading, combined

_COPY_NAME = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD", "h2h": "HtoH", "p2p": "PtoP", "unknown": "unknown"}
_ASKED = 1  # CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_USER, as of cudaMemPrefetchAsync
_BY = ("Memcpy", "Unified memory Memcpy", "Unified memory Prefetch")  # the program, a page that is touched, the program
_CLONES_OF_CLONES = 8  # a graph within a graph is cloned once more

FrameByTable = dict[str, pl.DataFrame]


def with_process(export: Export, rows: FrameByTable) -> FrameByTable:
    """Rows of the tables of device work with the process of each; where there is no owner, the only one that calls
    CUDA, or 0."""
    unowned = [name for name, frame in rows.items() if frame.height and "globalPid" not in export.tables[name]]
    only = 0
    if unowned:
        callers = export.read(ExportTable(nsys_tables.CALLS.name, {"globalTid": "int64"}))["globalTid"]
        processes = process_of(callers).unique()
        only = processes[0] if len(processes) == 1 else 0
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
    described = {
        nsys_tables.KERNELS: _kernels,
        nsys_tables.COPIES: _copies,
        nsys_tables.SETS: _sets,
        nsys_tables.GRAPHS: _graphs,
    }
    parts = []
    for source, columns_of in described.items():
        frame = session.timed(rows.pop(source.name), source)
        if frame.height:
            columns = {"device": frame["deviceId"].fill_null(0), "stream": frame["streamId"].fill_null(-1)}
            if "graphNodeId" in frame.columns:
                columns["graph_node_id"] = _nonzero(frame["graphNodeId"])
            columns |= columns_of(session, frame)
            parts.append(session.part(DEVICE_OPS, frame, **columns))
    return combined(DEVICE_OPS, parts)


def _kernels(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    lost = session.strings.unexplained(frame["demangledName"])
    session.note(NoteKind.DATA_LOSS, "kernels whose name the export does not hold", lost, DEVICE_OPS)
    return {
        "kind": "kernel",
        "name": session.strings.names(frame["demangledName"]),
        "graph_id": _nonzero(frame["graphId"]),
        "shared_memory_bytes": frame["staticSharedMemory"] + frame["dynamicSharedMemory"],
    }


def _copies(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    source, target = (MEMORY.words_of(session.export, frame[column]) for column in ("srcKind", "dstKind"))
    kind = COPY.words_of(session.export, frame["copyKind"])
    moved = frame["copyKind"].is_in(sorted(identifiers.migrations(session.export))).fill_null(False)
    asked = moved & (frame["migrationCause"] == _ASKED).fill_null(False)
    return {
        "kind": "copy",
        "name": _copy_names(kind, source, target, moved.cast(pl.Int8) + asked),
        "copy_kind": kind,
        "src_memory": source,
        "dst_memory": target,
    }


def _copy_names(kind: pl.Series, source: pl.Series, target: pl.Series, by: pl.Series) -> pl.Series:
    """As PyTorch's profiler writes them: ``Memcpy HtoD (Pageable -> Device)``; nsys keeps no name for a copy."""
    parts = pl.DataFrame({"kind": kind, "source": source, "target": target, "by": by})
    distinct = parts.unique(maintain_order=True)
    texts = [
        f"{_BY[by]} {_COPY_NAME[kind or 'unknown']}"
        + (f" ({source.capitalize()} -> {target.capitalize()})" if source and target else "")
        for kind, source, target, by in distinct.iter_rows()
    ]
    return _named_alike(parts, distinct, texts)


def _named_alike(rows: pl.DataFrame, distinct: pl.DataFrame, texts: Sequence[str]) -> pl.Series:
    """The text of each row as a category, by those of the distinct rows."""
    named = distinct.with_columns(pl.Series("name", texts, dtype=pl.Categorical()))
    return rows.join(named, on=rows.columns, how="left", nulls_equal=True, maintain_order="left")["name"]


def _sets(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    memory = MEMORY.words_of(session.export, frame["memKind"])
    texts = [f"Memset ({kind.capitalize()})" for kind in MEMORY.dtype.categories]
    names = pl.Series([*texts, "Memset"], dtype=pl.Categorical())
    return {
        "kind": "set",
        "name": names[memory.to_physical().cast(pl.UInt32).fill_null(len(texts))],
        "dst_memory": memory,
    }


def _graphs(session: ExportReading, frame: pl.DataFrame) -> Mapping[str, Any]:
    graph = frame["graphExecId"].fill_null(frame["graphId"])
    message = (
        "CUDA graph replays were recorded as a whole: which kernels ran in them is unknown "
        "(nsys profile --cuda-graph-trace=node records each)"
    )
    session.note(NoteKind.DATA_LOSS, message, frame.height, GRAPH_NODES)
    graphs = graph.to_frame("graph")
    distinct = graphs.unique(maintain_order=True)
    texts = [f"CUDA graph {'?' if number is None else number}" for number in distinct["graph"]]
    return {"kind": "graph", "name": _named_alike(graphs, distinct, texts), "graph_id": graph}


def graph_nodes(session: ExportReading) -> pl.DataFrame:
    """`graph_nodes`: each node with the moment at which the node that it is a clone of, of a clone and so on, was made.

    A graph is captured into nodes, and each executable graph made of it has clones of these, which its kernels name.
    """
    nodes = session.rows(nsys_tables.GRAPH_NODE_EVENTS).sort("originalGraphNodeId", nulls_last=False)
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
    made = made.with_columns(pl.col("globalTid").fill_null(0))
    return session.table(GRAPH_NODES, made, recorded_ns=made["start"])


def _nonzero(ids: pl.Series) -> pl.Series:
    """Old exports write 0 where newer ones write nothing."""
    return ids.replace(0, None) if ids.null_count() < len(ids) else ids


_GPU_IN_TYPE = (1 << 32) - 1  # low half of a metric's typeId; the virtual machine is above
_ON_HOST = ("pageable", "pinned")
_RELEASE = 1  # CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION
_DESCRIBED = {
    "name": "name", "compute_major": "computeMajor", "compute_minor": "computeMinor", "sm_count": "smCount",
    "memory_bytes": "totalMemory", "bandwidth_bytes_per_s": "memoryBandwidth", "l2_bytes": "l2CacheSize",
    "clock_hz": "clockRate",
}  # fmt: skip


def devices(session: ExportReading, worked: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """`devices`: what each rank could see, and what it used; `worked` holds (rank, device)."""
    gpus = _gpus(session).unique("id", keep="first", maintain_order=True)
    ordinals = _gpu_of_ordinal(session, gpus)
    rows = [(*row, ordinals.get(row, row[1])) for row in sorted({*worked, *ordinals})]
    seen = pl.DataFrame(rows, {"rank": pl.Int32, "device": pl.Int32, "id": pl.Int32}, orient="row")
    seen = seen.join(gpus, on="id", how="left", maintain_order="left")
    stated = {ours: seen[theirs].replace("" if theirs == "name" else 0, None) for ours, theirs in _DESCRIBED.items()}
    return DEVICES.build({"rank": seen["rank"], "device": seen["device"], **stated})


def _gpus(session: ExportReading) -> pl.DataFrame:
    """The GPUs of the machine; where only those that CUDA saw were exported, as in 2021, these."""
    gpus = session.export.read(nsys_tables.GPUS)
    if gpus.height:
        return gpus
    older = session.export.read(nsys_tables.CUDA_GPUS)
    own = {"id": "deviceId", "cuDevice": "deviceId", "smCount": "numMultiprocessors", "name": "name"}
    own |= {"computeMajor": "computeCapabilityMajor", "computeMinor": "computeCapabilityMinor"}
    return pl.concat([gpus, older.select("l2CacheSize", **own)], how="diagonal")


def _gpu_of_ordinal(session: ExportReading, gpus: pl.DataFrame) -> dict[tuple[int, int], int]:
    """Which GPU of the machine each (rank, device ordinal) is, as far as the file tells."""
    table = session.export.read(nsys_tables.CUDA_DEVICES)
    gpus_seen = {
        (session.ranks.of_process[pid], ordinal): gpu
        for pid, gpu, ordinal in table.select("pid", "gpuId", "cudaId").iter_rows()
        if pid in session.ranks.of_process
    }
    if gpus_seen or len(session.ranks.all) > 1:
        return gpus_seen
    ordinals = dict(gpus.select("id", "cuDevice").iter_rows())
    distinct = None not in ordinals.values() and len(set(ordinals.values())) == len(ordinals)
    return {(session.ranks.all[0], ordinal if distinct else gpu): gpu for gpu, ordinal in ordinals.items()}


def gpu_metrics(session: ExportReading, worked: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """`gpu_metrics`: each sample with the rank and ordinal of its GPU: of the ranks that saw it the lowest that
    `worked` (rank, device) there; of one that no rank saw the lowest rank."""
    frame = session.rows(nsys_tables.METRICS)
    names = session.export.read(nsys_tables.METRIC_NAMES)
    names = names.unique(["typeId", "metricId"], keep="first", maintain_order=True)
    frame = frame.join(names, on=["typeId", "metricId"], how="left", maintain_order="left")
    lost = frame["metricName"].null_count()
    session.note(NoteKind.DATA_LOSS, "samples of counters that the file does not name", lost, GPU_METRICS)
    frame = frame.drop_nulls("metricName") if lost else frame
    gpu = pl.Series("gpu", frame["typeId"].to_numpy() & _GPU_IN_TYPE, dtype=pl.Int64)
    ordinals = _gpu_of_ordinal(session, _gpus(session))
    lowest_last = sorted(ordinals.items(), reverse=True)
    user_of = {number: user for user, number in sorted(lowest_last, key=lambda one: one[0] in worked)}
    numbers = gpu.unique(maintain_order=True)
    users = [user_of.get(number, (session.ranks.all[0], number)) for number in numbers]
    rank, device = (
        gpu.replace_strict(numbers, pl.Series([user[at] for user in users], dtype=pl.Int64), return_dtype=pl.Int32)
        for at in (0, 1)
    )
    columns = {"rank": rank, "device": device, "name": frame["metricName"], "time_ns": frame["timestamp"]}
    return session.table(GPU_METRICS, frame, **columns)


def memory_events(session: ExportReading) -> pl.DataFrame:
    """`memory_events`: allocations and releases of CUDA memory; host memory is device -1."""
    frame = session.rows(nsys_tables.MEMORY_USAGE)
    kind = MEMORY.words_of(session.export, frame["memKind"]).fill_null("unknown").cast(pl.String)
    actions = {0: "Allocation", 1: "Deallocation", **identifiers.labels(session.export, nsys_tables.MEMORY_ACTIONS)}
    action = frame["memoryOperationType"].replace_strict(actions, default="unknown", return_dtype=pl.String)
    released = (frame["memoryOperationType"] == _RELEASE).fill_null(False)
    on_host = pl.Series([-1], dtype=pl.Int32).new_from_index(0, frame.height)
    return session.table(
        MEMORY_EVENTS,
        frame.with_columns(process_of(frame["globalPid"])),
        device=on_host.zip_with(kind.is_in(_ON_HOST), frame["deviceId"].fill_null(0)),
        action=kind + pl.Series([" "]) + action.fill_null("unknown"),
        time_ns=frame["start"],
        address=frame["address"].reinterpret(signed=False),
        bytes=(-frame["bytes"]).zip_with(released, frame["bytes"]),
    )
