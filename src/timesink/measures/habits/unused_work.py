"""Work of which a program uses a part, or nothing, by recorded operators and their shapes: a full sort of which the
best few are kept, a matmul with rows of zeros that hold a single one, gradients recorded for no backward pass.
"""

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Final, Literal

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes, machines
from timesink.knowledge.operators import COMPARES, CUTS, GOES_BACKWARD, HANDS_ON, MULTIPLIES, SORTS, Operator, Tensor
from timesink.measures.habits.extra_work import ExtraWork, extra_work
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.kernels.facts import device_peaks
from timesink.measures.repeats.order import call_order
from timesink.measures.timeline.attribution import attribution
from timesink.measures.timeline.autograd import backward_operators, recording_operators
from timesink.measures.timeline.known import trains
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif import Case

_NEAR: Final = 16  # operators after: what reads a result at once
_FEW: Final = 4  # times as many as are kept: less is not worth another operator
_IN_EACH: Final = 8  # elements of a row of zeros: fewer are masks
_RECORDING: Final = 0.5  # of the operators that launch: in a program that infers without `no_grad` nearly all do

Kind = Literal["sorted", "one_hot"]


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
    return tuple(
        part for kind in ("sorted", "one_hot") for part in _of_kind(trace, [f for f in found if f.kind == kind])
    )


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
        needed_ns = _needed_ns(trace, work.device, [one for at, one in enumerate(found) if time_ns[at]])
        total_ns = max(float(time_ns.sum()), 1.0)
        most, usual, least = (min(one_ns / total_ns, 1.0) for one_ns in needed_ns)
        yield PartlyUsed(dearest.kind, work, (most, usual, least), dearest.operator, dearest.of, dearest.kept)


def _needed_ns(trace: Trace, device: tuple[int, int], found: list[_Found]) -> list[float]:
    """What the part alone takes, at most, usually and at least; the bandwidth of a GPU that is not known is that of the
    slowest that is."""
    gpu = device_peaks(trace).get(device)
    rate = (gpu.dram_bytes_per_s if gpu else _SLOWEST) * machines.DRAM_SHARE.value / 1e9
    passes = {"sorted": [fixes.TOPK_PASSES.at(case) for case in Case], "one_hot": [2.0, 1.0, 1.0]}
    floor_ns = machines.KERNEL_FLOOR_US.ns
    return [sum(max(passes[one.kind][case.value] * one.least_bytes / rate, floor_ns) for one in found) for case in Case]


_SLOWEST: Final = 200e9  # bytes per second of the memory of a small GPU


def _candidates(trace: Trace) -> Iterator[_Found]:
    """Every sort, and every comparison before a matmul, of which what comes next shows how it is used."""
    ops, order = trace.get(HOST_OPS), call_order(trace)
    called = ops["name"][np.maximum(order.op, 0)]
    is_sort, compares, cuts, hands_on, multiplies = (
        matches(called, pattern).to_numpy() & (order.op >= 0)
        for pattern in (SORTS, COMPARES, CUTS, HANDS_ON, MULTIPLIES)
    )
    for event in np.flatnonzero(is_sort | compares).tolist():
        first = _operator(trace, int(order.op[event]))
        after = [at for at in range(event + 1, min(event + 1 + _NEAR, order.op.size)) if order.op[at] >= 0]
        after = [at for at in after if order.line[at] == order.line[event]]
        if first is None or not first.tensors():
            continue
        followers = [(at, other) for at in after if (other := _operator(trace, int(order.op[at]))) is not None]
        if is_sort[event]:
            yield from _cut_sort(event, first, [(bool(cuts[at]), bool(hands_on[at]), other) for at, other in followers])
        else:
            yield from _product(event, first, [(at, bool(multiplies[at]), other) for at, other in followers])


def _cut_sort(event: int, sort: Operator, after: list[tuple[bool, bool, Operator]]) -> Iterator[_Found]:
    """A sort whose result is only read through cuts along its axis, to a small part."""
    whole, kept = sort.tensors()[0], 0
    axis = _number(sort.scalar(1), -1)
    if sort.name.endswith("msort"):
        axis = 0
    axis %= max(len(whole.shape), 1)
    for is_cut, hands_on, other in after:
        reads = [one for one in other.tensors() if one.shape == whole.shape]
        if not reads:
            continue
        if other.name == sort.name:
            break
        if is_cut:
            size = _cut_to(other, len(whole.shape), axis, whole.shape[axis])
            kept = max(kept, size)
            if size * _FEW > whole.shape[axis]:
                return
        elif not hands_on:
            return
    if kept:
        name, of = sort.name, whole.shape[axis]
        yield _Found("sorted", (event,), whole.elements * whole.itemsize, name, of, kept)


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
    gradients, and no backward pass ever comes."""
    if not recording_operators(trace).any() or backward_operators(trace).any() or trains(trace):
        return ()
    if any(matches(trace.get(table)["name"], GOES_BACKWARD).any() for table in (RANGES, HOST_OPS, DEVICE_OPS)):
        return ()
    launching: Int64Array = np.unique(attribution(trace).host_op.astype(np.int64))
    launching = launching[launching >= 0]
    if not launching.size or _nodes(trace, launching) < _RECORDING * launching.size:
        return ()
    return tuple(one for one in blamed_time(trace, LAUNCHING_CAUSES) if one.intervals.total_ns)


def _nodes(trace: Trace, rows: Int64Array) -> int:
    """How many of these operators made a node of autograd: the number that all show counts on with each node, so that
    a program with nothing to learn shows one number everywhere."""
    shown = trace.get(HOST_OPS)[rows].filter(pl.col("sequence_number") >= 0)
    of_threads = shown.group_by("rank", "process", "thread").agg(pl.col("sequence_number").n_unique() - 1)
    return int(of_threads["sequence_number"].sum())
