"""Work of which a program uses a part, or nothing, by recorded operators and their shapes: a full sort of which the
best few are kept, a matmul of all rows of which a few are read, a matmul with rows of zeros that hold a single one,
gradients recorded for no backward pass.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile
from math import prod
from typing import Final, Literal, get_args

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes, machines
from timesink.knowledge.operators import (
    COMPARES,
    CUTS,
    GOES_BACKWARD,
    HANDS_ON,
    MULTIPLIES,
    ORDER_FREE,
    SORTS,
    Operator,
    Tensor,
)
from timesink.measures.habits.extra_work import ExtraWork, extra_work
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.kernels.facts import device_peaks
from timesink.measures.repeats.order import call_order
from timesink.measures.steps.per_step import period_name
from timesink.measures.timeline import Device
from timesink.measures.timeline.attribution import attribution
from timesink.measures.timeline.autograd import backward_operators, recording_operators
from timesink.measures.timeline.known import trains
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.names import matches
from timesink.model.nesting import numbered_rows
from timesink.model.tables import DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.startup import regex
from timesink.whatif import Case

_NEAR: Final = 16  # operators after: what reads a result at once
_FEW: Final = 4  # times as many as are kept: less is not worth another operator
_IN_EACH: Final = 8  # elements of a row of zeros: fewer are masks
_COMES_BACK: Final = 10  # runs of each operator: of fewer most may be the first of its kind
_RECORDING: Final = 0.5  # of the operators that launch: in a program that infers without `no_grad` nearly all do

_BACK: Final = 4  # events from a matmul to the cut of its result: a slice of the whole may stand between
_TURN: Final = 4096  # operators after a matmul, at most, until it comes again: a residual reads its result late

Kind = Literal["sorted", "one_hot", "rows"]


class PartlyUsed(Record, eq=False):
    """`work` of one device, of which a part is used; the share of its time that stays at most, usually and at least;
    the operator that does it, how many elements it works on and how many of them are kept."""

    kind: Kind
    work: ExtraWork
    remains: tuple[float, float, float]
    operator: str
    of: int
    kept: int


class _Found(Record):
    """Events (`CallOrder`) that are done in full, and the bytes that the part alone has to move."""

    kind: Kind
    events: tuple[int, ...]
    least_bytes: int
    operator: str
    of: int
    kept: int


@remembered
def partly_used(trace: Trace) -> tuple[PartlyUsed, ...]:
    """Per kind and device, the dearest example giving the figures."""
    if not trace.get(HOST_OPS).height:
        return ()
    found = list(_candidates(trace))
    return tuple(part for kind in get_args(Kind) for part in _of_kind(trace, [f for f in found if f.kind == kind]))


def _of_kind(trace: Trace, found: list[_Found]) -> Iterator[PartlyUsed]:
    ops, of_event = trace.get(DEVICE_OPS), call_order(trace).of_device_op
    if not found:
        return
    whose = np.full(call_order(trace).op.size, -1)
    for at, one in enumerate(found):
        whose[list(one.events)] = at
    owner = np.where(of_event >= 0, whose[of_event], -1)
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    for work in extra_work(trace, owner >= 0):
        time_ns = np.bincount(owner[work.rows], length[work.rows], len(found))
        dearest = found[int(time_ns.argmax())]
        needed_ns = _needed_ns(trace, work.device, [(one, time_ns[at]) for at, one in enumerate(found) if time_ns[at]])
        total_ns = max(float(time_ns.sum()), 1.0)
        most, usual, least = (min(one_ns / total_ns, 1.0) for one_ns in needed_ns)
        yield PartlyUsed(dearest.kind, work, (most, usual, least), dearest.operator, dearest.of, dearest.kept)


def _needed_ns(trace: Trace, device: Device, found: list[tuple[_Found, float]]) -> list[float]:
    """What the part alone takes, at most, usually and at least; the bandwidth of a GPU that is not known is that of the
    slowest that is. A few rows of a matmul take their share of its time, or what reading its matrix takes."""
    gpu = device_peaks(trace).get(device)
    rate = (gpu.dram_bytes_per_s if gpu else _SLOWEST) * machines.DRAM_SHARE.value / 1e9
    topk = [fixes.TOPK_PASSES.at(case) for case in Case]
    passes = {"sorted": topk, "one_hot": [2.0, 1.0, 1.0], "rows": [1.0, 1.0, 1.0]}
    floor_ns = machines.KERNEL_FLOOR_US.ns
    shares = [time_ns * one.kept / one.of if one.kind == "rows" else 0.0 for one, time_ns in found]
    return [
        sum(
            max(passes[one.kind][case.value] * one.least_bytes / rate, share_ns, floor_ns)
            for (one, _), share_ns in zip(found, shares, strict=True)
        )
        for case in Case
    ]


_SLOWEST: Final = 200e9  # bytes per second of the memory of a small GPU


def _candidates(trace: Trace) -> Iterator[_Found]:
    """Every sort, and every comparison before a matmul, of which what comes next shows how it is used."""
    ops, order = trace.get(HOST_OPS), call_order(trace)
    called = ops["name"][np.maximum(order.op, 0)]
    is_sort, compares, cuts, hands_on, multiplies = (
        matches(called, pattern).to_numpy() & (order.op >= 0)
        for pattern in (SORTS, COMPARES, CUTS, HANDS_ON, MULTIPLIES)
    )
    is_cut = np.zeros(order.op.size, np.bool_)
    is_cut[list(_before_cuts(trace, cuts, multiplies))] = True
    for event in np.flatnonzero(is_sort | compares | is_cut).tolist():
        first = _operator(trace, int(order.op[event]))
        if first is None or not first.tensors():
            continue
        reach = _TURN if is_cut[event] else _NEAR
        after = (at for at in range(event + 1, min(event + 1 + reach, order.op.size)) if order.op[at] >= 0)
        after = (at for at in after if order.line[at] == order.line[event])
        followers = ((at, other) for at in after if (other := _operator(trace, int(order.op[at]))) is not None)
        if is_sort[event]:
            free = ((at, other, _in_any_order(first, other)) for at, other in followers)
            yield from _cut_sort(
                event, first, ((bool(cuts[at]), bool(hands_on[at]) or any_, other) for at, other, any_ in free)
            )
        elif is_cut[event]:
            yield from _cut_rows(event, first, ((bool(cuts[at]), bool(hands_on[at]), other) for at, other in followers))
        else:
            yield from _product(event, first, [(at, bool(multiplies[at]), other) for at, other in followers])


def _before_cuts(trace: Trace, cuts: BoolArray, multiplies: BoolArray) -> Iterator[int]:
    """Matmuls (events) right before a cut of their result to a few of its rows."""
    order = call_order(trace)
    events = np.flatnonzero(cuts)
    number, first = numbered_rows(trace.get(HOST_OPS)[order.op[events]].select(_COLUMNS))
    each = [_operator(trace, int(order.op[events[at]])) for at in first.tolist()]
    few = np.array([one is not None and _few_rows(one) for one in each], np.bool_)
    for event in events[few[number]].tolist() if each else ():
        for at in range(event - 1, max(event - 1 - _BACK, -1), -1):
            if order.line[at] != order.line[event]:
                break
            if multiplies[at] and (made := _operator(trace, int(order.op[at]))) is not None:
                whole, cut = _multiplied(made), _operator(trace, int(order.op[event]))
                if whole is not None and cut is not None and whole == cut.tensors()[0].shape:
                    yield at
                break


def _few_rows(cut: Operator) -> bool:
    whole = cut.tensors()
    return bool(whole) and any(
        0 < _cut_to(cut, len(whole[0].shape), axis, size) * _FEW <= size
        for axis, size in enumerate(whole[0].shape[:-1])
    )


def _in_any_order(sort: Operator, other: Operator) -> bool:
    """Whether another operator makes the same of what was sorted as of what was not: a sum over all, or that axis."""
    if not regex(ORDER_FREE).search(other.name):
        return False
    axes = other.scalar(1).strip("[]")
    return not axes or _number(axes, 0) == _number(sort.scalar(1), -1)


def _cut_sort(event: int, sort: Operator, after: Iterable[tuple[bool, bool, Operator]]) -> Iterator[_Found]:
    """A sort whose result is only read through cuts along its axis, to a small part."""
    whole = sort.tensors()[0]
    axis = _number(sort.scalar(1), -1)
    if sort.name.endswith("msort"):
        axis = 0
    axis %= max(len(whole.shape), 1)
    if kept := _most_kept(sort, whole.shape, axis, after):
        name, of = sort.name, whole.shape[axis]
        yield _Found("sorted", (event,), whole.elements * whole.itemsize, name, of, kept)


def _cut_rows(event: int, product: Operator, after: Iterable[tuple[bool, bool, Operator]]) -> Iterator[_Found]:
    """A matmul by one matrix whose result is only read through cuts to a few of its rows."""
    whole, (left, right, *_) = _multiplied(product), product.tensors()
    known = list(takewhile(lambda follower: follower[2] != product, after))
    for axis, of in enumerate(whole[:-1] if whole else ()):
        if whole and (kept := _most_kept(product, whole, axis, known)):
            least = right.elements * right.itemsize + kept / of * prod(whole) * left.itemsize
            yield _Found("rows", (event,), int(least), product.name, of, kept)
            return


def _multiplied(product: Operator) -> tuple[int, ...] | None:
    """The shape of the result of a matmul by one matrix; None for others."""
    bare = product.name.removeprefix("aten::")
    left, right = (product.tensor(at + (bare == "addmm")) for at in (0, 1))
    if left is None or right is None or len(right.shape) != 2 or len(left.shape) < 2:
        return None
    inner, columns = right.shape[:: -1 if bare == "linear" else 1]
    return (*left.shape[:-1], columns) if left.shape[-1] == inner else None


def _most_kept(first: Operator, whole: tuple[int, ...], axis: int, after: Iterable[tuple[bool, bool, Operator]]) -> int:
    """The most elements along an axis that cuts of a result keep; 0 where there are none, they keep much, or anything
    else computes with all of it."""
    kept = 0
    for is_cut, hands_on, other in after:
        if all(one.shape != whole for one in other.tensors()):
            continue
        if other.name == first.name:
            break
        if is_cut:
            size = _cut_to(other, len(whole), axis, whole[axis])
            kept = max(kept, size)
            if size * _FEW > whole[axis]:
                return 0
        elif not hands_on:
            return 0
    return kept


def _cut_to(cut: Operator, axes: int, axis: int, size: int) -> int:
    """The elements along an axis that a slice, narrow or select keeps; 0 where it cuts another axis, or all stay."""
    at, first, last = (_number(text, -1) for text in (*cut.scalars[1:4], "", "", "")[:3])
    if at % axes != axis:
        return 0
    if cut.name.endswith("select"):
        return 1
    if cut.name.endswith("narrow"):
        return last
    first, last = (max(place + size, 0) if place < 0 else min(place, size) for place in (first, last))
    return last - first if last - first < size else 0


def _product(event: int, compare: Operator, after: list[tuple[int, bool, Operator]]) -> Iterator[_Found]:
    """A matrix of zeros and ones that the next matmul reads."""
    result = _compared(compare)
    if result is None:
        return
    rows, width, events = prod(result[:-1]), result[-1], [event]
    for at, multiplies, other in after:
        own = [one for one in other.tensors() if _holds(one, result, rows, width)]
        if not own:
            continue
        width = own[0].shape[-1]
        events.append(at)
        if multiplies:
            others = [one for one in other.tensors() if one is not own[0] and len(one.shape) > 1]
            if width < _IN_EACH or not others or others[0].shape[-1] >= width * _FEW:
                return
            picked = 2 * rows * others[0].shape[-1] * others[0].itemsize
            yield _Found("one_hot", tuple(events), picked, compare.name, width, 1)
            return


def _holds(one: Tensor, result: tuple[int, ...], rows: int, width: int) -> bool:
    """Whether a tensor is that matrix, as it is or with its leading axes in one; a width of 0 is not known yet."""
    shape = one.shape
    if len(shape) < 2 or (width and shape[-1] != width) or (not width and shape[-1] < _IN_EACH):
        return False
    return shape[:-1] == result[:-1] or (len(shape) == 2 and shape[0] == rows > 1)


def _compared(compare: Operator) -> tuple[int, ...] | None:
    """The shape of the result; its last axis is 0 where it is not known."""
    tensors = compare.tensors()
    if compare.name.endswith("one_hot"):
        return (*tensors[0].shape, max(_number(compare.scalar(1), 0), 0))
    if len(tensors) < 2 or tensors[0].shape == tensors[1].shape or not tensors[1].shape:
        return None
    try:
        return tuple(np.broadcast_shapes(tensors[0].shape, tensors[1].shape))
    except ValueError:
        return None


def _number(text: str, otherwise: int) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise


def _operator(trace: Trace, row: int) -> Operator | None:
    ops = trace.get(HOST_OPS)
    name, shapes, types, concrete = (ops[column][row] for column in _COLUMNS)
    return None if shapes is None or types is None else _parsed(name, shapes, types, concrete)


_COLUMNS: Final = ("name", "input_shapes", "input_dtypes", "concrete_inputs")


@cache
def _parsed(name: str, shapes: str, types: str, concrete: str | None) -> Operator | None:
    return Operator.recorded(name, shapes, types, None, concrete)


@remembered
def recorded_in_vain(trace: Trace) -> tuple[BlamedTime, ...]:
    """Idle time before launches, per device, of a program in which nearly every operator that launches records
    gradients, and no backward pass ever comes. Without steps, operators must come back: what a first run waits for is
    no cost of that."""
    if not recording_operators(trace).any() or backward_operators(trace).any() or trains(trace):
        return ()
    if any(matches(trace.get(table)["name"], GOES_BACKWARD).any() for table in (RANGES, HOST_OPS, DEVICE_OPS)):
        return ()
    launching: Int64Array = np.unique(attribution(trace).host_op.astype(np.int64))
    launching = launching[launching >= 0]
    if not launching.size or _nodes(trace, launching) < _RECORDING * launching.size:
        return ()
    names = trace.get(HOST_OPS)["name"][launching].n_unique()
    if period_name(trace) != "step" and launching.size < _COMES_BACK * names:
        return ()
    return tuple(one for one in blamed_time(trace, LAUNCHING_CAUSES) if one.intervals.total_ns)


def _nodes(trace: Trace, rows: Int64Array) -> int:
    """How many of these operators made a node of autograd: the number that all show counts on with each node, so that
    a program with nothing to learn shows one number everywhere."""
    shown = trace.get(HOST_OPS)[rows].filter(pl.col("sequence_number") >= 0)
    of_threads = shown.group_by("rank", "process", "thread").agg(pl.col("sequence_number").n_unique() - 1)
    return int(of_threads["sequence_number"].sum())
