"""What autograd launched, and for whom: the range that waits for it, and the forward operators that caused it.

Autograd launches backward work from a thread of its own, on which no range of the program is open. It is known by the
links from forward to backward operators (sequence numbers) or, without operators, by a thread that launches only while
a range called backward is open on another one. That work belongs to the range in which the program's thread waits for
it; and it was caused by the range in which the forward operator with its sequence number was called.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.ranges import AUTOGRAD_OPERATOR, BACKWARD_PASS, GENERATED, OPERATOR
from timesink.measures.timeline.attribution import host_nesting, host_places, push_pop_ranges, range_nesting
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, IntArray, flag_at, found_at, none_of, slices
from timesink.model.names import matches
from timesink.model.nesting import ThreadKey, key_slices, thread_slices
from timesink.model.tables import API_CALLS, HOST_OPS
from timesink.model.trace import Trace, remembered

_NONE: Final = -1
_WAITED_RATIO: Final = 0.9  # of calls made while a backward pass waits: the rest is the worker starting and ending
_LINK: Final = ["rank", "process", "sequence_number"]


@remembered
def backward_calls(trace: Trace) -> BoolArray:
    """Which rows of `api_calls` autograd made: inside an operator, or an NVTX range of one, that has a forward one."""
    calls = trace.get(API_CALLS).height
    places, flags = host_places(trace), np.zeros(calls, np.bool_)
    for nesting, own, innermost in (
        (host_nesting(trace), backward_operators(trace), places.host_op),
        (range_nesting(trace), matches(push_pop_ranges(trace)["name"], AUTOGRAD_OPERATOR).to_numpy(), places.range_),
    ):
        if own.any():
            inside = nesting.outermost(np.where(own, 0, _NONE)) >= 0
            flags |= flag_at(inside, innermost)
    return flags


@remembered
def backward_operators(trace: Trace) -> BoolArray:
    """Which rows of `host_ops` have a forward operator, or are named by autograd."""
    ops = trace.get(HOST_OPS)
    return (matches(ops["name"], AUTOGRAD_OPERATOR) | (ops["forward_thread"].fill_null(0) > 0)).to_numpy()


def recording_operators(trace: Trace) -> BoolArray:
    """Which rows of `host_ops` show a sequence number, as operators do that record gradients."""
    return (trace.get(HOST_OPS)["sequence_number"].fill_null(-1) >= 0).to_numpy()


def inside_backward(trace: Trace) -> BoolArray:
    """Which rows of `host_ops` are operators of a backward pass, or inside one."""
    return host_nesting(trace).outermost(np.where(backward_operators(trace), 0, _NONE)) >= 0


@remembered
def waiting_ranges(trace: Trace) -> Int32Array:
    """For each row of `api_calls`, the row of `push_pop_ranges` that waits for the autograd thread that made the call:
    the innermost one open at its start on the program's own thread. -1 for calls of that thread, and of no autograd."""
    calls = trace.get(API_CALLS)
    elsewhere = np.ones(calls.height, np.bool_)
    program = set(program_threads(trace))
    for key, first, last in thread_slices(calls):
        elsewhere[first:last] = key not in program
    rows = np.flatnonzero(elsewhere).astype(np.int32)
    waiting = np.full(calls.height, _NONE, np.int32)
    waiting[rows] = range_of_program(trace, rows)
    in_none = np.append(range_nesting(trace).outermost(np.where(by_tool(trace), _NONE, 0)) < 0, True)
    unnamed = in_none[host_places(trace).range_]  # the last one is for calls in no range
    adopted = backward_calls(trace) | launching_for_backward(trace, waiting, unnamed)
    return np.where(adopted, waiting, np.int32(_NONE)) if adopted.any() else none_of(calls.height)


@remembered
def by_tool(trace: Trace) -> BoolArray:
    """Which rows of `push_pop_ranges` are operators of a framework or a library, and none that a person named."""
    names = push_pop_ranges(trace)["name"]
    return (matches(names, OPERATOR) | matches(names, AUTOGRAD_OPERATOR) | matches(names, GENERATED)).to_numpy()


def launching_for_backward(trace: Trace, waiting: Int32Array, unnamed: BoolArray) -> BoolArray:
    """Which rows of `api_calls` are of a thread that launches for a backward pass, where no operator says so: all its
    calls are `unnamed`, and while nearly all of them ran, the range `waiting` was one called backward."""
    says_backward = np.append(matches(push_pop_ranges(trace)["name"], BACKWARD_PASS).to_numpy(), False)
    flags = np.zeros(waiting.size, np.bool_)
    if says_backward.any() and not backward_calls(trace).any():
        in_backward = says_backward[waiting]
        for _, first, last in thread_slices(trace.get(API_CALLS)):
            flags[first:last] = unnamed[first:last].all() and in_backward[first:last].mean() >= _WAITED_RATIO
    return flags


def range_of_program(trace: Trace, rows: IntArray) -> Int32Array:
    """For these rows of `api_calls`, ascending, the innermost range open at their start on the program's thread; -1 for
    none."""
    nesting, calls, found = range_nesting(trace), trace.get(API_CALLS), np.full(rows.size, _NONE, np.int32)
    threads = {(rank, process): thread for rank, process, thread in program_threads(trace)}
    for (rank, process), *ends in key_slices(calls, ("rank", "process")):
        for some in slices(*np.searchsorted(rows, ends).tolist()) if (rank, process) in threads else ():
            start_ns = calls["start_ns"].to_numpy()[rows[some]]
            found[some] = nesting.innermost((rank, process, threads[rank, process]), start_ns)
    return found


@remembered
def program_threads(trace: Trace) -> list[ThreadKey]:
    """Of each process, the thread with most ranges that a person named; operators recorded as ranges are none."""
    ranges = push_pop_ranges(trace).select("rank", "process", "thread", named=pl.Series(~by_tool(trace)))
    counts = ranges.group_by("rank", "process", "thread").agg(pl.col("named").sum())
    most = counts.sort("named", "thread", descending=[True, False]).unique(["rank", "process"], keep="first")
    return sorted((rank, process, thread) for rank, process, thread, _ in most.iter_rows())


@remembered
def forward_operators(trace: Trace) -> Int64Array:
    """For each row of `host_ops`, the row of the forward operator whose backward it is part of; -1 for none.

    A forward operator shows the sequence number that the next backward node will have, so several may show one: the
    last of them made the node. For the backward operators 4 and 5, of which 5 is inside 4::

        row  name           sequence number  forward operator
        0    aten::linear   7                -1
        1    aten::t        7                -1
        2    aten::addmm    8                -1
        3    aten::sum      9                -1
        4    AddmmBackward  8                2
        5    aten::mm       none             2
    """
    ops, backward = trace.get(HOST_OPS), backward_operators(trace)
    forward = np.full(ops.height, _NONE, np.int64)
    if not backward.any():
        return forward
    numbered = ops.select(*_LINK, "start_ns").with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))
    numbered = numbered.drop_nulls("sequence_number").filter(pl.col("sequence_number") >= 0).sort("start_ns")
    of_backward = pl.Series(backward | inside_backward(trace))
    wanted = numbered.filter(pl.Series(backward)[numbered["row"]])
    makers = numbered.filter(~of_backward[numbered["row"]]).rename({"row": "maker"})
    linked = wanted.join_asof(makers, on="start_ns", by=_LINK, check_sortedness=False).drop_nulls("maker")
    row, parent = linked["row"].to_numpy(), host_nesting(trace).parent
    forward[row] = linked["maker"].to_numpy()
    around = row[(parent[row] >= 0) & backward[parent[row]] & (forward[parent[row]] < 0)]
    forward[parent[around]] = forward[around]  # the engine's operator around it, which NVTX ranges do not number
    return host_nesting(trace).innermost_value(forward)


@remembered
def forward_ranges(trace: Trace) -> Int64Array:
    """For each row of `api_calls` that autograd made, the row of `push_pop_ranges` in which the forward operator that
    caused it was called; -1 for other calls and where that is not known."""
    around = range_nesting(trace).innermost_of(trace.get(HOST_OPS))
    return found_at(around, found_at(forward_operators(trace), host_places(trace).host_op)).astype(np.int64)
