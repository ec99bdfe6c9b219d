"""The GPUs, their sampled counters, and device memory."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from timesink.model.tables import DEVICES, GPU_METRICS, MEMORY_EVENTS
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys import enums
from timesink.readers.nsys.export import CUDA_DEVICES, GPUS, MEMORY_USAGE, METRIC_NAMES, METRICS
from timesink.readers.nsys.processes import process_of
from timesink.readers.nsys.session import Session, joined, unsorted

_GPU_IN_TYPE = (1 << 32) - 1  # low half of a metric's typeId; the virtual machine is above
_ON_HOST = ("pageable", "pinned")
_RELEASE = 1  # CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION


def devices(session: Session, worked: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """`devices`: what each rank could see, and what it used; `worked` holds (rank, device)."""
    gpus = session.export.read(GPUS).unique("id", keep="first", maintain_order=True)
    described = {row["id"]: row for row in gpus.iter_rows(named=True)}
    ordinals = _gpu_of_ordinal(session, described)
    rows = sorted({*worked, *ordinals})
    found = [described.get(ordinals.get(row, row[1]), {}) for row in rows]
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
                ours: pl.Series([gpu.get(theirs) or None for gpu in found], dtype=DEVICES.columns[ours].dtype)
                for ours, theirs in columns.items()
            },
        }
    )


def _gpu_of_ordinal(session: Session, described: dict[int, dict[str, object]]) -> dict[tuple[int, int], int]:
    """Which GPU of the machine each (rank, device ordinal) is, as far as the file tells."""
    table = session.export.read(CUDA_DEVICES)
    found = {
        (session.ranks.of_process[pid], ordinal): gpu
        for pid, gpu, ordinal in table.select("pid", "gpuId", "cudaId").iter_rows()
        if pid in session.ranks.of_process
    }
    if found or len(session.ranks.all) > 1:
        return found
    rank = session.ranks.all[0]
    ordinals = {gpu: row["cuDevice"] for gpu, row in described.items()}
    distinct = None not in ordinals.values() and len(set(ordinals.values())) == len(ordinals)
    return {(rank, int(str(ordinals[gpu])) if distinct else gpu): gpu for gpu in described}


def gpu_metrics(session: Session) -> pl.DataFrame:
    """`gpu_metrics`: every sample under the rank and ordinal of its GPU; a GPU no rank saw stands under the lowest."""
    frame = session.rows(METRICS)
    names = session.export.read(METRIC_NAMES).unique(["typeId", "metricId"], keep="first", maintain_order=True)
    frame = frame.join(names, on=["typeId", "metricId"], how="left", maintain_order="left")
    if lost := frame["metricName"].null_count():
        message = "samples of counters that the file does not name"
        session.notes.append(ImportNote(NoteKind.DATA_LOSS, message, lost, GPU_METRICS.name))
        frame = frame.drop_nulls("metricName")
    gpu = pl.Series("gpu", frame["typeId"].to_numpy() & _GPU_IN_TYPE, dtype=pl.Int64)
    described = {row["id"]: row for row in session.export.read(GPUS).iter_rows(named=True)}
    seen = {number: place for place, number in sorted(_gpu_of_ordinal(session, described).items(), reverse=True)}
    places = [seen.get(number, (session.ranks.all[0], number)) for number in gpu.unique(maintain_order=True)]
    numbers = gpu.unique(maintain_order=True)
    rank, device = (
        gpu.replace_strict(numbers, pl.Series([place[part] for place in places], dtype=pl.Int64), return_dtype=pl.Int32)
        for part in (0, 1)
    )
    columns = {"rank": rank, "device": device, "name": frame["metricName"], "time_ns": frame["timestamp"]}
    return joined(GPU_METRICS, [unsorted(GPU_METRICS, {**columns, "value": frame["value"]})])


def memory_events(session: Session) -> pl.DataFrame:
    """`memory_events`: allocations and releases of CUDA memory; host memory is device -1."""
    frame = session.rows(MEMORY_USAGE)
    kind = enums.as_memory(frame["memKind"], enums.memory_kinds(session.export)).fill_null("unknown")
    actions = {0: "Allocation", 1: "Deallocation", **enums.labels(session.export, "ENUM_CUDA_DEV_MEM_EVENT_OPER")}
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
    return joined(MEMORY_EVENTS, [unsorted(MEMORY_EVENTS, columns)])
