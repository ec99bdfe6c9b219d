"""Attention spelled out in products and a softmax, found by the order of kernels on a stream.

A softmax between two matrix products, with nothing but elementwise kernels, copies and masks between them, writes the
scores of every pair of positions to memory; a fused kernel never does. A router's softmax is followed by a selection,
a loss's by a gather: neither stands directly between two products.

Runs of neighbouring eager kernels that each read and write memory once, where one kernel could do all of it.

Science 6.4: a fused region takes at least as long as its external traffic; here the longest member stands for that,
since it reads and writes at least what the region has to. Kernels that only cast or change a layout neither break a
run nor count: they have causes of their own. So do kernels of an optimizer, kernels in float64, and what belongs to
attention spelled out.

The device's part of optimizer steps: from the first to the last kernel launched in one, and which are not fused.

Fused AdamW reads parameter, gradient and two moments and writes three of them: 7 passes over memory. Operation by
operation it takes about 20, SGD with momentum 14 instead of 5: a fused step keeps about 35 % of the kernel time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.idle.blame import idle_blame
from timesink.measures.kernels.conversions import copies
from timesink.measures.kernels.facts import OPTIMIZER_RANGE, Shortened, all_rows, kernel_facts, rows_of
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device
from timesink.measures.timeline.ranges import range_projection
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.whatif.change import Range

_PRODUCTS: Final = ("gemm", "gemv")
_BETWEEN: Final = ("pointwise", "copy", "fill", "random", "index", "concat", "softmax", "layout", "other")
_REACH: Final = 8  # kernels between a softmax and its product: scale, mask, dropout, copies
_RECAST: Final = ("copy", "layout")  # one may stand between two products of a backward pass
_MEAN_REACH: Final = 3  # a copy and the output projection come before it
_BACKWARD: Final = r"(?i)softmax\w*backward"
_MEAN: Final = r"MeanOps"
_LOSS: Final = r"(?i)log_?softmax"
# Written out, the products of short heads are bound by the scores they write and read; fused they are not.
_PRODUCT_KEPT: Final = Range(0.8, 0.3, 0.1)
_BETWEEN_KEPT: Final = Range(0.2, 0.0, 0.0)


@remembered
def unfused_attention(trace: Trace) -> tuple[Shortened, ...]:
    """Per device with such a sequence: its products and the kernels between them."""
    facts = kernel_facts(trace)
    found = []
    for device in facts.devices:
        mine = facts.on(device).select("row", "stream", "start_ns", "family")
        names = trace.get(DEVICE_OPS)["name"].gather(mine["row"])
        mine = mine.with_columns(
            matches(names, _BACKWARD).alias("backward"),
            matches(names, _LOSS).alias("of_loss"),
            matches(names, _MEAN).alias("averages"),
        ).sort("stream", "start_ns", "row")
        products, between = _pieces(mine)
        if between.size:
            every = np.union1d(products, between)
            found.append(Shortened.of(device, every, (products, _PRODUCT_KEPT), (between, _BETWEEN_KEPT)))
    return tuple(found)


def _pieces(mine: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """Rows of the products and of what lies between them, for kernels in order of stream and start."""
    stream, backward, averages = (mine[name].to_numpy() for name in ("stream", "backward", "averages"))
    product, recast, passed = (mine["family"].is_in(some).to_numpy() for some in (_PRODUCTS, _RECAST, _BETWEEN))
    softmax = (mine["family"] == "softmax").to_numpy() & ~mine["of_loss"].to_numpy()
    products: set[int] = set()
    between: set[int] = set()
    for place in np.flatnonzero(softmax).tolist():
        before = _product_at(place, -1, stream, product, passed)
        after = _product_at(place, 1, stream, product, passed)
        if before < 0 or after < 0:
            continue
        between.update(range(before + 1, after))
        between.update(_averaged(after, stream, averages))
        products.update((before, after))
        if backward[place]:  # two products make the gradient of the scores and of the values, two use it
            for start, step in ((before, -1), (after, 1)):
                other = _neighbour(start, step, product, recast, stream)
                products.update(other[-1:])
                between.update(other[:-1])
    between -= products
    row = rows_of(mine)
    return row[sorted(products)], row[sorted(between)]


def _product_at(place: int, step: int, stream: Int64Array, product: BoolArray, passed: BoolArray) -> int:
    """The first product before or after, through kernels that attention has between; -1 where there is none."""
    at = place + step
    for _ in range(_REACH + 1):
        if not 0 <= at < len(stream) or stream[at] != stream[place]:
            return -1
        if product[at]:
            return at
        if not passed[at]:
            return -1
        at += step
    return -1


def _averaged(place: int, stream: Int64Array, averages: BoolArray) -> list[int]:
    """A mean over heads of the weights that were asked for: it follows the last product within a few kernels."""
    reach = range(place + 1, min(place + 1 + _MEAN_REACH, len(stream)))
    return [at for at in reach if averages[at] and stream[at] == stream[place]][:1]


def _neighbour(place: int, step: int, product: BoolArray, recast: BoolArray, stream: Int64Array) -> tuple[int, ...]:
    """The product next to a product, or one cast or change of layout and the product behind it; or nothing."""
    for path in ((place + step,), (place + step, place + 2 * step)):
        inside = all(0 <= at < len(stream) and stream[at] == stream[place] for at in path)
        if inside and product[path[-1]] and all(recast[at] for at in path[:-1]):
            return path
    return ()


_MEMBERS: Final = ("pointwise", "reduction", "fill")
_JOINS: Final = "concat"  # a compiler writes the pieces where they belong; by itself it makes no chain
_LEAST: Final = 3  # a run of two is an operation and its activation
_OTHERS_KEPT: Final = Range(0.5, 0.1, 0.0)
_READ: Final = ("row", "stream", "start_ns", "length", "name", "family")
_ONE_SIZE: Final = 8  # members move within this factor of the longest: scalars at the end of a loss are no chain


@remembered
def pointwise_chains(trace: Trace) -> tuple[Shortened, ...]:
    """Per device: eager runs of at least three kernels. The longest member of a run is not among the rows."""
    facts = kernel_facts(trace)
    specific = np.union1d(all_rows(unfused_attention(trace)), all_rows(part.fp64 for part in wide_kernels(trace)))
    eager = pl.col("family").is_in([*_MEMBERS, _JOINS]) & pl.col("fused").is_null() & ~pl.col("optimizer")
    own = ~pl.col("row").is_in(pl.Series(specific).implode())
    member = (eager & own & pl.col("copies").is_null()).alias("member")
    found = []
    for device in facts.devices:
        mine = copies(trace, facts.on(device)).select(*_READ, "copies", member)
        rows = _shorter_members(mine.sort("stream", "start_ns", "row"))
        if rows.size:
            found.append(Shortened.of(device, rows, (rows, _OTHERS_KEPT)))
    return tuple(found)


def _shorter_members(mine: pl.DataFrame) -> Int64Array:
    """All members of runs but the longest of each, for kernels in order of stream and start."""
    skipped = mine["copies"].is_not_null() & ~mine["member"]
    kept = mine.filter(~skipped)
    breaks = ~pl.col("member") | (pl.col("stream") != pl.col("stream").shift(1)).fill_null(True)
    runs = kept.with_columns(breaks.cum_sum().alias("run")).filter("member")
    longest = pl.col("length").max().over("run")
    runs = runs.filter(pl.col("length") * _ONE_SIZE >= longest)
    different = pl.col("name").n_unique().over("run") > 1  # one operation over and over need not be a chain
    working = (pl.col("family") != _JOINS).sum().over("run")
    runs = runs.filter((working >= _LEAST) & different)
    first_longest = pl.col("row").sort_by("length", "row", descending=[True, False]).first().over("run")
    return np.sort(runs.filter(pl.col("row") != first_longest)["row"].to_numpy())


FUSED: Final = r"(?i)FusedOptimizer|Fused\w*(?:Adam|Sgd|Lamb|Lion)|fused_(?:adam|sgd|lamb|lion)"
_OPTIMIZER_MEMBERS: Final = ("pointwise", "foreach", "fill", "copy", "reduction")
# Causes of idle time that fewer launches take away.
_HOST_CAUSES: Final = ("dispatch", "cuda_call", "launch_latency", "python", "untraced", "optimizer")
_KEPT: Final = Range(0.6, 0.35, 0.2)


@dataclass(frozen=True, slots=True, eq=False)
class OptimizerKernels:
    """One device. `unfused` are the kernels that a fused step replaces; `idle` is idle time in which the host was on
    its way to launch one of them, blocking waits aside; `per_step` is how many of them a step runs, `one_by_one` how
    many update a single parameter (the others update lists)."""

    device: Device
    unfused: Shortened
    idle: Intervals
    per_step: float
    one_by_one: float


@remembered
def optimizer_kernels(trace: Trace) -> tuple[OptimizerKernels, ...]:
    """Per device on which an optimizer's step runs kernels."""
    facts = kernel_facts(trace)
    spans = _spans(trace)
    found = []
    for device in facts.devices:
        mine = facts.on(device).filter("optimizer")
        if not mine.height:
            continue
        fused = matches(trace.get(DEVICE_OPS)["name"].gather(mine["row"]), FUSED).any()
        passes = pl.col("family").is_in(_OPTIMIZER_MEMBERS) & pl.col("fused").is_null()
        loose = mine.filter(passes & pl.lit(not fused))  # beside a fused step, others clip gradients or count
        rows = rows_of(loose)
        count = max(_steps(trace, device, spans), 1)
        single = loose.filter(pl.col("family") != "foreach").height
        found.append(
            OptimizerKernels(
                device,
                Shortened.of(device, rows, (rows, _KEPT)),
                _idle(trace, rows),
                rows.size / count,
                single / count,
            )
        )
    return tuple(found)


def _idle(trace: Trace, rows: Int64Array) -> Intervals:
    """Idle time that one of the kernels ended, blamed on the host's own work."""
    ended = idle_blame(trace).ended_by(rows)
    return Intervals.of(ended.filter(pl.col("cause").is_in(_HOST_CAUSES)))


def _spans(trace: Trace) -> dict[Device, Intervals]:
    """From the first to the last device op launched in each optimizer range."""
    instances = range_projection(trace)
    mine = instances.filter(matches(instances["name"], OPTIMIZER_RANGE))
    found = {}
    for (rank, device), part in mine.group_by("rank", "device"):
        span = Intervals.union_of(part["first_ns"].to_numpy(), part["last_ns"].to_numpy())
        found[int(str(rank)), int(str(device))] = span
    return found


def _steps(trace: Trace, device: Device, spans: dict[Device, Intervals]) -> int:
    """How many times the optimizer ran: the marked steps, or, without such, separate stretches of it."""
    marked = steps(trace).frame.filter(pl.col("rank") == device[0]).height
    return marked or len(spans.get(device, Intervals.none()))
