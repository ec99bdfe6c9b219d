"""Attention spelled out in products and a softmax, found by the order of kernels on a stream.

A softmax between two matrix products, with nothing but elementwise kernels, copies and masks between them, writes the
scores of every pair of positions to memory; a fused kernel never does. A router's softmax is followed by a selection,
a loss's by a gather: neither stands directly between two products.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.shortened import Shortened, rows_of
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.whatif.graph import Range

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
def attention_pieces(trace: Trace) -> tuple[Shortened, ...]:
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
