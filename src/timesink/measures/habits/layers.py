"""Alike layers, one after another: what people compile one by one, each a region that is entered at a price.

No trace of eager code says where its layers begin. Kernels of the forward pass are taken in the order of their
launches; layers are the longest rows in which a sequence with two products or more comes twice or more often within a
step, with nothing between. Where a sequence is itself mostly such rows, as a call of a model is of its layers, these
are the layers. A model without any is compiled as a whole: in training, one region for each forward pass.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from timesink.measures.habits.repeated_calls import PRODUCTS, in_a_row
from timesink.measures.habits.sequences import STRETCH, by_process, launched
from timesink.measures.kernels.facts import kernel_facts
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.trace import Trace, remembered
from timesink.whatif.change import Selection

_LONGEST: Final = 400  # kernels of a layer, or of a call of a model in a row
_PRODUCTS: Final = 2  # fewer are a part of a layer, such as a convolution with its normalisation
_SEARCHED: Final = 20_000  # kernels: longer orders take seconds to search
_MOSTLY: Final = 0.5  # of a sequence's kernels


@remembered
def layers(trace: Trace) -> tuple[Selection, ...]:
    """Per device the `first` kernel of each layer of each forward pass, or the first product of each pass."""
    facts, order, first = kernel_facts(trace), launched(trace), [np.empty(0, np.int64)]
    for every, count in by_process(trace, order.frame):
        backward = order.is_backward(every)
        part = every.filter(~backward)
        if part.height <= _SEARCHED:
            products = part["family"].is_in([*PRODUCTS, "gemv"]).to_numpy()
            most = min(_LONGEST, part.height // max(2 * count, 2))
            starts = _starts(part["code"].to_numpy(), products, most)
            first.append(part["row"].to_numpy()[starts if starts.size else _passes(backward, products)])
    rows = np.concatenate(first)
    own = [(device, np.intersect1d(rows, facts.on(device)["row"].to_numpy())) for device in facts.devices]
    return tuple(Selection(device, {"first": some}) for device, some in own if some.size)


def _passes(backward: BoolArray, products: BoolArray) -> Int64Array:
    """Of the kernels that are not `backward` the first product of each pass that a backward pass follows."""
    begun = np.cumsum(np.diff(backward.astype(np.int8), prepend=0) > 0)  # backward passes so far
    passes = begun[~backward]
    own = np.flatnonzero(products & (passes < begun.max(initial=0)))
    return own[np.unique(passes[own], return_index=True)[1]]


def _starts(codes: Int64Array, products: BoolArray, most: int) -> Int64Array:
    """Where layers of so many kernels at most start in a sequence of them."""
    rows = []
    for length in range(STRETCH, most + 1):
        found = in_a_row(codes, length)
        rows += [(count * length, length, start) for start, count in zip(found.starts, found.count, strict=True)]
    taken, starts = np.zeros(codes.size, np.bool_), [np.empty(0, np.int64)]
    for size, length, start in sorted(rows, key=lambda row: (-row[0], row[1], row[2])):
        if taken[start : start + size].any() or products[start : start + length].sum() < _PRODUCTS:
            continue
        taken[start : start + size] = True
        within, one = slice(start, start + length), np.zeros(1, np.int64)
        inner = _starts(codes[within], products[within], length // 2) if length >= 2 * STRETCH else one[:0]
        spans = np.diff(inner).min(initial=length) * inner.size
        offsets = inner if inner.size > 1 and spans >= _MOSTLY * length else one
        starts.append((start + np.arange(0, size, length)[:, None] + offsets).ravel())
    return np.sort(np.concatenate(starts))
