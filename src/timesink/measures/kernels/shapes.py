"""Matrix products whose operands are not aligned to 16 bytes, which the fast kernels do not take.

Hopper's TMA and every tensor-core kernel with wide loads need leading dimensions that are multiples of 16 bytes: 8
elements of bf16. The kernel's name says what it settled for (`align1`, `ldg4`); recorded shapes and strides say it of
the operands. With shapes the gain is held against the attainable bound, else against what such kernels usually reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.knowledge.gpus import DRAM_SHARE, TENSOR_SHARE, GpuPeaks, Precision
from timesink.knowledge.operators import Operator, Tensor
from timesink.knowledge.work import matmul
from timesink.measures.kernels.facts import Shortened, device_peaks, kernel_facts
from timesink.measures.timeline.device_timeline import Device
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered

ALIGNED_BYTES: Final = 16
_ITEM_BYTES: Final = {"bf16": 2, "fp16": 2, "tf32": 4, "fp8": 1, "int8": 1}
_LOAD: Final = re.compile(r"_ldg(\d+)_|align(?:a)?(\d+)")
_PRODUCTS: Final = re.compile(r"^aten::(mm|addmm|bmm|baddbmm|linear|_addmm_activation)$")
# Where nothing but a name is known. On an H200, products of 4095 and of 50257 columns kept 13 to 25 % of their time
# when padded (benchmarks/faults): only aligned ones use its warp-group instructions. Before Hopper both use the same.
_BY_NAME: Final = (0.8, 0.45, 0.3)
_BY_NAME_SINCE_HOPPER: Final = (0.4, 0.18, 0.12)
_HOPPER: Final = (9, 0)
_AT_ONCE: Final = 100_000
_SIGNATURE: Final = ["name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs"]


@remembered
def misaligned_products(trace: Trace) -> tuple[Shortened, ...]:
    """Per device with product kernels: those whose operands are not aligned."""
    facts, gpus = kernel_facts(trace), device_peaks(trace)
    devices = []
    for device in facts.devices:
        products = facts.on(device).filter(pl.col("family") == "gemm")
        if products.height:
            devices.append(_misaligned(trace, device, products, gpus.get(device)))
    return tuple(devices)


def alignment_known(trace: Trace) -> bool:
    """Whether any product kernel's operands are known to be aligned or not, by its name or its operator's shapes."""
    products = kernel_facts(trace).frame.filter(pl.col("family") == "gemm")
    names = trace.get(DEVICE_OPS)["name"].gather(products["row"]).cast(pl.String)
    named = names.str.contains(r"nvjet|align|_ldg\d").any()
    shapes = trace.get(HOST_OPS)["input_shapes"]
    return bool(named) or (len(shapes) > 0 and shapes.null_count() < len(shapes))


def _misaligned(trace: Trace, device: Device, products: pl.DataFrame, gpu: GpuPeaks | None) -> Shortened:
    host = trace.get(HOST_OPS).select(pl.col(name).cast(pl.String) for name in _SIGNATURE)
    kept: list[tuple[int, tuple[float, float, float]]] = []
    for name, text, (row, length, host_op, math) in _signatures(trace, products, host):
        work = _work(*text) if text is not None and host_op >= 0 else None
        by_name = _narrow_loads(name, math)
        if not (by_name or (work and work[0] and math != "fp32")):
            continue
        bound = _bound_ns(work, math, gpu) if work and gpu else None
        kept.append((row, _by_name(gpu) if bound is None else _shares(bound, length)))
    keep = np.array([share for _, share in kept], np.float64).reshape(-1, 3)
    rows = np.array([row for row, _ in kept], np.int64)
    return Shortened(device, rows, tuple(keep.T))


_Signature = tuple[str, tuple[Any, ...] | None, tuple[Any, ...]]


def _signatures(trace: Trace, products: pl.DataFrame, host: pl.DataFrame) -> Iterator[_Signature]:
    """Of each product its name, its operator's signature, and its row, length, operator and arithmetic.

    Python's objects for a slice of products at a time: they take ten times the room of the columns.
    """
    for some in products.select("row", "length", "host_op", "math").iter_slices(_AT_ONCE):
        names = trace.get(DEVICE_OPS)["name"].gather(some["row"]).cast(pl.String).to_list()
        texts = host[np.maximum(some["host_op"].to_numpy(), 0)].rows() if host.height else [None] * some.height
        yield from zip(names, texts, some.rows(), strict=True)


def _shares(bound_ns: float, length_ns: int) -> tuple[float, float, float]:
    """What a product keeps of its time in each case: products usually reach four fifths of the attainable bound, and
    the cautious case gains half of the way there."""
    best = min(bound_ns / max(length_ns, 1), 1.0)
    usual = min(best / 0.8, 1.0)
    return ((1.0 + usual) / 2.0, usual, best)


def _by_name(gpu: GpuPeaks | None) -> tuple[float, float, float]:
    since = gpu is not None and gpu.compute_capability is not None and gpu.compute_capability >= _HOPPER
    return _BY_NAME_SINCE_HOPPER if since else _BY_NAME


@lru_cache(maxsize=65536)
def _narrow_loads(name: str, math: str | None) -> bool:
    """Whether the kernel loads less than 16 bytes at a time, by its name."""
    loads = [int(first or second) for first, second in _LOAD.findall(name)]
    item = _ITEM_BYTES.get(math or "")
    return bool(loads) and item is not None and min(loads) * item < ALIGNED_BYTES


@lru_cache(maxsize=65536)
def _work(
    name: str, shapes: str | None, dtypes: str | None, strides: str | None, concrete: str | None
) -> tuple[bool, float, float] | None:
    """Whether a product is misaligned, its operations and its bytes; None where the operator is no known product."""
    if not _PRODUCTS.match(name) or not shapes or not dtypes:
        return None
    operator = Operator.recorded(name, shapes, dtypes, strides, concrete)
    done = matmul(operator) if operator else None
    if operator is None or done is None:
        return None
    matrices = [tensor for tensor in operator.tensors() if len(tensor.shape) >= 2]
    columns = matrices[-1].shape[-2 if name.endswith("linear") else -1]
    result = columns * matrices[-1].itemsize % ALIGNED_BYTES != 0
    return result or any(_unaligned(tensor) for tensor in matrices), done.flops, float(done.bytes)


def _unaligned(matrix: Tensor) -> bool:
    """Whether its rows (columns, where transposed) start at addresses that are no multiples of 16 bytes."""
    rows, columns = matrix.shape[-2:]
    if rows == 1 or columns == 1:
        return False
    leading = max(matrix.strides[-2:]) if len(matrix.strides) == len(matrix.shape) else columns
    return leading * matrix.itemsize % ALIGNED_BYTES != 0


def _bound_ns(work: tuple[bool, float, float], math: str | None, gpu: GpuPeaks) -> float | None:
    rate = gpu.flops_of(Precision(math)) if math in set(Precision) else None
    if rate is None:
        return None
    _, flops, moved = work
    return max(flops / (rate * TENSOR_SHARE), moved / (gpu.dram_bytes_per_s * DRAM_SHARE)) * 1e9
