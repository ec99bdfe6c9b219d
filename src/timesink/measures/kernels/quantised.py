"""Products in FP8 or FP4 with all that makes their operands: a ledger of amax, cast, scales and product.

A product of eight bits takes half the time of one of sixteen, but its operands have to be made. A kernel that writes
eight bits ends a *chain*: it begins with the largest absolute value (amax), between them stand scales. What is on a
stream before a product belongs to it. By recorded shapes a chain is the activation's or the weights'; where both are as
large, the first is the activation's.

    time(rows) = product(rows) + rows x activation + kernels x (gap + least) + weights      in 16 bits: wide(rows)

What a kernel takes whatever it does, and the gap before it, are of the trace: `least` and `gap`. A product reads its
weights whatever its rows: they limit it where rows are few, its arithmetic where they are many, and both where it is
neither, as the root of their squares, by which products of 32 to 32,768 rows are known to within a tenth.
"""

from itertools import pairwise
from math import hypot, inf, log2, prod, sqrt
from typing import Any, Final

import polars as pl

from timesink.knowledge import kernel_traits
from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import GpuPeaks
from timesink.knowledge.operators import OperatorWork, WorkKind
from timesink.knowledge.work import operand_sides, product_sizes
from timesink.measures.kernels.attainable import bound_of
from timesink.measures.kernels.facts import by_stream, device_peaks, kernel_facts
from timesink.measures.timeline import Device
from timesink.model.arrays import median
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_S

_ITEM_BYTES: Final = {"fp8": 1.0, "fp4": 0.5}
_NARROW: Final = tuple(_ITEM_BYTES)
_WIDE: Final = "bf16"
_CHAINS: Final = 2  # of a product: two operands
_PARTS: Final = ("amax", "cast", "scale")
_USUAL_GAP: Final = 0.25  # of the gaps: longer ones wait for the CPU
_LEAST: Final = 0.1  # of the lengths: a chain has kernels of a single number
_FUSED: Final = 3  # kernels of an activation: zeros for its amax, the amax, its cast
_ROWS: Final = tuple(2.0**power for power in range(25))  # between which both are taken for straight


class QuantisedProduct(Record):
    """Equal products of a device, times in ns of one of them. `rows`, `inner` and `columns` are its sizes (0 where not
    recorded), `calls` how many there are.

    `activation_ns` and `weights_ns` make the operands; `amax_ns`, `cast_ns` and `scale_ns` are the same time by what it
    is spent on. `wide_ns` is the same product in 16 bits: measured in the trace, else as usual; `fused_ns` the
    activation's amax and cast as two passes over it. None where not known. `kernels` is how many make the activation
    and the weights; `least_ns` is what a kernel takes that does next to nothing, and `gap_ns` what lies between two.
    `reads_ns` is what reading the weights takes, and `wide_reads_ns` what it takes in 16 bits (0 where not known).
    """

    device: Device
    name: str
    math: str
    rows: int
    inner: int
    columns: int
    calls: int
    product_ns: float
    activation_ns: float
    weights_ns: float
    amax_ns: float
    cast_ns: float
    scale_ns: float
    wide_ns: float | None
    fused_ns: float | None
    kernels: tuple[float, float] = (0.0, 0.0)
    least_ns: float = 0.0
    gap_ns: float = 0.0
    reads_ns: float = 0.0
    wide_reads_ns: float = 0.0

    @property
    def whole_ns(self) -> float:
        """The product and all that makes its operands."""
        return self.product_ns + self.activation_ns + self.weights_ns

    @property
    def speedup(self) -> float | None:
        """How many times as fast as in 16 bits the whole is."""
        return self.wide_ns / self.whole_ns if self.wide_ns is not None else None

    @property
    def saved_by_fusing_ns(self) -> float:
        """What one amax and one cast in place of the activation's chain save."""
        return max(0.0, self.activation_ns - self.fused_ns) if self.fused_ns is not None else 0.0

    def break_even_rows(self, *, keeps_weights: bool = False, fuses: bool = False) -> float | None:
        """Rows from which on it is faster than in 16 bits: 0 for always, infinite for never. None where that is not
        known, and where only products of few rows win."""
        wide_ns = self.wide_ns
        if wide_ns is None or not self.rows:
            return None
        is_fused = fuses and self.saved_by_fusing_ns > 0
        activation = self.activation_ns - (self.saved_by_fusing_ns if fuses else 0.0)
        of_activation, of_weights = _FUSED if is_fused else self.kernels[0], self.kernels[1]
        always = of_activation * (self.gap_ns + self.least_ns)
        always += 0.0 if keeps_weights else self.weights_ns + of_weights * self.gap_ns
        each = max(0.0, activation - of_activation * self.least_ns) / self.rows

        def lost(rows: float) -> float:
            made = always + rows * each
            times = rows / self.rows
            return made + _product(self.product_ns, self.reads_ns, times) - _product(wide_ns, self.wide_reads_ns, times)

        losses = [lost(rows) for rows in _ROWS]
        if losses[-1] >= 0:
            return inf if min(losses) >= 0 else None
        equal = 0.0
        for (fewer, more), (loss, gain) in zip(pairwise(_ROWS), pairwise(losses), strict=True):
            equal = fewer + (more - fewer) * loss / (loss - gain) if loss > 0 >= gain else equal
        return equal


def _product(whole_ns: float, reads_ns: float, times: float) -> float:
    """What a product takes of so many times the rows."""
    reads = min(reads_ns, whole_ns)
    return hypot(reads, times * sqrt(whole_ns**2 - reads**2))


@remembered
def quantised_products(trace: Trace) -> tuple[QuantisedProduct, ...]:
    """Every kind of product in FP8 or FP4, most time first."""
    facts = kernel_facts(trace)
    found = [
        product
        for device in facts.devices
        if facts.on(device)["math"].is_in(_NARROW).any()
        for product in _on(trace, device, facts.on(device))
    ]
    return tuple(sorted(found, key=lambda one: -one.calls * one.whole_ns))


def chains(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Of a device's kernels (`KernelFacts.on`) the products and what makes their operands, with `product` (a number),
    `part` (product, amax, cast or scale) and `chain`: 0 for the product, 1 for the chain right before it, 2 for the
    one before that.

        kernel    abs  max  mul  cast  div  abs  max  mul  cast  product
        segment     3    3    3     3    2    2    2    2     2        1
        begins      0    0    0     0    5    5    5    5     5
        chain       2    2    2     2    2    1    1    1     1        0
    """
    names = trace.get(DEVICE_OPS)["name"][kernels["row"]]
    traits = {"quantises": kernel_traits.QUANTISES, "amax": kernel_traits.AMAX, "scales": kernel_traits.SCALES}
    kernels = by_stream(kernels.with_columns(matches(names, regex).alias(name) for name, regex in traits.items()))
    is_product = ((pl.col("family") == "gemm") & pl.col("math").is_in(_NARROW)).fill_null(False)
    kernels = kernels.with_columns(is_product.alias("multiplies")).with_row_index("at")
    ends = (pl.col("multiplies") | pl.col("quantises")).cast(pl.Int64)
    kernels = kernels.with_columns(
        ends.cum_sum(reverse=True).over("stream").alias("segment"),
        pl.col("multiplies").cast(pl.Int64).cum_sum(reverse=True).over("stream").alias("left"),
    )
    first_amax, is_other = pl.col("at").filter("amax").min(), ~(pl.col("scales") | pl.col("quantises"))
    begins = pl.coalesce(first_amax, pl.col("at").filter(is_other).max() + 1, pl.col("at").min())
    own = pl.col("segment").filter("multiplies").min().over("stream", "left")
    kernels = kernels.with_columns(
        (
            pl.col("quantises").any().over("stream", "segment") & (pl.col("at") >= begins.over("stream", "segment"))
        ).alias("in_chain"),
        (pl.col("scales") & pl.col("quantises").shift(1).over("stream").fill_null(False)).alias("follows"),
        (pl.col("segment") - own).alias("chain"),
    )
    kernels = kernels.with_columns(pl.when("follows").then(pl.col("chain") + 1).otherwise("chain").alias("chain"))
    is_part = (pl.col("in_chain") | pl.col("follows")) & pl.col("chain").is_between(1, _CHAINS)
    of_chain = pl.when("quantises").then(pl.lit("cast")).when("amax").then(pl.lit("amax")).otherwise(pl.lit("scale"))
    part = pl.when("multiplies").then(pl.lit("product")).when(is_part).then(of_chain)
    number = pl.struct("stream", "left").rank("dense").alias("product")
    return kernels.with_columns(part.alias("part"), number).drop_nulls("part")


def _on(trace: Trace, device: Device, kernels: pl.DataFrame) -> list[QuantisedProduct]:
    """The ledger of a device."""
    gpu, known = device_peaks(trace).get(device), _with_shapes(trace, chains(trace, kernels))
    groups: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for _, parts in known.group_by("product", maintain_order=True):
        product = parts.row(-1, named=True)
        name = product["op"] or str(trace.get(DEVICE_OPS)["name"][product["row"]])
        rows, inner, columns = _sizes(product)
        times = _times(parts, rows * inner, inner * columns)
        groups.setdefault((name, product["math"], rows, inner, columns), []).append(times)
    gap = (pl.col("start_ns") - (pl.col("start_ns") + pl.col("length")).shift(1).over("stream")).clip(0)
    least = pl.col("length").quantile(_LEAST).clip(0, machines.KERNEL_FLOOR_US.ns)  # a fused chain has no short kernel
    usual = known.select(gap.filter(pl.col("part") != "product").quantile(_USUAL_GAP), least).fill_null(0.0).row(0)
    products = kernels.filter((pl.col("family") == "gemm") & pl.col("math").is_in(("bf16", "fp16")))
    wide: dict[tuple[int, ...], list[int]] = {}
    for one in _with_shapes(trace, products).iter_rows(named=True):
        wide.setdefault(_sizes(one), []).append(one["length"])
    return [_ledger(device, key, times, wide.get(key[2:]), gpu, usual) for key, times in groups.items()]


def _with_shapes(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """With `shapes` and `op`: the recorded sizes of the operator and its name; null and '' where there are none."""
    shapes, none = trace.get(HOST_OPS)["input_shapes"].cast(pl.String), kernels["host_op"].null_count()
    texts = shapes[kernels["host_op"]] if none < kernels.height else pl.Series([None] * kernels.height, dtype=pl.String)
    return kernels.with_columns(texts.alias("shapes"), pl.col("op").cast(pl.String).fill_null(""))


def _sizes(product: dict[str, Any]) -> tuple[int, int, int]:
    """Rows, inner size and columns; zeros where not recorded."""
    sizes = product_sizes(product["op"], product["shapes"]) if product["shapes"] else None
    return (sizes[0], *sizes[1]) if sizes else (0, 0, 0)


def _times(parts: pl.DataFrame, activation: int, weights: int) -> dict[str, float]:
    """Times of one product in ns: by part, and of what makes either operand of so many elements. Where sizes do not
    tell, the chain before the last is the activation's, and one alone."""
    found = dict.fromkeys(("product", *_PARTS, "of_activation", "of_weights", "activation's", "weights'"), 0.0)
    of = {activation: "of_activation", weights: "of_weights"} if activation != weights else {}
    for row in parts.iter_rows(named=True):
        found[row["part"]] += row["length"]
    for chain in range(1, _CHAINS + 1):
        made = parts.filter(pl.col("chain") == chain)
        casts = made.filter(pl.col("part") == "cast")["shapes"].drop_nulls()
        sizes = (prod(side) for text in casts for side in operand_sides(text) if side)
        by_order = "of_weights" if chain < parts["chain"].max() else "of_activation"  # type: ignore[operator]
        operand = next((of[size] for size in sizes if size in of), by_order)
        found[operand] += float(made["length"].sum())
        found["activation's" if operand == "of_activation" else "weights'"] += made.height
    return found


def _ledger(
    device: Device,
    key: tuple[Any, ...],
    measured: list[dict[str, float]],
    wide: list[int] | None,
    gpu: GpuPeaks | None,
    usual: tuple[float, ...],
) -> QuantisedProduct:
    """One row: medians of equal products."""
    name, math, rows, inner, columns = key
    middle = {part: float(median([one[part] for one in measured])) for part in measured[0]}
    wide_ns, fused_ns = None if wide is None else float(median(wide)), None
    reads = dict.fromkeys((math, _WIDE), 0.0)
    if gpu is not None and rows:
        items = {math: _ITEM_BYTES[math], _WIDE: 2.0}
        flops, sides = 2.0 * rows * inner * columns, rows * inner + inner * columns
        narrow, in_16 = (
            bound_of(OperatorWork(WorkKind.MATMUL, flops, int(sides * item + 2 * rows * columns), kind), gpu).bound_ns
            for kind, item in items.items()
        )
        times = min(in_16 / narrow, machines.NARROW_TIMES.value ** log2(2 / _ITEM_BYTES[math]))  # each time it halves
        wide_ns = middle["product"] * times if wide_ns is None else wide_ns
        moved = rows * inner * (2 + 2 + _ITEM_BYTES[math])  # read for the amax, read again, written
        rate = gpu.dram_bytes_per_s * machines.DRAM_SHARE.value
        reads = {kind: inner * columns * item / rate * NS_PER_S for kind, item in items.items()}
        fused_ns = max(moved / rate * NS_PER_S, _FUSED * machines.KERNEL_FLOOR_US.ns)
    return QuantisedProduct(
        device=device, name=name, math=math, rows=rows, inner=inner, columns=columns, calls=len(measured),
        product_ns=middle["product"], activation_ns=middle["of_activation"], weights_ns=middle["of_weights"],
        amax_ns=middle["amax"], cast_ns=middle["cast"], scale_ns=middle["scale"], wide_ns=wide_ns, fused_ns=fused_ns,
        kernels=(middle["activation's"], middle["weights'"]), gap_ns=usual[0], least_ns=usual[1],
        reads_ns=reads[math], wide_reads_ns=reads[_WIDE],
    )  # fmt: skip
