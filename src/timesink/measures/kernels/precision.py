"""Kernels that compute in a wider type than they need: fp32 products next to idle tensor cores, TF32, float64.

fp32 products on plain multiply-add units run at a seventh of TF32's rate on H100 and H200, an eighth on A100
(`knowledge.gpus`); TF32 at half of bf16's. What kernels reach of these ratios is less: cautiously they gain half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.gpus import GpuPeaks, Precision
from timesink.measures.kernels.facts import Shortened, device_peaks, kernel_facts, rows_of
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, DEVICES
from timesink.model.trace import Trace, remembered
from timesink.whatif.change import Range

# `double` as the type a kernel works in; ATen also passes scalars as double to kernels of other types.
_DOUBLE: Final = r"lambda ?\(double|<double\b|dgemm|f64f64|d884gemm|[_<]f64[_>]"
_PRODUCTS: Final = ("gemm", "convolution")
_STREAMING: Final = ("pointwise", "reduction", "norm", "softmax", "copy", "concat", "loss", "foreach")
_WIDE_MATH: Final = ("fp32", "fp64")  # fused optimizers of fp32 parameters take scalars as double
_FIRST_WITH_TF32: Final = 8
_UNKNOWN_GPU: Final = Range(0.5, 0.25, 0.15)
_TO_BF16: Final = Range(0.8, 0.55, 0.5)
_HALF_BYTES: Final = Range(1.0, 0.6, 0.5)
_FROM_FP64: Final = Range(0.7, 0.45, 0.3)
_REACHED: Final = 0.65  # of a tensor-core rate, by products of everyday sizes


@dataclass(frozen=True, slots=True, eq=False)
class WideKernels:
    """One device: `fp32` products without tensor cores, `tf32` products (with the fp32 kernels that stream memory,
    where most product time is TF32), and `fp64` kernels of any kind. Any may be empty."""

    device: Device
    fp32: Shortened
    tf32: Shortened
    fp64: Shortened


@remembered
def wide_kernels(trace: Trace) -> tuple[WideKernels, ...]:
    """The kernels in wide types of every device with kernels, and what they keep in a narrower type."""
    facts, gpus = kernel_facts(trace), device_peaks(trace)
    devices = []
    for device in facts.devices:
        kernels = facts.on(device).select("row", "length", "family", "math")
        is_double = matches(trace.get(DEVICE_OPS)["name"].gather(kernels["row"]), _DOUBLE)
        kernels = kernels.with_columns(is_double.alias("double") & (pl.col("family") != "random"))
        product = pl.col("family").is_in(_PRODUCTS) & ~pl.col("double")
        fp32 = rows_of(kernels.filter(product & (pl.col("math") == "fp32") & _has_tensor_cores(trace, device)))
        tf32_products = kernels.filter(product & (pl.col("math") == "tf32"))
        streaming = _around(kernels, tf32_products)
        fp64 = rows_of(kernels.filter("double"))
        tf32 = rows_of(tf32_products)
        devices.append(
            WideKernels(
                device,
                Shortened.of(device, fp32, (fp32, _to_tf32(gpus.get(device)))).floored(trace),
                Shortened.of(device, tf32, (tf32, _TO_BF16), (streaming, _HALF_BYTES)).floored(trace),
                Shortened.of(device, fp64, (fp64, _FROM_FP64)).floored(trace),
            )
        )
    return tuple(devices)


def _has_tensor_cores(trace: Trace, device: Device) -> bool:
    """Whether fp32 products could run on tensor cores there; assumed where the GPU's capability is not recorded."""
    rows = trace.get(DEVICES).filter((pl.col("rank") == device[0]) & (pl.col("device") == device[1]))
    major = rows["compute_major"].drop_nulls()
    return not len(major) or int(major[0]) >= _FIRST_WITH_TF32


def _to_tf32(gpu: GpuPeaks | None) -> Range:
    """The share of its time that an fp32 product keeps as TF32: the ratio of peaks, over what products reach of it."""
    plain = gpu.flops_of(Precision.FP32) if gpu else None
    tensor = gpu.flops_of(Precision.TF32) if gpu else None
    if plain is None or tensor is None:
        return _UNKNOWN_GPU
    best = plain / tensor
    return Range(min(2.0 * best / _REACHED, 1.0), min(best / _REACHED, 1.0), best)


def _around(kernels: pl.DataFrame, tf32_products: pl.DataFrame) -> Int64Array:
    """fp32 kernels that stream memory, where at least half of the product time is TF32: they are fp32 as it is."""
    products = kernels.filter(pl.col("family").is_in(_PRODUCTS))["length"].sum()
    if not tf32_products.height or tf32_products["length"].sum() * 2 < products:
        return np.empty(0, np.int64)
    streaming = pl.col("family").is_in(_STREAMING) & pl.col("math").is_in(_WIDE_MATH) & ~pl.col("double")
    return rows_of(kernels.filter(streaming))
