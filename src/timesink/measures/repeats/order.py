"""What each thread did, in order: outermost operators, and launches and waits outside of any, with what each costs.

A capture without operators needs no second mechanism: its events are launches, named by their kernels, and waits.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.calls import SYNCHRONISES, call_kinds
from timesink.knowledge.ranges import OF_AUTOGRAD
from timesink.measures.timeline.attribution import attribution, host_nesting, launch_links
from timesink.measures.timeline.autograd import backward_operators, forward_operators
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, found_at
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, release_after, remembered
from timesink.records import Record

HOST, GPU, IDLE, WAIT, INSIDE, BACKWARD = range(6)
"""Rows of `CallOrder.cost_ns`: the thread's time up to its next event, the GPU's time, the GPU's idle time that the
event's work ended, the thread's waits, its time within the event, and autograd's time for it on other threads."""
_COSTS: Final = 6  # rows of `cost`, the names above
_PLACE: Final = ("rank", "process", "thread", "start_ns", "end_ns")


class CallOrder(Record, eq=False):
    """Events by thread and start; all arrays have one element an event but the last.

    `line` numbers the threads, `name` the entries of `names`; `op` and `call` are rows of `host_ops` or `api_calls`, -1
    where it is the other. `cost_ns` has a row for each of HOST to BACKWARD. `to_next_ns` is the time from the event's
    end to the thread's next event, `backward_ns` when autograd first worked for it (infinite where it never did).
    `of_device_op` is the event that launched each row of `device_ops`, -1 where none is known.
    """

    line: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    name: Int64Array
    op: Int64Array
    call: Int64Array
    is_autograd: BoolArray
    cost_ns: Float64Array
    to_next_ns: Int64Array
    backward_ns: Float64Array
    names: tuple[str, ...]
    of_device_op: Int64Array


@release_after("HAB")
@remembered
def call_order(trace: Trace) -> CallOrder:
    """The events of every thread in order, and what each costs."""
    ops, calls = trace.get(HOST_OPS), trace.get(API_CALLS)
    nesting, link = host_nesting(trace), launch_links(trace).call.astype(np.int64)
    backward = backward_operators(trace)
    own = matches(ops["name"], "::").to_numpy() | backward  # a range around operators is looked through
    root = nesting.outermost(np.where(own, np.arange(ops.height), -1))
    top = np.flatnonzero(root == np.arange(ops.height))
    inside = found_at(root, nesting.innermost_of(calls).astype(np.int64))
    waits = np.isin(call_kinds(calls["name"]), SYNCHRONISES)
    table = _events(trace, top, inside, link, waits)
    op, call, start, end, line = (table[name].to_numpy() for name in ("op", "call", "start_ns", "end_ns", "line"))
    of_op, of_call = _inverse(op, ops.height), _inverse(call, calls.height)
    of_call = np.where(of_call >= 0, of_call, found_at(of_op, inside))
    of_device = found_at(of_call, link)
    by_operator = found_at(of_op, found_at(root, attribution(trace).host_op.astype(np.int64)))
    of_device = np.where(of_device >= 0, of_device, by_operator)
    cost = _device_costs(trace, of_device, op.size)
    cost[INSIDE] = end - start
    cost[HOST] = np.where(np.append(line[1:] == line[:-1], False), np.append(start[1:], 0) - start, end - start)
    to_next = (cost[HOST] - cost[INSIDE]).astype(np.int64)
    waiting = np.flatnonzero(waits & (of_call >= 0))
    np.add.at(cost[WAIT], of_call[waiting], (calls["end_ns"] - calls["start_ns"]).to_numpy()[waiting])
    is_autograd = table["kind"].str.contains(OF_AUTOGRAD).to_numpy() | np.append(backward, False)[op]
    maker = found_at(of_op, found_at(root, found_at(forward_operators(trace), op)))
    moved = np.flatnonzero(is_autograd & (maker >= 0))
    cost[BACKWARD, moved], cost[HOST, moved], cost[INSIDE, moved] = cost[INSIDE, moved], 0.0, 0.0
    np.add.at(cost.T, maker[moved], cost.T[moved])  # what autograd does for an event counts with the event
    first_backward = np.full(op.size, np.inf)
    np.minimum.at(first_backward, maker[moved], start[moved].astype(np.float64))
    names = table["kind"].unique(maintain_order=True)
    number = table["kind"].replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64).to_numpy()
    return CallOrder(
        line,
        start,
        end,
        number,
        op,
        call,
        is_autograd,
        cost,
        to_next,
        first_backward,
        tuple(names.to_list()),
        of_device,
    )


def _events(trace: Trace, top: Int64Array, inside: Int64Array, link: Int64Array, waits: BoolArray) -> pl.DataFrame:
    """Outermost operators, and launches and waits outside of any, by thread and start. A launch has its kernel's name,
    for the call's own says nothing."""
    ops, calls, device = trace.get(HOST_OPS), trace.get(API_CALLS), trace.get(DEVICE_OPS)
    launched = np.full(calls.height, -1)
    launched[link[link >= 0]] = np.flatnonzero(link >= 0)
    alone = np.flatnonzero((inside < 0) & ((launched >= 0) | waits))
    kernel = pl.Series(launched[alone])
    kernels, called = device["name"].cast(pl.String), calls["name"].cast(pl.String)[alone]
    kind = pl.select(pl.when(kernel >= 0).then(kernels.gather(kernel.clip(0))).otherwise(called)).to_series()
    none = np.full(max(top.size, alone.size), -1)
    parts = [
        rows.select(_PLACE).with_columns(kind=kinds.alias("kind"), op=pl.Series(op), call=pl.Series(call))
        for rows, kinds, op, call in (
            (ops[top], ops["name"].cast(pl.String)[top], top, none[: top.size]),
            (calls[alone], kind, none[: alone.size], alone),
        )
    ]
    table = pl.concat(parts).sort(_PLACE[:4])
    return table.with_columns(line=pl.struct(_PLACE[:3]).rle_id().cast(pl.Int64))


def _inverse(rows: Int64Array, height: int) -> Int64Array:
    """At each row of a table the event that it is, or -1."""
    found = np.full(height, -1)
    found[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    return found


def _device_costs(trace: Trace, of_device: Int64Array, count: int) -> Float64Array:
    """Costs with the device's rows filled: busy time, and the gap that the work of an event ended."""
    device, cost = trace.get(DEVICE_OPS), np.zeros((_COSTS, count))
    known = np.flatnonzero(of_device >= 0)
    busy_to = pl.col("end_ns").cum_max().shift(1).over("rank", "device")
    idle = device.select((pl.col("start_ns") - busy_to).fill_null(0).clip(0)).to_series().to_numpy()
    np.add.at(cost[GPU], of_device[known], (device["end_ns"] - device["start_ns"]).to_numpy()[known])
    np.add.at(cost[IDLE], of_device[known], idle[known])
    return cost
