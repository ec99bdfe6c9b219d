"""All steps a trace shows, by whichever mark shows them, and the step each device op belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.links import launch_links
from timesink.measures.memo import remembered
from timesink.measures.periodicity import anchors
from timesink.measures.step_markers import MarkedSteps, Marker, marked_steps
from timesink.model.op_class import communicates
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace

STEP_COLUMNS = pl.Schema(
    {
        "rank": pl.Int32(),
        "process": pl.Int64(),
        "step": pl.Int32(),
        "label": pl.String(),
        "thread": pl.Int64(),
        "host_start_ns": pl.Int64(),
        "host_end_ns": pl.Int64(),
        "mark_end_ns": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class FoundSteps:
    """`frame` has STEP_COLUMNS, `step` counting from 0 in each process; `on_device` says that its times are the
    GPU's, which is so only for kernel patterns whose launches are not recorded."""

    marker: Marker | None
    name: str
    frame: pl.DataFrame
    on_device: bool


@remembered
def found_steps(trace: Trace) -> FoundSteps:
    """Marked steps of all processes; where no process marks any, steps by kernel pattern."""
    marked = marked_steps(trace)
    on_device = False
    if not marked:
        on_device = not launch_links(trace).linked_count
        marked = _pattern_steps(trace, on_device)
    frames = [
        part.frame.select(
            pl.lit(part.rank, pl.Int32).alias("rank"),
            pl.lit(part.process, pl.Int64).alias("process"),
            pl.int_range(pl.len(), dtype=pl.Int32).alias("step"),
            *("label", "thread", "host_start_ns", "host_end_ns", "mark_end_ns"),
        )
        for part in marked
    ]
    return FoundSteps(
        marker=marked[0].marker if marked else None,
        name=marked[0].name if marked else "",
        frame=pl.concat([pl.DataFrame(schema=STEP_COLUMNS), *frames]),
        on_device=on_device,
    )


@remembered
def step_of_ops(trace: Trace) -> npt.NDArray[np.int32]:
    """For each row of `device_ops`, the step of its process in which it was launched; -1 outside all, or not known."""
    found, links = found_steps(trace), launch_links(trace)
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    if found.on_device:
        when, known = ops["start_ns"].to_numpy(), np.ones(ops.height, np.bool_)
    else:
        known = links.linked
        starts = calls["start_ns"].to_numpy()
        when = (
            np.where(known, starts[np.where(known, links.call, 0)], 0)
            if calls.height
            else np.zeros(ops.height, np.int64)
        )
    step = np.full(ops.height, -1, np.int32)
    rank, process = ops["rank"].to_numpy(), ops["process"].to_numpy()
    for key, part in found.frame.partition_by("rank", "process", as_dict=True, maintain_order=True).items():
        rows = np.flatnonzero(known & (rank == key[0]) & (process == key[1]))
        starts, end = part["host_start_ns"].to_numpy(), int(part["host_end_ns"].to_numpy()[-1])
        index = np.searchsorted(starts, when[rows], side="right") - 1
        step[rows] = np.where(when[rows] < end, index, -1)
    return step


def _pattern_steps(trace: Trace, on_device: bool) -> list[MarkedSteps]:
    ops = trace.get(DEVICE_OPS)
    call = pl.Series("call", launch_links(trace).call)
    kernels = ops.select(
        "rank", "process", "device", "stream", "kind", "name", "start_ns", "end_ns", "grid_x", "grid_y", "grid_z"
    )
    kernels = kernels.with_columns(call).filter((ops["kind"] == "kernel") & ~communicates(ops["name"]))
    found = []
    for (rank, process), mine in sorted(kernels.partition_by("rank", "process", as_dict=True).items()):
        stream = (
            mine.group_by("device", "stream")
            .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("busy"))
            .sort(["busy", "device", "stream"], descending=[True, False, False])
        )
        line = mine.join(stream.head(1), on=["device", "stream"], how="semi").sort("start_ns", "end_ns")
        rows = anchors(line)
        if rows.size:
            found.append(_pattern(trace, line[rows], (int(rank), int(process)), on_device))
    return [part for part in found if part is not None]


def _pattern(trace: Trace, marks: pl.DataFrame, process: tuple[int, int], on_device: bool) -> MarkedSteps | None:
    if on_device:
        starts, threads = marks["start_ns"], pl.Series("thread", [0]).new_from_index(0, marks.height)
    else:
        launched = marks.filter(pl.col("call") >= 0)["call"]
        calls = trace[API_CALLS][launched.to_numpy()]
        starts, threads = calls["start_ns"], calls["thread"]
    name = str(marks["name"].cast(pl.String)[0])
    frame = (
        pl.DataFrame({"host_start_ns": starts, "thread": threads})
        .sort("host_start_ns")
        .unique("host_start_ns", keep="first", maintain_order=True)
    )
    if frame.height < 2:
        return None
    frame = frame.select(
        pl.format("step {}", pl.int_range(pl.len())).alias("label"),
        "thread",
        "host_start_ns",
        pl.col("host_start_ns").shift(-1).fill_null(pl.col("host_start_ns").max() + 1).alias("host_end_ns"),
    ).with_columns(pl.col("host_end_ns").alias("mark_end_ns"))
    return MarkedSteps(rank=process[0], process=process[1], marker=Marker.KERNEL_PATTERN, name=name, frame=frame)
