"""How near operators run to what the device allows: their work over the time of the kernels they launch.

bound = max(operations / attainable rate, bytes / attainable bandwidth, a floor per kernel). The attainable rates are
datasheet peaks (dense) times what real kernels reach: 93 % of DRAM bandwidth (best of nine GPUs seen in public Nsight
Compute reports) and 80 % of tensor-core peak (a bf16 product of 8192 x 8192 x 8192 on an H200: 790 of 989 TFLOP/s).
Reads that hit in the L2 cache can beat the DRAM bound: a share over 1 is kept, and is no error.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from timesink.knowledge.gpus import DRAM_SHARE, KERNEL_FLOOR_NS, TENSOR_SHARE, GpuPeaks, Precision, peaks
from timesink.knowledge.kernels import decode
from timesink.knowledge.work import Work
from timesink.knowledge.work.table import recorded_work
from timesink.measures.timeline.host_places import attribution
from timesink.model.names import mapped
from timesink.model.tables import DEVICE_OPS, DEVICES, HOST_OPS
from timesink.model.trace import Trace, remembered

_SIGNATURE = ["name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs"]
_TENSOR = frozenset({"bf16", "fp16", "tf32", "fp8", "int8", "fp4"})


@dataclass(frozen=True, slots=True, eq=False)
class Attainable:
    """`operators`: one row per (rank, device, name, input_shapes, math), most time first.

    Columns besides those: kind, calls, kernels, device_ns, flops, bytes, bound_ns, limiter (memory, compute or
    latency), attained_ratio (bound_ns / device_ns), kernel (its longest kernel). `device_ns` sums durations. Only
    operators whose shapes were recorded and whose GPU is in the table of peaks are here: `covered_ratio` is their share
    of all kernel time, None where the device's peaks are unknown. Kernels of graph replays have no operator.
    """

    operators: pl.DataFrame
    covered_ratio: float | None

    @property
    def attained_ratio(self) -> float | None:
        """Σ bound / Σ device time over all rows, no row above 1; None where there are none."""
        total = self.operators["device_ns"].sum()
        bounded = self.operators.select(pl.min_horizontal("bound_ns", "device_ns").sum()).item()
        return float(bounded / total) if total else None


@remembered
def attainable(trace: Trace) -> Attainable:
    """The share of the attainable bound that each operator reaches."""
    known = {
        (rank, device): found
        for rank, device, name in trace.get(DEVICES).select("rank", "device", "name").iter_rows()
        if name and (found := peaks(name)) is not None
    }
    calls = _calls(trace)
    total_ns = int(_kernels(trace)["length"].sum())
    rows = [row for row in calls.iter_rows(named=True) if (row["rank"], row["device"]) in known]
    figures = [_figures(row, known[row["rank"], row["device"]]) for row in rows]
    kept = [(row, figure) for row, figure in zip(rows, figures, strict=True) if figure is not None]
    frame = pl.DataFrame([{**row, **figure} for row, figure in kept], schema=_SCHEMA).sort(
        ["rank", "device", "device_ns", "name", "input_shapes", "math"],
        descending=[False, False, True, False, False, False],
    )
    covered = float(frame["device_ns"].sum() / total_ns) if known and total_ns else None
    return Attainable(frame, covered)


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


def _kernels(trace: Trace) -> pl.DataFrame:
    """Every kernel with its operator row, length and arithmetic."""
    ops = trace.get(DEVICE_OPS)
    frame = ops.select("rank", "device", "name", "kind", (pl.col("end_ns") - pl.col("start_ns")).alias("length"))
    math = mapped(ops["name"], lambda names: names.map_elements(_math_of, pl.String), pl.String)
    return frame.with_columns(
        pl.Series("host_op", attribution(trace).host_op, pl.Int64), math.alias("math"), pl.col("name").cast(pl.String)
    ).filter(pl.col("kind") == "kernel")


def _math_of(name: str) -> str:
    return decode(name).math or ""


def _calls(trace: Trace) -> pl.DataFrame:
    """Operator calls that launched kernels, grouped by signature and arithmetic of their longest kernel."""
    host = trace.get(HOST_OPS)
    kernels = _kernels(trace).filter(pl.col("host_op") >= 0)
    longest = pl.col("length").arg_max()
    per_call = kernels.group_by("rank", "device", "host_op").agg(
        pl.col("length").sum().alias("device_ns"),
        pl.len().cast(pl.Int64).alias("kernels"),
        pl.col("math").get(longest),
        pl.col("name").get(longest).alias("kernel"),
    )
    signature = host.select(pl.col(name).cast(pl.String) for name in _SIGNATURE).with_row_index("host_op")
    signature = signature.with_columns(pl.col("host_op").cast(pl.Int64))
    joined = per_call.join(signature, on="host_op", how="inner").filter(pl.col("input_shapes").is_not_null())
    key = ["rank", "device", *_SIGNATURE, "math"]
    return (
        joined.sort("host_op")
        .group_by(key, maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("kernels").sum(),
            pl.col("device_ns").sum(),
            pl.col("kernel").get(pl.col("device_ns").arg_max()),
        )
    )


def _figures(row: dict[str, object], gpu: GpuPeaks) -> dict[str, object] | None:
    """Bound of a group of equal calls, or None where the operator's work or the rate it needs is unknown."""
    texts = [None if row[name] is None else str(row[name]) for name in _SIGNATURE]
    work = recorded_work(texts[0] or "", texts[1] or "", texts[2] or "", texts[3], texts[4])
    calls, kernels, device_ns = (int(str(row[name])) for name in ("calls", "kernels", "device_ns"))
    if work is None or not device_ns:
        return None
    parts = {
        "memory": calls * work.bytes / (gpu.dram_bytes_per_s * DRAM_SHARE) * 1e9,
        "compute": calls * _compute_ns(work, str(row["math"]), gpu),
        "latency": kernels * KERNEL_FLOOR_NS,
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


def _compute_ns(work: Work, math: str, gpu: GpuPeaks) -> float:
    """Time of the operations at the attainable rate of the arithmetic the kernel's name shows, else of the operands."""
    path = math or work.dtype
    rate = gpu.flops_of(Precision(path)) if path in set(Precision) else None
    if rate is None or not work.flops:
        return 0.0
    return work.flops / (rate * (TENSOR_SHARE if path in _TENSOR else 1.0)) * 1e9
