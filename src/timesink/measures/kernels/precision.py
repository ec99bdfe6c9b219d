"""Kernels that compute in a wider type than they need: fp32 products next to idle tensor cores, TF32, float64.

fp32 products on plain multiply-add units run at a seventh of TF32's rate on H100 and H200, an eighth on A100
(`knowledge.gpus`); TF32 at half of bf16's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.gpus import FIRST_WITH_TF32, plain_of_tf32
from timesink.knowledge.kernel_traits import BEFORE_TF32, DOUBLE, SINCE_TF32
from timesink.measures.kernels.facts import all_rows, kernel_facts, rows_of
from timesink.measures.kernels.shapes import bytes_share, misaligned_products
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, DEVICES
from timesink.model.trace import Trace, remembered
from timesink.startup import replace
from timesink.whatif.change import Selection

_PRODUCTS: Final = ("gemm", "convolution")
_STREAMING: Final = ("pointwise", "reduction", "norm", "softmax", "copy", "concat", "loss", "foreach")
_BF16_OF_TF32: Final = 0.5  # the peak rate of TF32 over that of bf16, on every GPU that has both
_WIDE_MATH: Final = ("fp32", "fp64")  # fused optimizers of fp32 parameters take scalars as double


@remembered
def wide_kernels(trace: Trace) -> Mapping[str, tuple[Selection, ...]]:
    """Per kind and device: `fp32` products without tensor cores, with the ratio of peaks as `best`, and those of a GPU
    that is no faster in TF32, with the ratio to bf16, as `fp32 alone`; `tf32` products, with the fp32 kernels around
    them where most product time is TF32, the `misaligned` ones apart; and `fp64` kernels of any kind. Of products
    `usual` is the share of their bytes."""
    kinds: dict[str, list[Selection]] = {"fp32": [], "fp32 alone": [], "tf32": [], "fp64": []}
    for device, kernels in _kernels(trace):
        fp32, tf32, doubles = (rows_of(kernels.filter(pl.col("wide") == kind)) for kind in ("fp32", "tf32", "fp64"))
        ratio = _peak_ratio(trace, device)
        wins, alone = (fp32[:0], fp32) if ratio >= 1.0 else (fp32, fp32[:0])
        narrowed = Selection(device, {"fp32": wins}, best=np.full(wins.size, ratio))
        kinds["fp32"].append(_with_bytes(trace, narrowed))
        if alone.size:
            best = np.full(alone.size, ratio * _BF16_OF_TF32)
            kinds["fp32 alone"].append(_with_bytes(trace, Selection(device, {"alone": alone}, best=best)))
        narrow = Selection(device, {"tf32": tf32, "streaming": _streaming(kernels, "tf32")})
        kinds["tf32"].append(_with_bytes(trace, _misaligned_apart(trace, narrow)))
        kinds["fp64"].append(Selection(device, {"fp64": doubles}))
    return {kind: tuple(selections) for kind, selections in kinds.items()}


@remembered
def four_byte_kernels(trace: Trace) -> tuple[Selection, ...]:
    """Per device: what would run in 16 bits. The `tf32` kernels where most product time is TF32, else all products of
    four-byte types, with the fp32 kernels around them where these are most of the product time. `vector` are products
    with vectors and few rows, which stream a matrix. Of products `usual` is the share of their bytes, and of fp32 ones
    `best` the ratio of peaks to bf16."""
    selections = []
    for tf32, (device, kernels) in zip(wide_kernels(trace)["tf32"], _kernels(trace), strict=True):
        products = {kind: rows_of(kernels.filter(pl.col("wide") == kind)) for kind in ("fp32", "tf32")}
        every = _misaligned_apart(
            trace, Selection(device, {**products, "streaming": _streaming(kernels, "fp32", "tf32")})
        )
        chosen = tf32 if tf32.groups["streaming"].size or not products["fp32"].size else every
        vector = rows_of(kernels.filter((pl.col("family") == "gemv") & (pl.col("math") == "fp32")))
        every = replace(chosen, groups={**chosen.groups, "vector": vector})
        best = np.full(every.rows.size, np.nan)
        best[np.isin(every.rows, products["fp32"])] = _peak_ratio(trace, device) * _BF16_OF_TF32
        selections.append(_with_bytes(trace, replace(every, best=best)))
    return tuple(selections)


def _with_bytes(trace: Trace, kernels: Selection) -> Selection:
    """The same with the share of their time that the bytes of products take as `usual`: no type makes it shorter but
    one of fewer bytes."""
    if not (rows := kernels.rows).size:
        return kernels
    own = kernel_facts(trace).on(kernels.device)
    products = own.filter((pl.col("family") == "gemm") & pl.col("row").is_in(pl.Series(rows).implode()))
    usual = np.full(rows.size, np.nan)
    usual[np.searchsorted(rows, products["row"].to_numpy())] = bytes_share(trace, products)
    return replace(kernels, usual=usual)


def _misaligned_apart(trace: Trace, kernels: Selection) -> Selection:
    """The TF32 products whose operands are not aligned in a role of their own."""
    tf32 = kernels.groups["tf32"]
    misaligned = np.intersect1d(tf32, all_rows(misaligned_products(trace)))
    return replace(kernels, groups={**kernels.groups, "tf32": np.setdiff1d(tf32, misaligned), "misaligned": misaligned})


def _kernels(trace: Trace) -> Iterator[tuple[Device, pl.DataFrame]]:
    """Each device and its kernels, with `wide`: the type that is wider than it need be, null where it is not."""
    facts = kernel_facts(trace)
    for device in facts.devices:
        kernels = facts.on(device).select("row", "length", "family", "math")
        names = trace.get(DEVICE_OPS)["name"][kernels["row"]]
        double = matches(names, DOUBLE).alias("double")
        product = pl.col("family").is_in(_PRODUCTS)
        wide = (
            pl.when(double & (pl.col("family") != "random"))
            .then(pl.lit("fp64"))
            .when(product & (pl.col("math") == "fp32") & _has_tensor_cores(trace, device, names))
            .then(pl.lit("fp32"))
            .when(product & (pl.col("math") == "tf32"))
            .then(pl.lit("tf32"))
        )
        yield device, kernels.with_columns(wide.alias("wide"))


def _has_tensor_cores(trace: Trace, device: Device, names: pl.Series) -> bool:
    """Whether fp32 products could run on tensor cores there: by the GPU's capability, and where that is not recorded
    unless libraries chose kernels of GPUs before TF32 and none of later ones."""
    major = _of_device(trace, device)["compute_major"].drop_nulls()
    if len(major):
        return int(major[0]) >= FIRST_WITH_TF32
    return bool(matches(names, SINCE_TF32).any()) or not matches(names, BEFORE_TF32).any()


def _peak_ratio(trace: Trace, device: Device) -> float:
    """The peak rate of fp32 over that of TF32; NaN where they are not known."""
    for name, major, minor in _of_device(trace, device).select("name", "compute_major", "compute_minor").iter_rows():
        ratio = plain_of_tf32(name or "", None if major is None or minor is None else (major, minor))
        if ratio is not None:
            return ratio
    return np.nan


def _of_device(trace: Trace, device: Device) -> pl.DataFrame:
    return trace.get(DEVICES).filter((pl.col("rank") == device[0]) & (pl.col("device") == device[1]))


def _streaming(kernels: pl.DataFrame, *wide: str) -> Int64Array:
    """fp32 kernels that stream memory, where at least half of the product time is of these types: fp32 as it is."""
    products, of_types = pl.col("family").is_in(_PRODUCTS), pl.col("wide").is_in(wide)
    wide_ns, total_ns = (kernels.filter(chosen)["length"].sum() for chosen in (products & of_types, products))
    if not wide_ns or wide_ns * 2 < total_ns:
        return np.empty(0, np.int64)
    streaming = pl.col("family").is_in(_STREAMING) & pl.col("math").is_in(_WIDE_MATH) & pl.col("wide").is_null()
    return rows_of(kernels.filter(streaming))
