"""Eager kernels that one fused kernel would replace: attention, chains of pointwise kernels, optimizer steps.

Attention written out is a softmax between two matrix products, with nothing but elementwise kernels, copies and masks
between them. It writes the scores of every pair of positions to memory, which a fused kernel (Dao et al.,
FlashAttention, arXiv:2205.14135) never does. A router's softmax is followed by a selection, a loss's by a gather:
neither is directly between two products.

`pointwise-unfused.md` says what a chain is and what stands for it. Kernels that only cast or change a layout neither
break one nor count.

Fused AdamW reads parameter, gradient and two moments and writes three of them: 7 passes over memory. Operation by
operation it takes about 20, SGD with momentum 14 instead of 5.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge import kernel_traits
from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.ranges import OPTIMIZER_STEP, TAKES_FUSED, TORCH_OPTIMIZER_STEP
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.kernels.conversions import copies
from timesink.measures.kernels.facts import by_stream, kernel_facts, of_each_device, rows_of, rows_on, run_numbers
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.steps import steps
from timesink.measures.timeline import Device, of_device
from timesink.measures.timeline.ranges import range_projection
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.whatif import Selection

_PRODUCTS: Final = ("gemm", "gemv")
_BETWEEN: Final = ("pointwise", "copy", "fill", "random", "index", "concat", "softmax", "layout", "other")
_RECAST: Final = ("copy", "layout")  # one may stand between two products of a backward pass
_WIDE: Final = ("fp32", "tf32")


@of_each_device(kernel_facts)
def unfused_attention(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection | None:
    """Per device with attention written out: each `product`, and what is `between` them; in fp32 `product_wide`.

    Anomaly mode compares what each kernel of a backward pass made with itself, and asks whether any value differs: such
    checks are passed over, and those between an attention's kernels go with them.
    """
    names = trace.get(DEVICE_OPS)["name"][kernels["row"]]
    kernels = kernels.select("row", "stream", "start_ns", "length", "family", "math").with_columns(
        matches(names, kernel_traits.SOFTMAX_BACKWARD).alias("backward"),
        matches(names, kernel_traits.LOG_SOFTMAX).alias("of_loss"),
        matches(names, kernel_traits.MEAN).alias("averages"),
        matches(names, f"{kernel_traits.COMPARES}|{kernel_traits.ANY}").alias("checks"),
    )
    kernels = by_stream(kernels)
    products, between = _attention(kernels.filter(~pl.col("checks")))
    if kernels["checks"].any():
        between = np.union1d(between, _checks_within(kernels, np.union1d(products, between)))
    suffix = "_wide" if between.size and _mostly_wide(kernels, products) else ""
    return Selection(device, {f"product{suffix}": products, "between": between}) if between.size else None


def _checks_within(kernels: pl.DataFrame, rows: Int64Array) -> Int64Array:
    """Rows of checks between two kernels of these rows, for kernels in order of stream and start."""
    own = pl.when(~pl.col("checks")).then(pl.col("row").is_in(pl.Series(rows).implode()))
    inside = own.forward_fill().over("stream") & own.backward_fill().over("stream")
    return np.sort(rows_of(kernels.filter(pl.col("checks") & inside)))


def _mostly_wide(kernels: pl.DataFrame, products: Int64Array) -> bool:
    """Whether most of the products' time is in a four-byte type, by the names of their kernels."""
    own = kernels.filter(pl.col("row").is_in(pl.Series(products).implode()))
    return bool(own.filter(pl.col("math").is_in(_WIDE))["length"].sum() * 2 > own["length"].sum())


def _attention(kernels: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """Rows of the products and of the kernels between them, for kernels in order of stream and start.

    Around each softmax, forward and then backward (`row` counts the kernels of a stream):

        row           0     1      2        3     4                    0     1     2                 3     4
        kernel       gemm  scale  softmax  copy  gemm                 gemm  gemm  softmax backward  gemm  gemm
        products      0                            4                    0    1                        3    4
        between             1       2        3                                     2
    """
    stream, backward, averages = (kernels[name].to_numpy() for name in ("stream", "backward", "averages"))
    product, recast, passed = (kernels["family"].is_in(some).to_numpy() for some in (_PRODUCTS, _RECAST, _BETWEEN))
    softmax = (kernels["family"] == "softmax").to_numpy() & ~kernels["of_loss"].to_numpy()
    products: set[int] = set()
    between: set[int] = set()
    for centre in np.flatnonzero(softmax).tolist():
        before = _product_at(centre, -1, stream, product, passed)
        after = _product_at(centre, 1, stream, product, passed)
        if before < 0 or after < 0:
            continue
        between.update(range(before + 1, after))
        between.update(_averaged(after, stream, averages))
        products.update((before, after))
        if backward[centre]:  # two products make the gradient of the scores and of the values, two use it
            for start, step in ((before, -1), (after, 1)):
                other = _neighbour(start, step, product, recast, stream)
                products.update(other[-1:])
                between.update(other[:-1])
    between -= products
    row = rows_of(kernels)
    return row[sorted(products)], row[sorted(between)]


def _product_at(place: int, step: int, stream: Int64Array, product: BoolArray, passed: BoolArray) -> int:
    """The position of the first product before (`step` -1) or after `place`, or -1 where there is none in reach.

    All kernels up to it must be on the stream of `place` and of a kind that attention has between (`passed`).
    """
    at = place + step
    for _ in range(assumed.SOFTMAX_REACH.whole + 1):
        if not 0 <= at < len(stream) or stream[at] != stream[place]:
            return -1
        if product[at]:
            return at
        if not passed[at]:
            return -1
        at += step
    return -1


def _averaged(product: int, stream: Int64Array, averages: BoolArray) -> list[int]:
    """The position of a mean over heads, where attention weights were asked for: soon after the last product."""
    reach = range(product + 1, min(product + 1 + assumed.MEAN_REACH.whole, len(stream)))
    return [at for at in reach if averages[at] and stream[at] == stream[product]][:1]


def _neighbour(place: int, step: int, product: BoolArray, recast: BoolArray, stream: Int64Array) -> tuple[int, ...]:
    """The product next to the one at `place`, or one cast or layout change and the product after it; or nothing."""
    for path in ((place + step,), (place + step, place + 2 * step)):
        inside = all(0 <= at < len(stream) and stream[at] == stream[place] for at in path)
        if inside and product[path[-1]] and all(recast[at] for at in path[:-1]):
            return path
    return ()


_MEMBERS: Final = ("pointwise", "reduction", "fill")
_JOINS: Final = "concat"  # a compiler writes the pieces where they belong; by itself it makes no chain
_NO_WORKS: Final = (_JOINS, "reduction")  # reductions read their operand through: they end a chain and make none
_READ: Final = ("row", "stream", "length", "name", "family")


@of_each_device(copies)
def pointwise_chains(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection | None:
    """Per device: chains of at least three eager kernels, and gates; of each every `other` member than the longest."""
    specific = rows_on(device, [*unfused_attention(trace), *wide_kernels(trace)["fp64"]])
    eager = pl.col("family").is_in([*_MEMBERS, _JOINS]) & pl.col("fused").is_null() & ~pl.col("optimizer")
    own = ~pl.col("row").is_in(pl.Series(specific).implode())
    member = (eager & own & pl.col("copies").is_null()).alias("member")
    kernels = by_stream(kernels.select(*_READ, "copies", member, read_before(trace, device)))
    parts = pl.struct("stream", "read").rle_id().alias("stream")  # nothing is fused across a read
    names = trace.get(DEVICE_OPS)["name"][kernels["row"]]
    gates = (matches(names, of).alias(role) for role, of in kernel_traits.GATE.items())
    rows = shorter_members(kernels.with_columns(parts, *gates))
    return Selection(device, {"other": rows}) if rows.size else None


def read_before(trace: Trace, device: Device) -> pl.Series:
    """For each kernel of a device how often the host had read from it before: what it reads, it acts on."""
    ops = trace.get(DEVICE_OPS).filter(of_device(device))
    reads = ops.select((pl.col("copy_kind").cast(pl.String) == "d2h").fill_null(False).cum_sum().alias("read"))
    return reads.filter(ops["kind"] == "kernel").to_series()


def shorter_members(kernels: pl.DataFrame, any_run: bool = False) -> Int64Array:
    """Rows of all members of runs but the longest of each, for kernels in order of stream and start.

    A run is a chain if three elementwise kernels of one size, not all alike, work in it, or two are a gate: an
    activation and its product with another tensor, which no library call makes one kernel. `any_run` is one that
    somebody else chose.

    Every kernel that is no member, and every change of stream, begins a new run number:

        family   pointwise  cast     reduction  pointwise  gemm  pointwise
        member   yes        skipped  yes        yes        no    yes
        run      1                   1          1          2     2
        result   yes                 longest    yes              no: a run of one
    """
    member, stream = kernels["member"].to_numpy(), kernels["stream"].to_numpy()
    breaks = ~member & kernels["copies"].is_null().to_numpy()
    breaks[1:] |= stream[1:] != stream[:-1]
    row, length, name = (kernels[column].to_numpy()[member] for column in ("row", "length", "name"))
    begins = np.flatnonzero(np.diff(np.cumsum(breaks, dtype=np.int32)[member], prepend=-1))
    run = np.repeat(np.arange(begins.size), np.diff(begins, append=row.size))
    longest = np.maximum.reduceat(length, begins)[run]
    at = np.flatnonzero(length == longest)
    first_longest = at[np.diff(run[at], prepend=-1) > 0]
    chosen = np.ones(row.size, np.bool_)
    if not any_run:
        chosen = length * assumed.CHAIN_SIZES.whole >= longest
        works = chosen & ~kernels["family"].is_in(_NO_WORKS).to_numpy()[member]
        differs = chosen & (name != name[first_longest][run])  # one operation over and over need not be a chain
        enough = np.add.reduceat(works, begins, dtype=np.int64) >= assumed.CHAIN_LEAST.whole
        opens, scales = (kernels[role].to_numpy()[member] & chosen for role in kernel_traits.GATE)
        opens[:-1] &= scales[1:] & (run[:-1] == run[1:])
        opens[-1:] = False
        enough |= np.logical_or.reduceat(opens, begins)
        chosen &= (enough & np.logical_or.reduceat(differs, begins))[run]
    chosen[first_longest] = False
    return np.sort(row[chosen])


# What a compiler writes into one kernel between two products; scatters with sorts, scans and libraries stay.
_COMPILED: Final = (*_MEMBERS, _JOINS, "copy", "index", "softmax", "norm", "loss", "random")
_AT_ONCE: Final = 12  # a compiler makes one kernel of fewer than so many; in GPT-2 a run between products has five


@of_each_device(kernel_facts)
def eager_runs(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection | None:
    """Per device with eager kernels, those outside an optimizer: of each run that a compiler makes one kernel of, the
    `longest` and every `other`; what is `alone` between them stays, as a product does."""
    doubles = pl.Series(rows_on(device, wide_kernels(trace)["fp64"])).implode()
    eager = pl.col("fused").is_null() & ~pl.col("optimizer")
    member = (eager & pl.col("family").is_in(_COMPILED) & ~pl.col("row").is_in(doubles)).alias("member")
    kernels = by_stream(kernels.with_columns(member))
    runs = kernels.with_columns(run_numbers()).filter("member")
    place = pl.int_range(pl.len()).over("run") // _AT_ONCE
    runs = runs.with_columns(place.alias("piece"))
    first_longest = pl.col("row").sort_by("length", "row", descending=[True, False]).first().over("run", "piece")
    long = pl.col("length") * assumed.CHAIN_SIZES.whole >= pl.col("length").max().over("run", "piece")
    runs = runs.with_columns(long.alias("long"))
    shorter = (~pl.col("long")).any().over("run", "piece")
    kinds = pl.when("long").then(pl.col("name")).n_unique().over("run", "piece") - shorter
    alike = kinds == 1  # one operation over and over, on tensors that need not belong together
    runs = runs.filter(~alike & (pl.len().over("run", "piece") > 1))
    if not runs.height:
        return None
    longest = pl.col("row") == first_longest
    parts = {"longest": runs.filter(longest), "other": runs.filter(~longest)}
    parts["alone"] = kernels.filter(eager).join(runs, on="row", how="anti")
    return Selection(device, {role: np.sort(rows_of(part)) for role, part in parts.items()})


_OPTIMIZER_MEMBERS: Final = ("pointwise", "foreach", "fill", "copy", "reduction")
"""Causes of idle time that fewer launches take away."""


class OptimizerKernels(Record, eq=False):
    """The optimizer's kernels on one device.

    `unfused` are those that a fused step replaces, `idle` the idle time in which the host was on its way to launch one
    of them (blocking waits aside), `per_step` how many of them a step runs, and `one_by_one` how many of these update a
    single parameter (the others update lists). `takes_fused`: PyTorch's own, as far as names tell.
    """

    device: Device
    unfused: Selection
    idle: Intervals
    per_step: float
    one_by_one: float
    takes_fused: bool


@of_each_device(kernel_facts)
def optimizer_kernels(trace: Trace, device: Device, kernels: pl.DataFrame) -> OptimizerKernels | None:
    """Per device on which an optimizer's step runs kernels."""
    kernels = kernels.filter("optimizer")
    if not kernels.height:
        return None
    fused = matches(trace.get(DEVICE_OPS)["name"][kernels["row"]], kernel_traits.FUSED_OPTIMIZER).any()
    passes = pl.col("family").is_in(_OPTIMIZER_MEMBERS) & pl.col("fused").is_null()
    unfused = kernels.filter(passes & pl.lit(not fused))  # next to a fused step, others clip gradients or count
    if (unfused["family"] == "foreach").all() and unfused["name"].n_unique() == 1:
        unfused = unfused.clear()  # plain SGD over lists: one pass over the weights, as fused
    rows, count = rows_of(unfused), max(_steps(trace, device), 1)
    single = unfused.filter(pl.col("family") != "foreach").height
    idle = Intervals.of(idle_blame(trace).ended_by(rows).filter(pl.col("cause").is_in(LAUNCHING_CAUSES)))
    named = range_projection(trace)["name"]
    fuses = not matches(named, TORCH_OPTIMIZER_STEP).any() or bool(matches(named, TAKES_FUSED).any())
    return OptimizerKernels(
        device, Selection(device, {"unfused": rows}), idle, rows.size / count, single / count, fuses
    )


def _steps(trace: Trace, device: Device) -> int:
    """How many times the optimizer ran: the marked steps, or, without such, separate stretches of it, each from the
    first to the last device op launched in a range of it."""
    marked = int((steps(trace).frame["rank"] == device[0]).sum())
    if marked:
        return marked
    instances = range_projection(trace)
    own = instances.filter(matches(instances["name"], OPTIMIZER_STEP), of_device(device))
    return len(Intervals.union_of(own["first_ns"], own["last_ns"]))
