"""How much longer the same kernel takes while communication runs beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.memo import remembered
from timesink.measures.timeline import device_timeline
from timesink.model.nesting import key_slices
from timesink.model.op_class import op_class
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

# A launch shape says little by itself: only kernels whose free runs agree this well are compared.
_SPREAD: Final = 1.25
_INSTANCES: Final = 3
# Counted as beside communication from this share of its time; as free below the other.
_BESIDE, _FREE = 0.5, 0.02
_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@dataclass(frozen=True, slots=True, eq=False)
class Contention:
    """`frame`: rank, device, kernels, beside_ns, excess_ns. `kernels` had both kinds of run; `beside_ns` is the time of
    their runs beside communication and `excess_ns` what these took beyond the median of the free runs.

    A kernel is one name, grid and block. Only those whose free runs agree within a quarter (p90 over p10) are compared;
    another problem size under one launch shape would show as spread. A GPU without such kernels has no row.
    """

    frame: pl.DataFrame


@remembered
def contention(trace: Trace) -> Contention:
    """Compare each kernel's runs beside communication with its free runs."""
    ops = trace.get(DEVICE_OPS)
    shape = ["rank", "device", "name", *_SHAPE]
    known = (op_class(ops) == "compute") & (ops["kind"] == "kernel") & ops["grid_x"].is_not_null()
    beside = np.zeros(ops.height, np.bool_)  # on devices that communicate at all
    for (rank, device), first, last in key_slices(ops, ("rank", "device")):
        beside[first:last] = len(device_timeline(trace)[rank, device].communication) > 0
    known &= pl.Series(beside)
    kernels = ops.select(*shape, "start_ns", "end_ns").filter(known)
    kernels = kernels.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("length_ns"))
    parts = [kernels.clear().with_columns(pl.lit(0, pl.Int64).alias("covered_ns"))]
    for (rank, device), mine in kernels.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
        talking = device_timeline(trace)[rank, device].communication
        covered = talking.covered_ns(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())
        parts.append(mine.with_columns(pl.Series("covered_ns", covered)))
    share = pl.col("covered_ns") / pl.col("length_ns")
    length = pl.col("length_ns")
    runs = (
        pl.concat(parts)
        .filter(length > 0)
        .with_columns((share >= _BESIDE).alias("beside"), (share <= _FREE).alias("free"))
    )
    return Contention(
        runs.group_by(shape)
        .agg(
            length.filter("free").median().alias("alone_ns"),
            length.filter("free").quantile(0.1).alias("low"),
            length.filter("free").quantile(0.9).alias("high"),
            pl.col("free").sum().alias("free_count"),
            pl.col("beside").sum().alias("beside_count"),
            length.filter("beside").sum().alias("beside_ns"),
        )
        .filter(
            (pl.col("free_count") >= _INSTANCES)
            & (pl.col("beside_count") >= _INSTANCES)
            & (pl.col("high") <= _SPREAD * pl.col("low"))
        )
        .with_columns((pl.col("beside_ns") - pl.col("alone_ns") * pl.col("beside_count")).alias("excess_ns"))
        .group_by("rank", "device")
        .agg(
            pl.len().cast(pl.Int64).alias("kernels"),
            pl.col("beside_ns").sum(),
            pl.col("excess_ns").round().cast(pl.Int64).sum(),
        )
        .sort("rank", "device")
    )
