"""Kernels that only change a tensor's type or layout: casts, strided copies, NCHW to NHWC and back.

The operator decides where its element types were recorded (`aten::copy_` has the target first, the source second);
elsewhere ATen's kernel names do: `bfloat16_copy_kernel` and `direct_copy` with a casting loader convert, an
`elementwise_kernel` that copies directly within one type walks strides, so it changes the layout.
"""

from functools import cache
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge import kernel_traits
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.operators import COPY, is_floating
from timesink.measures.kernels.facts import (
    KernelFacts,
    by_stream,
    kernel_facts,
    multiprocessors,
    of_each_device,
    rows_of,
)
from timesink.measures.timeline import Device
from timesink.model.arrays import Int64Array, flag_at
from timesink.model.names import matches, of_each
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, release_after, remembered
from timesink.untrusted.plain_json import parsed
from timesink.whatif import Selection

_COPIES: Final = pl.Enum(["cast", "layout"])
_ROLES: Final = pl.Enum(["converter", "grouped", "strided", "packed"])
_RECORDED: Final = pl.Enum(["", "cast", "same", "other"])
_OF_A_CONVOLUTION: Final = (-2, -1, 1, 2)  # where its converters are: image and weights before it, its result after it


@release_after("KRN")
@remembered
def copies(trace: Trace) -> KernelFacts:
    """The kernels with one more column, `copies`: ``cast``, ``layout``, or null for any other kernel.

    What the operator recorded goes before what the kernel's name says; a strided copy is one by ATen's generic kernel.

        recorded types      name casts  name is strided    copies
        float to bf16           any           any          cast
        float to float          any           yes          layout
        int to float            any           any          null
        not recorded            no            yes          layout
    """
    frame = kernel_facts(trace).frame
    names = trace.get(DEVICE_OPS)["name"][frame["row"]]
    strided = matches(names, kernel_traits.STRIDED) & (frame["family"] == "copy")
    host = trace.get(HOST_OPS)
    recorded = _recorded(host, frame["host_op"])
    unknown = recorded == ""
    is_cast = (recorded == "cast") | (unknown & pl.col("casts"))
    is_layout = strided & ((recorded == "same") | (unknown & ~pl.col("casts")))
    copied = pl.when(is_cast).then(pl.lit("cast", _COPIES)).when(is_layout).then(pl.lit("layout", _COPIES))
    return KernelFacts(frame.with_columns(copied.alias("copies")))


def _recorded(host: pl.DataFrame, host_op: pl.Series) -> pl.Series:
    """For each row of `host_ops`, which may be null: ``cast`` or ``same`` for a copy_ between floating types, ``other``
    for one between other types, and the empty text for no copy_."""
    if not host.height:
        return pl.Series([""], dtype=_RECORDED).new_from_index(0, len(host_op))
    rows = host_op.fill_null(-1).to_numpy()
    codes = np.zeros(rows.size, np.uint32)
    copied = np.flatnonzero(flag_at(matches(host["name"], COPY).to_numpy(), rows))
    dtypes = host["input_dtypes"][rows[copied]]
    kinds = of_each(dtypes, _kind, pl.String)
    codes[copied] = kinds.fill_null("").cast(_RECORDED).to_physical().to_numpy()
    return pl.Series(_RECORDED.categories, dtype=_RECORDED)[codes]


@cache
def _kind(dtypes: str) -> str:
    types = _types(dtypes)
    if types is None:
        return ""
    target, source = types
    if not (is_floating(target) and is_floating(source)):
        return "other"
    return "same" if target == source else "cast"


@of_each_device(copies)
def cast_kernels(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection | None:
    """Per device: kernels that cast between floating types, `needless` or for a sum, and each `loss` next to a cast.

    One that writes eight bits makes a product's operand: `quantised_products` has it. Kernels are read in order of
    stream and start, so a kernel's neighbours are the rows before and after it. A cast whose result a sum or mean reads
    is kept apart, since its digits may be wanted:

        kernels on one stream      cast, reduction    cast, pointwise, reduction    cast, gemm    cast, log_softmax
        the cast is                for a sum          for a sum                     needless      needless, feeds a loss
    """
    kernels = by_stream(kernels.select("row", "stream", "family", "copies"))
    names = trace.get(DEVICE_OPS)["name"][kernels["row"]]
    cast = (pl.col("copies") == "cast") & ~matches(names, kernel_traits.QUANTISES)
    near_cast = _neighbour(-1, cast) | _neighbour(1, cast)
    losses = rows_of(kernels.filter(matches(names, kernel_traits.LOG_SOFTMAX).alias("loss") & near_cast))
    reduction, pointwise = pl.col("family") == "reduction", pl.col("family") == "pointwise"
    summed = _neighbour(1, reduction) | (_neighbour(1, pointwise) & _neighbour(2, reduction))
    for_sums = rows_of(kernels.filter(cast & summed))
    casts = np.setdiff1d(rows_of(kernels.filter(cast)), for_sums)
    found = casts.size + for_sums.size
    return Selection(device, {"needless": casts, "summed": for_sums, "loss": losses}) if found else None


def _neighbour(distance: int, condition: pl.Expr) -> pl.Expr:
    """Whether the row `distance` after (before, where negative) is on the same stream and meets the condition."""
    same_stream = pl.col("stream").shift(-distance) == pl.col("stream")
    return (same_stream & condition.shift(-distance)).fill_null(False)


@of_each_device(copies)
def layout_kernels(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection | None:
    """Per device: kernels that only move a tensor into another layout: each `converter` by name, `strided` copies, and
    those that are `packed`, which lay out anew what a concatenation has just written, with that concatenation.

    Autograd concatenates the gradients of one tensor's parts and reads them as a view: no call in the program made
    that copy. Beside converters there are the convolutions for which they convert, and the normalisations between:
    where most convolutions take the layout that they get, the network is in the right one, and nothing is beside.
    Where most normalisations are over groups of channels, converters are `grouped` and stay: on a GPU PyTorch lays out
    what such a normalisation reads as it is by default, and the next convolution converts again.
    """
    kernels = by_stream(kernels.select("row", "stream", "length", "family", "blocks", "copies"))
    strided, concat = pl.col("copies") == "layout", pl.col("family") == "concat"
    after_concat, before_copy = strided & _neighbour(-1, concat), concat & _neighbour(1, strided)
    norms = trace.get(DEVICE_OPS)["name"][kernels.filter(pl.col("family") == "norm")["row"]]
    grouped = 2 * matches(norms, kernel_traits.GROUP_NORM).sum() > norms.len()
    role = (
        pl.when(pl.col("family") == "layout")
        .then(pl.lit("grouped" if grouped else "converter", _ROLES))
        .when(after_concat | before_copy)
        .then(pl.lit("packed", _ROLES))
        .when(strided)
        .then(pl.lit("strided", _ROLES))
    )
    roles = kernels.select("row", role.alias("role"))
    groups = {role: np.sort(rows_of(roles.filter(pl.col("role") == role))) for role in _ROLES.categories}
    if not any(rows.size for rows in groups.values()):
        return None
    beside = _beside(device, kernels, multiprocessors(trace).get(device)) if groups["converter"].size else None
    return Selection(device, groups, beside=beside)


def _beside(device: Device, kernels: pl.DataFrame, sms: int | None) -> Selection | None:
    """The convolutions and normalisations of a device, if most of its convolutions' time is converted for; `best` of a
    normalisation is the share of the device that its blocks fill. Kernels are in order of stream and start."""
    families = ("convolution", "norm")
    near = pl.any_horizontal(_neighbour(distance, pl.col("family") == "layout") for distance in _OF_A_CONVOLUTION)
    convolutions = kernels.with_columns(near.alias("converted")).filter(pl.col("family") == families[0])
    if 2 * convolutions.filter("converted")["length"].sum() <= convolutions["length"].sum():
        return None
    chosen = kernels.filter(pl.col("family").cast(pl.String).is_in(families)).sort("row")
    groups = {name: rows_of(chosen.filter(pl.col("family") == name)) for name in families}
    fill = (pl.col("blocks") / (fixes.NORM_BLOCKS.value * sms)).clip(0.0, 1.0) if sms else pl.lit(None, pl.Float64)
    best = chosen.select(pl.when(pl.col("family") == "norm").then(fill)).to_series().cast(pl.Float64)
    return Selection(device, groups, best=best.fill_null(np.nan).to_numpy())


def cast_pairs(trace: Trace, rows: Int64Array) -> list[tuple[str, int, int]]:
    """The casts at these rows by recorded types: ("bf16 to fp32", how many, ns in all), most time first."""
    frame = kernel_facts(trace).frame.filter(pl.col("row").is_in(pl.Series(rows).implode()))
    host = trace.get(HOST_OPS)
    frame = frame.filter(pl.col("host_op") >= 0)
    if not host.height or not frame.height:
        return []
    operators = host[frame["host_op"].to_numpy()].select("name", "input_dtypes")
    pair = of_each(operators["input_dtypes"], _pair, pl.String)
    copying = matches(operators["name"], COPY)
    listed = frame.select("length", pair.alias("pair")).filter(copying).drop_nulls()
    by_pair = listed.group_by("pair").agg(pl.len(), pl.col("length").sum())
    return by_pair.sort(["length", "pair"], descending=[True, False]).rows()


@cache
def _pair(dtypes: str) -> str | None:
    if _kind(dtypes) != "cast":
        return None
    target, source = (text.removeprefix("c10::") for text in _types(dtypes) or ())
    return f"{source} to {target}"


def _types(dtypes: str) -> tuple[str, str] | None:
    """Target and source of a copy; None where the recorded text is no list of two or more."""
    try:
        types = parsed(dtypes)
    except ValueError:
        return None
    return (str(types[0]), str(types[1])) if isinstance(types, list) and len(types) > 1 else None
