"""Which kernels there are, how often they run, how long, and how small they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.memo import remembered
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.op_class import op_class
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """`frame`: one row per (rank, device, name), longest total first.

    Columns: rank, device, name, op_class, count, total_ns, mean_ns, min_ns, max_ns, small_ns, time_ratio. `time_ratio`
    is the row's share of all kernel durations on the device, which sum to 1; durations of kernels that ran at once on
    several streams count in full, so it is no share of busy time. Graphs traced as a whole are not kernels and are
    left out.
    """

    frame: pl.DataFrame


@dataclass(frozen=True, slots=True)
class SmallKernels:
    """Kernels of one device shorter than `limit_ns`: how many of `kernel_count`, and what share of busy time is theirs.

    `busy_ratio` is a union over streams, so it never passes 1; `median_ns` is over all kernels of the device.
    """

    rank: int
    device: int
    limit_ns: int
    count: int
    kernel_count: int
    union_ns: int
    busy_ratio: float
    median_ns: float

    @property
    def count_ratio(self) -> float:
        """Share of the kernels that are small."""
        return self.count / self.kernel_count if self.kernel_count else 0.0


@remembered
def kernels(trace: Trace) -> Kernels:
    """Summarise kernels by name and device."""
    key = ["rank", "device", "name"]
    length = pl.col("end_ns") - pl.col("start_ns")
    frame = (
        _kernel_rows(trace)
        .lazy()
        .with_columns(length.alias("length"))
        .group_by(key)
        .agg(
            pl.col("op_class").first(),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("length").sum().alias("total_ns"),
            pl.col("length").mean().alias("mean_ns"),
            pl.col("length").min().alias("min_ns"),
            pl.col("length").max().alias("max_ns"),
        )
        .with_columns((pl.col("total_ns") / pl.col("total_ns").sum().over("rank", "device")).alias("time_ratio"))
        .with_columns(pl.col("name").cast(pl.String))
        .sort(["rank", "device", "total_ns", "name"], descending=[False, False, True, False])
        .collect()
    )
    return Kernels(frame)


def small_kernels(trace: Trace, limit_ns: int) -> tuple[SmallKernels, ...]:
    """Kernels shorter than `limit_ns` on each device, in order of (rank, device)."""
    lines = device_timeline(trace)
    found = []
    for (rank, device), part in _kernel_rows(trace).group_by("rank", "device", maintain_order=True):
        length = (part["end_ns"] - part["start_ns"]).to_numpy()
        small = part.filter(pl.Series(length < limit_ns))
        union_ns = Intervals.of(small).total_ns
        busy_ns = lines[int(rank), int(device)].busy_ns
        found.append(
            SmallKernels(
                rank=int(rank),
                device=int(device),
                limit_ns=limit_ns,
                count=small.height,
                kernel_count=part.height,
                union_ns=union_ns,
                busy_ratio=union_ns / busy_ns if busy_ns else 0.0,
                median_ns=float(np.median(length)),
            )
        )
    return tuple(found)


def _kernel_rows(trace: Trace) -> pl.DataFrame:
    ops = trace.get(DEVICE_OPS)
    rows = ops.select("rank", "device", "name", "start_ns", "end_ns").with_columns(op_class(ops))
    return rows.filter(ops["kind"] == "kernel")
