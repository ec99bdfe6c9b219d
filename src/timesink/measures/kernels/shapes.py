"""Matrix products whose operands are not aligned to 16 bytes, which the fast kernels do not take.

Hopper's TMA and every tensor-core kernel with wide loads need leading dimensions that are multiples of 16 bytes: 8
elements of bf16. The kernel's name says what it settled for (`align1`, `ldg4`); recorded shapes and strides say it of
the operands. With shapes the attainable bound of a product is known too.
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.knowledge import gpus, kernel_traits
from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import GpuPeaks
from timesink.knowledge.operators import PRODUCTS, Operator, Tensor
from timesink.knowledge.work import matmul
from timesink.measures.kernels.facts import device_peaks, kernel_facts, of_each_device
from timesink.measures.timeline import Device
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.units import NS_PER_S
from timesink.whatif import Selection

_DISTINCT: Final = 65536  # names and signatures of one program
_ITEM_BYTES: Final = {"bf16": 2, "fp16": 2, "tf32": 4, "fp8": 1, "int8": 1}
_SIGNATURE: Final = ["name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs"]


def bytes_share(trace: Trace, products: pl.DataFrame) -> Float64Array:
    """Of each product the share of its time that its operands and its result take at the attainable bandwidth, 1 at
    most; NaN where its shapes or the device's bandwidth are not known."""
    kinds, of_product = _signatures(trace, products)
    works = [None if text is None else _work(*text) for *_, text in kinds]
    moved = np.array([np.nan if work is None else work[2] for work in works])[of_product]
    gpus, devices = device_peaks(trace), products.select("rank", "device").rows()
    rates = np.array([gpus[device].dram_bytes_per_s if device in gpus else np.nan for device in devices])
    least_ns = moved / (machines.DRAM_SHARE.value * rates) * NS_PER_S
    return np.asarray(np.minimum(least_ns / np.maximum(products["length"].to_numpy(), 1), 1.0), np.float64)


def product_sizes(trace: Trace, products: pl.DataFrame) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of each product its kind, a number, and how many elements its first operand and its result have: -1 where its
    shapes are not recorded."""
    kinds, of_product = _signatures(trace, products)
    sizes = np.full((len(kinds), 2), -1, np.int64)
    for kind, (*_, text) in enumerate(kinds):
        product = _product(*text) if text is not None else None
        matrices = [tensor for tensor in product.tensors() if len(tensor.shape) >= 2] if product else []
        if product and len(matrices) > 1:
            first, second = matrices[-2:]
            columns = second.shape[-2 if product.name.endswith("linear") else -1]
            sizes[kind] = first.elements, first.elements // max(first.shape[-1], 1) * columns
    return of_product, sizes[of_product, 0], sizes[of_product, 1]


def alignment_known(trace: Trace) -> bool:
    """Whether any product kernel's operands are known to be aligned or not, by its name or its operator's shapes."""
    products = kernel_facts(trace).frame.filter(pl.col("family") == "gemm")
    names = trace.get(DEVICE_OPS)["name"][products["row"]].cast(pl.String)
    named = names.str.contains(kernel_traits.ALIGNMENT_NAMED).any()
    shapes = trace.get(HOST_OPS)["input_shapes"]
    return bool(named) or (len(shapes) > 0 and shapes.null_count() < len(shapes))


@of_each_device(kernel_facts)
def misaligned_products(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection | None:
    """Per device with product kernels: those whose operands are not aligned; `best` is their bound's share."""
    products, gpu = kernels.filter(pl.col("family") == "gemm"), device_peaks(trace).get(device)
    if not products.height:
        return None
    kinds, of_product = _signatures(trace, products)
    found, bound_ns = np.zeros(len(kinds), np.bool_), np.full(len(kinds), np.nan)
    for kind, (name, math, text) in enumerate(kinds):
        work = _work(*text) if text is not None else None
        found[kind] = _narrow_loads(name, math) or bool(work and work[0] and math != "fp32")
        bound = _bound_ns(work, math, gpu) if work and gpu else None
        bound_ns[kind] = np.nan if bound is None else bound
    chosen = found[of_product]
    length = np.maximum(products["length"].to_numpy()[chosen], 1)
    best = np.minimum(bound_ns[of_product[chosen]] / length, 1.0)
    since_hopper = gpu is not None and gpu.compute_capability is not None and gpu.compute_capability >= gpus.HOPPER
    role = "named_since_hopper" if since_hopper else "named"
    return Selection(device, {role: products["row"].to_numpy()[chosen]}, best=best)


_Signature = tuple[str, str | None, tuple[Any, ...] | None]


def _signatures(trace: Trace, products: pl.DataFrame) -> tuple[list[_Signature], Int64Array]:
    """The kinds of products, by kernel, arithmetic and signature of the operator; and the number of each one's kind."""
    ops, host = trace.get(DEVICE_OPS), trace.get(HOST_OPS)
    recorded = products.select(pl.when(pl.col("host_op") >= 0).then("host_op").cast(pl.UInt32)).to_series()
    keys = pl.DataFrame(
        {"kernel": ops["name"][products["row"]], "math": products["math"]}
        | {name: host[name][recorded] for name in _SIGNATURE if host.height}
    )
    kinds = keys.unique().with_row_index("kind")
    of_product = keys.join(kinds, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")["kind"]
    rows = kinds.select(pl.col(keys.columns).cast(pl.String)).rows()
    signed = [(name, math, tuple(text) if text and text[0] else None) for name, math, *text in rows]
    return signed, of_product.to_numpy()


@lru_cache(maxsize=_DISTINCT)
def _narrow_loads(name: str, math: str | None) -> bool:
    """Whether the kernel loads less than 16 bytes at a time, by its name."""
    loads = [int(first or second) for first, second in kernel_traits.LOADS_AT_ONCE.findall(name)]
    item = _ITEM_BYTES.get(math or "")
    return bool(loads) and item is not None and min(loads) * item < gpus.ALIGNED_BYTES


@lru_cache(maxsize=_DISTINCT)
def _work(name: str, *signature: str | None) -> tuple[bool, float, float] | None:
    """Whether a product is misaligned, its operations and its bytes; None where the operator is no known product."""
    operator = _product(name, *signature)
    done = matmul(operator) if operator else None
    return None if operator is None or done is None else (_misaligned(operator), done.flops, float(done.bytes))


def _product(
    name: str, shapes: str | None, dtypes: str | None, strides: str | None, concrete: str | None
) -> Operator | None:
    if not PRODUCTS.match(name) or not shapes or not dtypes:
        return None
    return Operator.recorded(name, shapes, dtypes, strides, concrete)


def _misaligned(product: Operator) -> bool:
    """Whether any operand or the result is misaligned."""
    matrices = [tensor for tensor in product.tensors() if len(tensor.shape) >= 2]
    columns = matrices[-1].shape[-2 if product.name.endswith("linear") else -1]
    return columns * matrices[-1].itemsize % gpus.ALIGNED_BYTES != 0 or any(map(_unaligned, matrices))


def _unaligned(matrix: Tensor) -> bool:
    """Whether its rows (columns, where transposed) start at addresses that are no multiples of 16 bytes."""
    rows, columns = matrix.shape[-2:]
    if rows == 1 or columns == 1:
        return False
    leading = max(matrix.strides[-2:]) if len(matrix.strides) == len(matrix.shape) else columns
    return leading * matrix.itemsize % gpus.ALIGNED_BYTES != 0


def _bound_ns(work: tuple[bool, float, float], math: str | None, gpu: GpuPeaks) -> float | None:
    rate = gpu.flops.get(math or "")
    if rate is None:
        return None
    _, flops, moved = work
    seconds = flops / (rate * machines.TENSOR_SHARE.value), moved / (gpu.dram_bytes_per_s * machines.DRAM_SHARE.value)
    return max(seconds) * NS_PER_S
