"""The simple formulas by which other tools put a figure on a finding, given the planted fault as known.

They are told which operations are at fault, which favours them: only the price is theirs. Shares of the profiled step.
"""

from __future__ import annotations

import polars as pl

from timesink.measures.kernels.attainable import attainable
from timesink.measures.steps import steps
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import Trace

IDLE = "sum of idle"
OPERATORS = "sum of operator time"
IMPACT = "TraceLens impact formula"
NAMES = (IMPACT, IDLE, OPERATORS)

# TraceLens (AMD-AGI/TraceLens at 171dd74): gap_mid = 0.875 · (1 − efficiency); an operation without a performance model
# counts with 30 % of its share; what leaves the device idle has no figure.
GAP_MID, UNMODELLED = 0.875, 0.30
UNQUANTIFIED = frozenset(
    {"host_sync", "input_pipeline", "launch_bound", "host_python", "unrecorded_code", "garbage_collection", "allocator",
     "graph_breaks", "recompilation", "stream_serialization", "profiler_overhead"}
)  # fmt: skip
"""Bottlenecks that show as idle time, for which TraceLens gives no figure."""

GEMM = r"(?i)gemm|nvjet|xmma|cutlass|cublas"
POINTWISE = r"(?i)elementwise|reduce_kernel|softmax|layer_norm"
KERNELS = {
    "precision": GEMM + r"|elementwise",
    "shape_alignment": GEMM,
    "attention_unfused": r"(?i)softmax|bmm|masked_fill|" + GEMM,
    "pointwise_unfused": POINTWISE,
    "layout_conversion": r"(?i)nchw|nhwc|copy_kernel|transpose",
    "dtype_conversion": r"(?i)copy_kernel|bfloat16_copy|direct_copy",
    "optimizer_unfused": r"(?i)multi_tensor|elementwise",
    "graph_breaks": r"(?i)triton",
    "occupancy": r"(?i)scan|cum",
    "stream_serialization": r"(?i)softmax",
}
"""Kernels a table of operators would show for the fault."""
CALLS = {
    "host_sync": r"(?i)synchronize|memcpy",
    "allocator": r"(?i)cuda(malloc|free)|mem(create|map|unmap)",
    "launch_bound": r"(?i)launch",
}
HOST = {
    "input_pipeline": r"(?i)dataloader|^data$",
    "garbage_collection": r"Python GC",
    "recompilation": r"(?i)dynamo|compile",
}
COPIES = {"host_to_device_copy": "h2d", "device_to_host_copy": "d2h"}


def window_ns(trace: Trace) -> tuple[int, int]:
    """Begin and end of the steady steps; of the device's work where there are none."""
    windows = steps(trace).windows
    frame = windows if windows.height else trace.get(DEVICE_OPS)
    return (int(frame["start_ns"].min()), int(frame["end_ns"].max())) if frame.height else (0, 1)  # type: ignore[arg-type]


def mean_step_ms(trace: Trace) -> float | None:
    """Mean period of the steady steps, in which what happens every few steps counts; None without steps."""
    period = steps(trace).windows["period_ns"].drop_nulls().mean()
    return float(period) / 1e6 if isinstance(period, float) else None


def covered(frame: pl.DataFrame, window: tuple[int, int]) -> float:
    """Share of the window that the union of the rows covers."""
    return Intervals.of(frame).clip(*window).total_ns / (window[1] - window[0])


def named(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    return frame.filter(matches(frame["name"], pattern))


def culprits(trace: Trace, owed: str) -> pl.DataFrame:
    """The operations a table would list for the fault."""
    device = trace.get(DEVICE_OPS)
    if owed in COPIES:
        return device.filter(pl.col("copy_kind").cast(pl.String) == COPIES[owed])
    if owed in KERNELS:
        return named(device, KERNELS[owed])
    if owed in CALLS:
        return named(trace.get(API_CALLS), CALLS[owed])
    if owed in HOST:
        return named(trace.get(RANGES), HOST[owed])
    return device.clear()


def efficiency(trace: Trace, owed: str) -> float | None:
    """Attained share of the bound over the culprits that a performance model covers; None where it covers none."""
    operators = attainable(trace).operators
    if owed not in KERNELS or operators.is_empty():
        return None
    modelled = operators.filter(pl.col("kernel").str.contains(KERNELS[owed]))
    total = modelled["device_ns"].sum()
    return float(modelled.select(pl.min_horizontal("bound_ns", "device_ns").sum()).item() / total) if total else None


def prices(trace: Trace, owed: str) -> dict[str, float]:
    """Each formula's gain for the planted fault, as a share of the step."""
    window = window_ns(trace)
    operators = covered(culprits(trace, owed), window)
    attained = efficiency(trace, owed)
    impact = operators * (UNMODELLED if attained is None else GAP_MID * (1 - attained))
    return {
        IMPACT: 0.0 if owed in UNQUANTIFIED else impact,
        IDLE: 1.0 - covered(trace.get(DEVICE_OPS), window),
        OPERATORS: operators,
    }
