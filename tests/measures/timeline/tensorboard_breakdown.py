"""Each step split as PyTorch's own TensorBoard plug-in split it: for comparison with its figures, not for diagnosis.

The plug-in gives every instant of a step to the first of Kernel, Memcpy, Memset, Communication, Runtime, DataLoader,
CPU Exec, Other that is active on any device or thread of the process. A step there is its host range, moved so that it
begins where the step before it ended and ends no earlier than the last device op launched inside it. It differs from
`budget` in the order of priority (copies before communication), in counting the host, and in the bounds of steps.
(After the plug-in's `overall_parser.py` and `event_parser.py`, pytorch/kineto; removed from there in 2026.)
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.op_class import op_class
from timesink.measures.steps.marks import STEP_COLUMNS, StepMarker, step_marks
from timesink.measures.timeline.attribution import launch_links
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered

ROLES: Final = (
    "kernel_ns",
    "memcpy_ns",
    "memset_ns",
    "communication_ns",
    "runtime_ns",
    "data_loader_ns",
    "cpu_exec_ns",
    "other_ns",
)
_LOADER: Final = r"^enumerate\(DataLoader\)#.*\.__next__$|^enumerate\(DataPipe\)#"
_STEP: Final = r"^ProfilerStep#"
_TRUNCATED: Final = 0.8  # a last step with fewer device ops than this share of the one before it is left out, as there


@dataclass(frozen=True, slots=True, eq=False)
class TensorboardBreakdown:
    """`frame`: one row per rank and step, in order: rank, label, start_ns, end_ns and the eight `ROLES`, which sum to
    end_ns - start_ns. Empty where no ProfilerStep marks the steps."""

    frame: pl.DataFrame


@remembered
def tensorboard_breakdown(trace: Trace) -> TensorboardBreakdown:
    """Split the steps of every rank."""
    found = step_marks(trace)
    schema = {"rank": pl.Int32, "label": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64} | dict.fromkeys(
        ROLES, pl.Int64
    )
    parts = [pl.DataFrame(schema=schema)]
    if found.marker is StepMarker.PROFILER_STEP:
        for key, part in found.frame.partition_by("rank", "process", as_dict=True, maintain_order=True).items():
            mine = {
                table: _of_process(trace, table, key) for table in (DEVICE_OPS, API_CALLS, RANGES, HOST_OPS, FRAMES)
            }
            steps = _device_side(part, mine[DEVICE_OPS], mine[API_CALLS])
            parts.append(_split(steps, _roles(mine)).select(list(schema)))
    return TensorboardBreakdown(pl.concat(parts))


def _of_process(trace: Trace, table: Table, key: tuple[object, ...]) -> pl.DataFrame:
    frame = trace.get(table)
    if table is DEVICE_OPS:
        frame = frame.with_columns(op_class(frame), pl.Series("call", launch_links(trace).call))
    if table is API_CALLS:
        frame = frame.with_row_index("call").with_columns(pl.col("call").cast(pl.Int64))
    return frame.filter((pl.col("rank") == key[0]) & (pl.col("process") == key[1]))


def _device_side(part: pl.DataFrame, ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """The steps with start_ns and end_ns moved by their device work; a last step with too little of it left out."""
    placed = calls.select("call", pl.col("start_ns").alias("called"), pl.col("end_ns").alias("returned")).sort("called")
    placed = placed.join_asof(
        part.select("step", "host_start_ns", "mark_end_ns").sort("host_start_ns"),
        left_on="called",
        right_on="host_start_ns",
    ).filter(pl.col("returned") <= pl.col("mark_end_ns"))
    launched = ops.join(placed.select("call", "step"), on="call", how="left")
    reach = (
        launched.drop_nulls("step")
        .group_by("step")
        .agg(pl.col("start_ns").min().alias("first"), pl.col("end_ns").max().alias("last"), pl.len().alias("ops"))
    )
    steps = part.select(*STEP_COLUMNS).join(reach, on="step", how="left", maintain_order="left")
    if not reach.height:
        return steps.with_columns(pl.col("host_start_ns").alias("start_ns"), pl.col("mark_end_ns").alias("end_ns"))
    first = steps["first"][0]
    before = launched.filter(pl.col("step").is_null() & (pl.col("end_ns") < first))["end_ns"].max() if first else None
    previous = max(steps["host_start_ns"][0], int(before) if isinstance(before, int) else 0)
    starts, ends = [], []
    for host_start, host_end, last in steps.select("host_start_ns", "mark_end_ns", "last").iter_rows():
        starts.append(max(previous, host_start))
        previous = max(host_end, starts[-1] if last is None else last)
        ends.append(previous)
    moved = steps.with_columns(pl.Series("start_ns", starts), pl.Series("end_ns", ends), pl.col("ops").fill_null(0))
    return moved.head(_complete(moved["ops"].to_list()))


def _complete(ops: list[int]) -> int:
    """How many leading steps to keep: those up to the last with device work, less that one if it looks cut off."""
    last = max(index for index, count in enumerate(ops) if count)
    return last if last and _TRUNCATED * ops[last - 1] > ops[last] else last + 1


def _roles(mine: dict[Table, pl.DataFrame]) -> list[Intervals]:
    ops = mine[DEVICE_OPS]
    talks = ops["op_class"] == "communication"
    host = [mine[table].select("name", "start_ns", "end_ns") for table in (RANGES, HOST_OPS, FRAMES)]
    loading = [frame.filter(matches(frame["name"], _LOADER)) for frame in host]
    working = [frame.filter(~matches(frame["name"], f"{_LOADER}|{_STEP}")) for frame in host]
    return [
        Intervals.of(ops.filter(ops["kind"].is_in(["kernel", "graph"]) & ~talks)),
        Intervals.of(ops.filter(ops["kind"] == "copy")),
        Intervals.of(ops.filter(ops["kind"] == "set")),
        Intervals.of(ops.filter(talks)),
        Intervals.of(mine[API_CALLS]),
        Intervals.union_all(Intervals.of(frame) for frame in loading),
        Intervals.union_all(Intervals.of(frame) for frame in working),
    ]


def _split(steps: pl.DataFrame, roles: list[Intervals]) -> pl.DataFrame:
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    taken = Intervals.none()
    left = end - start
    columns = []
    for name, role in zip(ROLES[:-1], roles, strict=True):
        share = (role - taken).covered_ns(start, end)
        taken, left = taken | role, left - share
        columns.append(pl.Series(name, share))
    return steps.with_columns(*columns, pl.Series(ROLES[-1], np.asarray(left, np.int64)))
