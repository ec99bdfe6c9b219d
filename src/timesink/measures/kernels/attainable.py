"""How near operators run to what the device allows: their work over the time of the kernels they launch.

bound = max(operations / attainable rate, bytes / attainable bandwidth, a floor per kernel), the roofline of Williams et
al. (CACM 52-4, 2009) with a floor for latency. Attainable rates are datasheet peaks (dense) times what real kernels
reach (`knowledge.gpus`). Reads that hit in the L2 cache can beat the DRAM bound: a share over 1 is kept, and is no
error.

Of operators far from that bound, those whose kernels a measure explains (casts, layouts, elementwise chains, unfused
attention, wide types, misaligned products, small grids, serialized streams, unfused optimizers) have a known cause. The
others are work for a kernel profiler: `far_operators`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import GpuPeaks, Precision
from timesink.knowledge.operators import OperatorWork
from timesink.knowledge.work import recorded_work
from timesink.measures.kernels.conversions import cast_kernels, layout_kernels
from timesink.measures.kernels.facts import all_rows, device_peaks, kernel_facts
from timesink.measures.kernels.fusion import optimizer_kernels, pointwise_chains, unfused_attention
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.small_grids import serialized_streams, small_grids
from timesink.model.arrays import Int64Array
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.whatif.change import Selection

_SIGNATURE = ["name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs"]
_TENSOR = frozenset({"bf16", "fp16", "tf32", "fp8", "int8", "fp4"})


@dataclass(frozen=True, slots=True, eq=False)
class Attainable:
    """Operators and their bounds.

    `operators`: one row per (rank, device, name, input_shapes, math), most time first. Columns besides those: kind,
    calls, kernels, device_ns, flops, bytes, bound_ns, limiter (memory, compute or latency), attained_ratio (bound_ns /
    device_ns), kernel (its longest kernel). `device_ns` sums durations. Only operators whose shapes were recorded and
    whose GPU is in the table of peaks are here: `covered_ratio` is their share of all kernel time, None where the
    device's peaks are unknown. Kernels of graph replays have no operator.
    """

    operators: pl.DataFrame
    covered_ratio: float | None

    @property
    def attained_ratio(self) -> float | None:
        """Sum of bounds / sum of device time over all rows, no row above 1; None where there are no rows."""
        total = self.operators["device_ns"].sum()
        bounded = self.operators.select(pl.min_horizontal("bound_ns", "device_ns").sum()).item()
        return float(bounded / total) if total else None


@remembered
def attainable(trace: Trace) -> Attainable:
    """The share of the attainable bound that each operator reaches; empty without recorded shapes."""
    gpus = device_peaks(trace)
    rows = []
    for row in _calls(trace).iter_rows(named=True):
        gpu = gpus.get((row["rank"], row["device"]))
        figures = None if gpu is None else _figures(row, gpu)
        if figures is not None:
            rows.append({**row, **figures})
    operators = pl.DataFrame(rows, schema=_SCHEMA).sort(
        ["rank", "device", "device_ns", "name", "input_shapes", "math"],
        descending=[False, False, True, False, False, False],
    )
    total_ns = int(kernel_facts(trace).frame["length"].sum())
    covered = float(operators["device_ns"].sum() / total_ns) if gpus and total_ns else None
    return Attainable(operators, covered)


_SCHEMA = {
    "rank": pl.Int32,
    "device": pl.Int32,
    "name": pl.String,
    "input_shapes": pl.String,
    "math": pl.String,
    "kernel": pl.String,
    "calls": pl.Int64,
    "kernels": pl.Int64,
    "device_ns": pl.Int64,
    "kind": pl.String,
    "flops": pl.Float64,
    "bytes": pl.Float64,
    "bound_ns": pl.Float64,
    "limiter": pl.String,
    "attained_ratio": pl.Float64,
}


def _calls(trace: Trace) -> pl.DataFrame:
    """Operator calls that launched kernels, grouped by signature and arithmetic of their longest kernel."""
    host = trace.get(HOST_OPS)
    kernels = kernel_facts(trace).frame.filter(pl.col("host_op") >= 0)
    longest = pl.col("length").arg_max()
    per_call = kernels.group_by("rank", "device", "host_op").agg(
        pl.col("length").sum().alias("device_ns"),
        pl.len().cast(pl.Int64).alias("kernels"),
        pl.col("math").cast(pl.String).fill_null("").get(longest),
        pl.col("row").get(longest),
    )
    signature = host.select(pl.col(name).cast(pl.String) for name in _SIGNATURE).with_row_index("host_op")
    signature = signature.with_columns(pl.col("host_op").cast(pl.Int64))
    joined = per_call.join(signature, on="host_op", how="inner").filter(pl.col("input_shapes").is_not_null())
    calls = (
        joined.sort("host_op")
        .group_by("rank", "device", *_SIGNATURE, "math", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("kernels").sum(),
            pl.col("device_ns").sum(),
            pl.col("row").get(pl.col("device_ns").arg_max()),
        )
    )
    names = trace.get(DEVICE_OPS)["name"].gather(calls["row"])
    return calls.with_columns(names.cast(pl.String).alias("kernel"))


def _figures(row: dict[str, object], gpu: GpuPeaks) -> dict[str, object] | None:
    """Bound of a group of equal calls, or None where the operator's work or the rate it needs is unknown."""
    texts = [None if row[name] is None else str(row[name]) for name in _SIGNATURE]
    work = recorded_work(texts[0] or "", texts[1] or "", texts[2] or "", texts[3], texts[4])
    calls, kernels, device_ns = (int(str(row[name])) for name in ("calls", "kernels", "device_ns"))
    if work is None or not device_ns:
        return None
    parts = {
        "memory": calls * work.bytes / (gpu.dram_bytes_per_s * machines.DRAM_SHARE.value) * 1e9,
        "compute": calls * _compute_ns(work, str(row["math"]), gpu),
        "latency": kernels * machines.KERNEL_FLOOR_US.ns,
    }
    limiter = max(parts, key=lambda name: parts[name])
    bound = parts[limiter]
    return {
        "kind": work.kind.value,
        "flops": calls * work.flops,
        "bytes": calls * float(work.bytes),
        "bound_ns": bound,
        "limiter": limiter,
        "attained_ratio": bound / device_ns,
    }


def _compute_ns(work: OperatorWork, math: str, gpu: GpuPeaks) -> float:
    """Time of the operations at the attainable rate of the arithmetic the kernel's name shows, else of the operands."""
    path = math or work.dtype
    rate = gpu.flops_of(Precision(path)) if path in set(Precision) else None
    if rate is None or not work.flops:
        return 0.0
    return work.flops / (rate * (machines.TENSOR_SHARE.value if path in _TENSOR else 1.0)) * 1e9


_KEY: Final = ["rank", "device", "op", "input_shapes", "math"]


@dataclass(frozen=True, slots=True, eq=False)
class FarOperator:
    """Equal calls of an operator: what bounds them (memory, compute, latency), the share of that bound they reach, and
    their kernels."""

    name: str
    shapes: str
    limiter: str
    attained_ratio: float
    kernels: Selection


@remembered
def far_operators(trace: Trace) -> tuple[FarOperator, ...]:
    """Every operator whose bound is known and whose time no pattern explains, longest first."""
    operators = attainable(trace).operators
    host = trace.get(HOST_OPS)
    if not operators.height or not host.height:
        return ()
    calls = host.select(pl.col("name", "input_shapes").cast(pl.String)).rename({"name": "op"})
    calls = calls.with_row_index("host_op").with_columns(pl.col("host_op").cast(pl.Int64))
    frame = kernel_facts(trace).frame.filter(~pl.col("row").is_in(pl.Series(_explained(trace)).implode()))
    frame = frame.drop("op").join(calls, on="host_op", how="inner")
    frame = frame.with_columns(pl.col("math").cast(pl.String).fill_null(""))
    bound = (
        operators.rename({"name": "op"})
        .group_by(_KEY)
        .agg(
            pl.col("limiter").sort_by("device_ns", descending=True).first(),
            pl.col("bound_ns").sum() / pl.col("calls").sum(),
        )
    )  # calls of one shape and several strides are one operator here
    joined = frame.join(bound, on=_KEY, how="inner", maintain_order="left")
    groups = joined.group_by(_KEY, maintain_order=True)
    longest_first = sorted(groups, key=lambda group: (-int(group[1]["length"].sum()), *map(str, group[0][2:])))
    return tuple(_operator(key, kernels) for key, kernels in longest_first)


def _operator(key: tuple[object, ...], kernels: pl.DataFrame) -> FarOperator:
    rank, device, name, shapes, _ = key
    reached = float(kernels["bound_ns"][0]) * kernels["host_op"].n_unique() / max(int(kernels["length"].sum()), 1)
    best = np.full(kernels.height, reached)
    selection = Selection((int(str(rank)), int(str(device))), {"kernel": kernels["row"].to_numpy()}, best=best)
    return FarOperator(str(name), str(shapes), str(kernels["limiter"][0]), reached, selection)


def _explained(trace: Trace) -> Int64Array:
    """Rows of `device_ops` of the kernels that the measures of known patterns found, and of fused attention.

    For that there is no other kernel to be had, and how much of it a mask leaves out is not recorded.
    """
    fused = kernel_facts(trace).frame.filter(pl.col("family") == "attention")["row"].to_numpy()
    found = all_rows(
        [
            *cast_kernels(trace),
            *layout_kernels(trace),
            *unfused_attention(trace),
            *pointwise_chains(trace),
            *(kernels for kind in wide_kernels(trace).values() for kernels in kind),
            *misaligned_products(trace),
            *small_grids(trace),
            *(found.serial for found in serialized_streams(trace)),
            *(found.unfused for found in optimizer_kernels(trace)),
        ]
    )
    return np.union1d(found, fused)
