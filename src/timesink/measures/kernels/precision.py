"""Kernels that compute in a wider type than they need: fp32 products next to idle tensor cores, TF32, float64.

fp32 products on plain multiply-add units run at a seventh of TF32's rate on H100 and H200, an eighth on A100
(`knowledge.gpus`); TF32 at half of bf16's. A GPU is offered a type that its tensor cores have: those of Volta and
Turing compute fp16 alone, and bf16 is emulated there.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.gpus import matrix_types, plain_of
from timesink.knowledge.kernel_traits import DOUBLE, OF_POINTERS, SINCE_TF32
from timesink.knowledge.programs import ProgramKind
from timesink.measures.kernels.facts import all_rows, kernel_facts, of_each_device, rows_of, times_of
from timesink.measures.kernels.shapes import bytes_share, misaligned_products
from timesink.measures.steps.per_step import share_of_step
from timesink.measures.timeline import Device, of_device
from timesink.measures.timeline.known import known, trains
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, DEVICES
from timesink.model.trace import Trace, remembered
from timesink.records import replace
from timesink.whatif import Selection

_PRODUCTS: Final = ("gemm", "convolution")
_STREAMING: Final = ("pointwise", "reduction", "norm", "softmax", "copy", "concat", "loss", "foreach")
_OFFERED: Final = ("tf32", "bf16", "fp16")
_OF_PRODUCTS: Final = ("fp32", "tf32", "misaligned", "fp16", "emulated")
_NONE: Final = np.empty(0, np.int64)
_SAME: Final = 0.8  # of a rate: where a chip's fp64 and fp32 rates differ by its data sheet, one is half of the other
_WIDE_MATH: Final = ("fp32", "fp64")  # fused optimizers of fp32 parameters take scalars as double


@remembered
def wide_kernels(trace: Trace) -> Mapping[str, tuple[Selection, ...]]:
    """Per kind and device: `fp32` products without tensor cores, with the ratio of peaks as `best`; `tf32` products,
    with the fp32 kernels around them where most product time is TF32, the `misaligned` ones apart; and `fp64` kernels
    of any kind, their `products` apart on a GPU whose tensor cores run them at the rate of fp32. Of products `usual` is
    the share of their bytes. Of a GPU that is no faster in TF32, or has none, all that is not `fp64` is the kind `bf16`
    or `fp16`, by the type that it is offered, as in `four_byte_kernels`. fp32 convolutions of PyTorch beside TF32 ones,
    which show that TF32 is allowed, are `chosen`: of bf16, which is left, no more is known than that it halves their
    bytes.
    """
    kinds: dict[str, list[Selection]] = {kind: [] for kind in ("fp32", "chosen", "tf32", "fp64", "bf16", "fp16")}
    narrow = {kind: {part.device: part for part in parts} for kind, parts in four_byte_kernels(trace).items()}
    for device, target, kernels, tf32 in _kernels(trace):
        if target in narrow and any(narrow[target][device].groups.get(role, _NONE).size for role in _OF_PRODUCTS):
            kinds[target].append(narrow[target][device])
        offered = target not in narrow
        fp32, doubles = (rows_of(kernels.filter(pl.col("wide") == kind)) for kind in ("fp32", "fp64"))
        chosen = _chosen(trace, kernels) if offered else _NONE
        fp32 = np.setdiff1d(fp32, chosen) if offered else _NONE
        best = np.full(fp32.size, _peak_ratio(trace, device, "tf32"))
        kinds["fp32"].append(_with_bytes(trace, Selection(device, {"fp32": fp32}, best=best)))
        kinds["chosen"] += [Selection(device, {"streaming": chosen})] if chosen.size else []
        kinds["tf32"].append(tf32 if offered else Selection(device, {"tf32": _NONE}))
        products = rows_of(kernels.filter(pl.col("family").is_in(_PRODUCTS), wide="fp64"))
        products = products if _SAME <= _peak_ratio(trace, device, "fp64_tensor") <= 1 / _SAME else _NONE
        kinds["fp64"].append(Selection(device, {"fp64": np.setdiff1d(doubles, products), "products": products}))
    return {kind: tuple(selections) for kind, selections in kinds.items()}


def _chosen(trace: Trace, kernels: pl.DataFrame) -> Int64Array:
    """The fp32 convolutions that a library chose though it may take TF32, as others beside them did."""
    convolved = pl.col("family") == "convolution"
    is_allowed = known(trace).program is ProgramKind.PYTORCH and kernels.filter(convolved, wide="tf32").height
    return rows_of(kernels.filter(convolved, wide="fp32")) if is_allowed else _NONE


@remembered
def four_byte_kernels(trace: Trace) -> Mapping[str, tuple[Selection, ...]]:
    """Per type of 16 bits, bf16 and fp16, and device that has it or may have it: what would run in it. The `tf32`
    kernels where most product time is TF32, else all products of four-byte types, with the fp32 kernels around them
    where these are most of the product time. `vector` are products with vectors and few rows, which stream a matrix; of
    a GPU whose tensor cores take fp16 alone, fp32 products have the role `fp16`, and bf16 ones `emulated`. Of products
    `usual` is the share of their bytes, and of fp32 ones `best` the ratio of peaks to the type; `with_casts`."""
    selections: dict[str, list[Selection]] = {"bf16": [], "fp16": []}
    for device, target, kernels, tf32 in _kernels(trace):
        fp32, own, vector, emulated = (
            rows_of(kernels.filter(chosen))
            for chosen in (
                pl.col("wide") == "fp32",
                pl.col("wide") == "tf32",
                (pl.col("family") == "gemv") & (pl.col("math") == "fp32"),
                pl.col("wide") == "emulated",
            )
        )
        groups = {"fp32": fp32, "tf32": own, "streaming": _streaming(kernels, "fp32", "tf32")}
        every = _misaligned_apart(trace, Selection(device, groups))
        chosen = tf32 if tf32.groups["streaming"].size or not fp32.size else every
        groups = {"vector": vector, "emulated": emulated, **chosen.groups}
        if target == "fp16" and "fp32" in groups:
            groups["fp16"] = groups.pop("fp32")
        every = replace(chosen, groups=groups)
        types = _types(trace, device)
        for kind, parts in selections.items():
            if types is None or kind in types:
                ratios = np.where(np.isin(every.rows, fp32), _peak_ratio(trace, device, kind), np.nan)
                parts.append(with_casts(trace, _with_bytes(trace, replace(every, best=ratios))))
    return {kind: tuple(parts) for kind, parts in selections.items()}


def with_casts(trace: Trace, kernels: Selection) -> Selection:
    """The same with what tells how many casts autocast puts beside a product: the roles `convolution`, and `inferred`
    of products of a model that nobody trains."""
    products = kernels.without("streaming").rows
    if not products.size:
        return kernels
    own = kernel_facts(trace).on(kernels.device).filter(pl.col("family") == "convolution")
    convolved = np.intersect1d(products, rows_of(own))
    inferred = _NONE if trains(trace) else products
    return replace(kernels, groups={**kernels.groups, "convolution": convolved, "inferred": inferred})


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


def untold_share(trace: Trace) -> float:
    """The share of a step that products in fp32, or in bf16, which a GPU may emulate, take on a device of which nothing
    tells what its tensor cores compute; the largest, 0 where all are known."""
    facts = kernel_facts(trace)
    untold = [device for device in facts.devices if _types(trace, device) is None and not _narrower(trace, device)]
    products = pl.col("family").is_in(_PRODUCTS) & pl.col("math").is_in(("fp32", "bf16"))
    times = {device: times_of(facts.on(device).filter(products)) for device in untold}
    return max((share_of_step(trace, device, own) for device, own in times.items()), default=0.0)


@of_each_device(kernel_facts)
def _kernels(trace: Trace, device: Device, kernels: pl.DataFrame) -> tuple[Device, str | None, pl.DataFrame, Selection]:
    """Each device, the type that its fp32 products are offered, its kernels with `wide`: the type that is wider than it
    need be, null where it is not; and those that compute in TF32."""
    kernels = kernels.select("row", "length", "family", "math")
    names = trace.get(DEVICE_OPS)["name"][kernels["row"]]
    double = matches(names, DOUBLE).alias("double")
    product, target = pl.col("family").is_in(_PRODUCTS), _narrower(trace, device)
    if known(trace).program is ProgramKind.PYTORCH:  # what it says of types reaches operators alone
        product &= ~pl.lit(matches(names, OF_POINTERS))
    wide = (
        pl.when(double & (pl.col("family") != "random"))
        .then(pl.lit("fp64"))
        .when(product & (pl.col("math") == "fp32") & (target is not None))
        .then(pl.lit("fp32"))
        .when(product & (pl.col("math") == "tf32"))
        .then(pl.lit("tf32"))
        .when(product & (pl.col("math") == "bf16") & (target == "fp16"))
        .then(pl.lit("emulated"))
    )
    kernels = kernels.with_columns(wide.alias("wide"))
    own = rows_of(kernels.filter(pl.col("wide") == "tf32"))
    narrow = Selection(device, {"tf32": own, "streaming": _streaming(kernels, "tf32")})
    narrow = with_casts(trace, _with_bytes(trace, _misaligned_apart(trace, narrow)))
    return device, target, kernels, narrow


def _types(trace: Trace, device: Device) -> frozenset[str] | None:
    """What the tensor cores of a device compute, by its product and capability; None where the trace names neither."""
    return matrix_types(*_described(trace).get(device, ("", None)))


def _narrower(trace: Trace, device: Device) -> str | None:
    """The type that fp32 products are offered on a device: TF32 where it has that and is faster in it, else bf16, else
    fp16; None where it has no tensor cores. Where a trace does not say, it has TF32 if it runs a kernel that only such
    GPUs can run."""
    types = _types(trace, device)
    if types is None:
        ops = trace.get(DEVICE_OPS)
        names = ops.filter(of_device(device))["name"].unique()
        return "tf32" if matches(names, SINCE_TF32).any() else None
    offered = [kind for kind in _OFFERED if kind in types and not _peak_ratio(trace, device, kind) >= 1.0]
    return next(iter(offered), None)


def _peak_ratio(trace: Trace, device: Device, kind: str) -> float:
    """The peak rate of fp32 over that of another type; NaN where they are not known."""
    ratio = plain_of(kind, *_described(trace).get(device, ("", None)))
    return np.nan if ratio is None else ratio


@remembered
def _described(trace: Trace) -> Mapping[Device, tuple[str, tuple[int, int] | None]]:
    """Product and compute capability of each device, as far as the trace says."""
    rows = trace.get(DEVICES).select("rank", "device", "name", "compute_major", "compute_minor").iter_rows()
    return {
        (rank, device): (name or "", None if major is None else (major, minor or 0))
        for rank, device, name, major, minor in rows
    }


def _streaming(kernels: pl.DataFrame, *wide: str) -> Int64Array:
    """fp32 kernels that stream memory, where at least half of the product time is of these types: fp32 as it is."""
    products, of_types = pl.col("family").is_in(_PRODUCTS), pl.col("wide").is_in(wide)
    wide_ns, total_ns = (kernels.filter(chosen)["length"].sum() for chosen in (products & of_types, products))
    if not wide_ns or wide_ns * 2 < total_ns:
        return _NONE
    streaming = pl.col("family").is_in(_STREAMING) & pl.col("math").is_in(_WIDE_MATH) & pl.col("wide").is_null()
    return rows_of(kernels.filter(streaming))
