"""Rows of alike sequences of kernels: calls of a model several times in a step, and layers.

**Calls**: with a condition and without, or of alike models on the same input. One call of a larger batch does as much.
Kernels are taken in the order of their launches. Calls are looked for as a sequence that runs two to `_CALLS` times
with nothing between, again in every step, and that holds layers: a shorter sequence that itself runs several times in
a row. No product may run outside the calls, or the sequence is a stack of layers within a larger model; nor may a call
be nothing but layers, for then so is all of the row. Whether a call needs what the one before computed, no trace shows.

Alike models side by side, such as experts, are shorter rows, of more calls. By recorded shapes the last product of each
makes fewer elements than the first reads, and nothing in it makes more of them: so none can read what the one before
made, as layers do. Without shapes, of two products of one kernel each the first takes clearly longer: a pair that
reads what the pair before made has as much to do in both, or less in the first where more is made than was read.

Lookups in tables, such as embeddings, read whole numbers and make floats, so none reads another's result as numbers,
nor as a table that has more or fewer elements. Where tables of one shape become one, so do the passes that go over them
one at a time, such as an optimizer's.

**Layers**, one after another: what people compile one by one, each a region that is entered at a price.
No trace of eager code says where its layers begin. Kernels of the forward pass are taken in the order of their
launches; layers are the longest rows in which a sequence with two products or more comes twice or more often within a
step, with nothing between. Where a sequence is itself mostly such rows, as a call of a model is of its layers, these
are the layers. A model without any is compiled as a whole: in training, one region for each forward pass.
"""

from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import machines
from timesink.knowledge.operators import GATHERS_A_GRADIENT, LOOKS_UP, Operator
from timesink.measures.habits.extra_work import STRETCH, by_process, launched
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.one_stream import fills
from timesink.measures.kernels.shapes import product_sizes
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, median
from timesink.model.nesting import numbered_rows
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.startup import regex
from timesink.whatif import Selection

_CALLS: Final = 4  # in a row: as many as a step has conditions, views or micro-batches; longer rows are loops in time
_MOST: Final = 4_000  # kernels of a step: rows of longer steps take seconds to search
_STEPS_SEARCHED: Final = 4  # show what comes back
_SHARE: Final = 0.5  # of the step's kernels are in the calls, and of a call's kernels in its layers
PRODUCTS: Final = ("gemm", "convolution", "attention")
_SIDE_BY_SIDE: Final = 3  # calls at least: two are what is made of one tensor, such as keys and values
_LONGER: Final = 1.25  # times the last product's time: of layers that read what they make both take as long
_OF_ONE: Final = 16  # kernels of such a call at most, backwards
_LOOKUP, _GRADIENT = regex(LOOKS_UP), regex(GATHERS_A_GRADIENT)
_TYPES: Final = (("fp", "bf"), ("int", "uint"))


class _Calls(Record):
    """A call has `length` kernels; rows of calls begin at `starts`, and each has `count` calls."""

    length: int
    starts: Int64Array
    count: Int64Array

    def covered(self, size: int) -> BoolArray:
        """Which of so many kernels are in any call."""
        inside = np.zeros(size, np.bool_)
        for start, count in zip(self.starts.tolist(), self.count.tolist(), strict=True):
            inside[start : start + count * self.length] = True
        return inside

    def again(self) -> Int64Array:
        """Places of the kernels of every call but the first of each row."""
        rows = zip(self.starts.tolist(), self.count.tolist(), strict=True)
        parts = [np.arange(start + self.length, start + count * self.length) for start, count in rows]
        return np.concatenate([np.empty(0, np.int64), *parts])


@remembered
def repeated_calls(trace: Trace) -> tuple[Selection, ...]:
    """Per device the kernels of all calls but the first of each row, as `again`; `usual` and `best` are the share of
    their time that a larger batch of the first takes more, where the grid of one call leaves room.

    At best a multiprocessor does as many blocks at once as its threads allow in the time of one. That one block keeps
    it as busy as many, is the other end; how busy it does, no trace shows: usually half-way between them.
    """
    rows = [np.empty(0, np.int64)]
    whole, shared = [np.empty(0)], [np.empty(0)]
    filled, packed = fills(trace)
    for part, rank_steps in by_process(trace, launched(trace).frame):
        whole_calls = _calls(part["code"].to_numpy(), part["family"].is_in(list(PRODUCTS)).to_numpy(), rank_steps)
        for found in [whole_calls] if whole_calls is not None else _side_by_side(trace, part, rank_steps):
            again, row = found.again(), part["row"].to_numpy()
            count = np.repeat(found.count, (found.count - 1) * found.length)
            rows.append(row[again])
            whole.append(remaining_share(trace, row[again], filled[row[again]], count))
            shared.append(remaining_share(trace, row[again], packed[row[again]], count))
    chosen, best = np.concatenate(rows), np.concatenate(shared)
    usual = (np.concatenate(whole) + best) / 2.0
    ordered = np.argsort(chosen)
    chosen, usual, best = chosen[ordered], usual[ordered], best[ordered]
    parts = []
    for device in kernel_facts(trace).devices:
        own = np.isin(chosen, kernel_facts(trace).on(device)["row"].to_numpy())
        if own.any():
            parts.append(Selection(device, {"again": chosen[own]}, usual[own], best[own]))
    return tuple(parts)


def remaining_share(trace: Trace, rows: Int64Array, fill: Float64Array, count: Int64Array) -> Float64Array:
    """The share of its time that each kernel adds to that of the first call: what any kernel takes goes, and of the
    rest what the multiprocessors that one grid leaves idle can do besides.

    Two calls of 5 us, of which 2 are what any kernel takes: a grid that fills the device takes 2 + 6 us for both, so
    that 3 of 5 remain; one that fills half of it 2 + 3 us, so that none remains.
    """
    ops = trace.get(DEVICE_OPS)
    start, end = (ops[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))
    length = np.maximum(end - start, 1).astype(np.float64)
    work = np.maximum(length - machines.KERNEL_FLOOR_US.ns, 0.0)
    return np.asarray(work * (np.maximum(count * fill, 1.0) - 1.0) / (count - 1.0) / length, np.float64)


def _calls(codes: Int64Array, products: BoolArray, step_count: int) -> _Calls | None:
    """The rows of calls in a sequence of kernels that has about so many steps; None where there are none."""
    per_step = codes.size // max(step_count, 1)
    if step_count < 2 or not 2 * STRETCH <= per_step <= _MOST:
        return None
    searched = codes[: _STEPS_SEARCHED * per_step]
    lengths = [
        length for length in range(2 * STRETCH, per_step // 2 + 1) if in_a_row(searched, length, _CALLS).starts.size
    ]
    found = [in_a_row(codes, length, _CALLS) for length in lengths]
    whole = [one for one in found if _stands(one, codes, products, per_step)]
    return max(whole, key=lambda one: int((one.count * one.length).sum()), default=None)


def _side_by_side(trace: Trace, part: pl.DataFrame, step_count: int) -> list[_Calls]:
    """Rows of calls within a step none of which can read what the one before made, and rows of as many calls on the
    threads of the backward pass, where the first or the last may differ, as gradients are added up."""
    per_step = part.height // max(step_count, 1)
    facts = kernel_facts(trace).at(part["row"], "math", "host_op", "family", "row", "length")
    length_ns = facts["length"].to_numpy()
    product, grows = (facts["family"] == "gemm").to_numpy(), (facts["family"] == "concat").to_numpy()
    kind, reads, makes = (np.full(part.height, -1, np.int64) for _ in range(3))  # three columns
    kind[product], reads[product], makes[product] = product_sizes(trace, facts.filter(pl.Series(product)))
    backward, codes, found = launched(trace).is_backward(part), part["code"].to_numpy(), list[_Calls]()
    taken = np.zeros(codes.size, np.bool_)
    looks_up, gathers, passes = _tables(trace, facts["host_op"])
    for start, count, length in sorted(_alike(codes), key=lambda row: bool(backward[row[0]])):
        calls = np.arange(start, start + count * length).reshape(count, length)
        own = calls[0][product[calls[0]]]
        if calls.size > per_step or taken[calls].any() or grows[calls].any() or (kind[calls] != kind[calls[0]]).any():
            continue
        apart = bool(own.size) and 0 < makes[own[-1]] < reads[own[0]]
        if own.size == 2 and makes[own].max() < 0:
            first, last = (median(length_ns[calls[:, place]]) for place in own - start)
            apart = first > _LONGER * last
        as_many = any(abs(int(one.count[0]) - count) <= 1 for one in found)
        if not own.size:
            apart = bool(looks_up[calls].all() or (as_many and passes[calls].all()))
        follows = as_many and bool(own.size or gathers[calls].any(axis=1).all())
        if follows if backward[calls].all() else apart and not backward[calls].any():
            taken[calls] = True
            found.append(_Calls(length, np.array([start]), np.array([count])))
    return found


def _tables(trace: Trace, operators: pl.Series) -> tuple[BoolArray, ...]:
    """Of each kernel, by its operator: whether it looks numbers up in a table, whether it adds up the gradient of one,
    and whether it goes over what has the shape of a table."""
    known = operators.is_not_null().to_numpy()
    if not known.any():
        return known, known, known
    told = trace.get(HOST_OPS).select("name", "input_shapes", "input_dtypes")[operators.drop_nulls()]
    number, first = numbered_rows(told)
    rows = (map(str, row) for row in told[first].iter_rows())
    kinds = [Operator.recorded(name, shapes, types, None, None) for name, shapes, types in rows]
    tables = [None if kind is None else _table(kind) for kind in kinds]
    shapes = [tensors[0].shape if kind and (tensors := kind.tensors()) else () for kind in kinds]
    gathers = [kind is not None and bool(_GRADIENT.match(kind.name)) for kind in kinds]
    found = []
    for kind_is in ([table is not None for table in tables], gathers, [shape in tables for shape in shapes]):
        of_kernel = np.zeros(known.size, np.bool_)
        of_kernel[known] = np.array(kind_is, np.bool_)[number]
        found.append(of_kernel)
    return tuple(found)


def _table(operator: Operator) -> tuple[int, ...] | None:
    """The shape of a table of floats in which whole numbers are looked up, where no result can be read as such a table:
    it has more or fewer elements."""
    floats, numbers = ([one for one in operator.tensors() if one.dtype.startswith(kind)] for kind in _TYPES)
    if not _LOOKUP.match(operator.name) or not floats or len(numbers) != 1 or len(floats[0].shape) < 2:
        return None
    table, looked_up = floats[0], numbers[0].elements
    return None if table.elements in (looked_up, looked_up * table.shape[-1]) else table.shape


def _alike(codes: Int64Array) -> list[tuple[int, int, int]]:
    """Rows of `_SIDE_BY_SIDE` short sequences and more: start, how many, and how long each is; the shortest first. A
    sequence that itself is a row is none."""
    lengths = range(1, min(_OF_ONE, codes.size // _SIDE_BY_SIDE) + 1)
    rows = ((length, in_a_row(codes, length)) for length in lengths)
    every = ((*pair, n) for n, row in rows for pair in zip(row.starts.tolist(), row.count.tolist(), strict=True))
    return [
        (start, count, length)
        for start, count, length in every
        if count >= _SIDE_BY_SIDE and not _is_a_row(codes[start : start + length])
    ]


def _is_a_row(codes: Int64Array) -> bool:
    parts = (part for part in range(1, codes.size // 2 + 1) if codes.size % part == 0)
    return any((codes[part:] == codes[:-part]).all() for part in parts)


def in_a_row(codes: Int64Array, length: int, most: int | None = None) -> _Calls:
    """Where sequences of that length follow each other twice or more often, up to `most` times."""
    alike = np.concatenate(([False], codes[:-length] == codes[length:], [False]))
    turns = np.flatnonzero(alike[1:] != alike[:-1])
    starts, ends = turns[::2], turns[1::2]
    count = (ends - starts) // length + 1
    chosen = (count >= 2) & (count <= (most or codes.size))
    return _Calls(length, starts[chosen], count[chosen])


def _stands(calls: _Calls, codes: Int64Array, products: BoolArray, per_step: int) -> bool:
    """Whether these are calls of a model, again in every step."""
    taken = calls.count * calls.length
    gaps = [(start + size, after) for (start, size), (after, _) in pairwise(zip(calls.starts, taken, strict=True))]
    if not gaps or median(taken) < _SHARE * per_step:
        return False
    inside = calls.covered(codes.size)
    between = ~inside
    between[: int(calls.starts[0])] = between[int(calls.starts[-1]) :] = False
    if (products & between).any() or not all(end < after for end, after in gaps):
        return False
    one = codes[calls.starts[0] : calls.starts[0] + calls.length]
    rows = ((length, in_a_row(one, length)) for length in range(STRETCH, calls.length // 2 + 1))
    covered = max(((layers.count * length).max(initial=0) for length, layers in rows), default=0)
    return bool(_SHARE * calls.length <= covered < calls.length)


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
