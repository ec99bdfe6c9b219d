"""Units that one batched pass could do together, and what that pass would take.

The first unit of each row stays, and does the work of all. Of the kernels of the others remains what the
multiprocessors that one grid leaves idle cannot do besides. The CPU's time in the other units goes, with their waits
and what autograd did for them.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.measures.habits.extra_work import WAITING_CAUSES, ExtraWork, extra_work
from timesink.measures.habits.repeated_calls import remaining_share
from timesink.measures.kernels.one_stream import fills
from timesink.measures.repeats.kinds import Kind
from timesink.measures.repeats.order import CallOrder, call_order
from timesink.measures.repeats.search import UnitRun
from timesink.measures.repeats.units import FAR, RepeatedUnit, every_run, repeated_units
from timesink.measures.timeline.autograd import forward_operators
from timesink.model.arrays import Float64Array, Int64Array, found_at
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_BATCHED: Final = (Kind.ONE_AT_A_TIME, Kind.SIDE_BY_SIDE, Kind.MICRO_BATCHES)
"""What needs no result of the unit before it."""


class OnePass(Record, eq=False):
    """On one device: `work` of the units but the first of each row, which goes; rows `first` of `device_ops` of the
    first ones, which take on what remains of each: a share of its time at `most`, `usual` and `least`."""

    unit: RepeatedUnit
    work: ExtraWork
    first: Int64Array
    remains: tuple[Float64Array, Float64Array, Float64Array]

    def longer(self, trace: Trace) -> tuple[float, ...]:
        """How many times as long the first ones then take, at most, usually and at least."""
        length = trace.get(DEVICE_OPS).select(pl.col("end_ns") - pl.col("start_ns")).to_series().to_numpy()
        first_ns = max(float(length[self.first].sum()), 1.0)
        return tuple(1.0 + float(length[self.work.rows] @ share) / first_ns for share in self.remains)


@remembered
def one_passes(trace: Trace) -> tuple[OnePass, ...]:
    """Every unit that one pass could do, on each device that it uses; dearest first. Of units within each other the
    outer one."""
    found, taken = list[OnePass](), np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    for unit in repeated_units(trace):
        if unit.kind in _BATCHED:
            order = call_order(trace)
            number = _unit_numbers(trace, order, every_run(trace, unit))
            of_op = np.where(taken, -1, found_at(number, order.of_device_op))
            taken |= of_op >= 0
            spared = _spared(trace, order, number)
            for work in extra_work(trace, of_op > 0, spared, WAITING_CAUSES):
                found.append(_one_pass(trace, unit, work, of_op))
    return tuple(found)


def _one_pass(trace: Trace, unit: RepeatedUnit, work: ExtraWork, of_op: Int64Array) -> OnePass:
    """What the first unit's kernels take on of the others.

    Two units of 5 us each whose grids fill half of the device: nothing of the second remains; of grids that fill it,
    all but what any kernel takes.
    """
    ops = trace.get(DEVICE_OPS)
    own = ops.select((pl.col("rank") == work.device[0]) & (pl.col("device") == work.device[1])).to_series().to_numpy()
    count = np.full(work.rows.size, max(unit.times, 2.0))
    one_each, packed = (remaining_share(trace, work.rows, fill[work.rows], count) for fill in fills(trace))
    # A grid that fills the GPU is taken to keep it busy: only at best do blocks of others find room beside its own.
    return OnePass(unit, work, np.flatnonzero(own & (of_op == 0)), (one_each, one_each, packed))


def _unit_numbers(trace: Trace, order: CallOrder, runs: list[UnitRun]) -> Int64Array:
    """By event the number of its unit in its row, from 0; -1 outside. Autograd's events belong to the unit that caused
    them."""
    number = np.full(order.start_ns.size, -1)
    for run in runs:
        edges = np.append(run.starts, run.stop)
        number[edges[0] : edges[-1]] = np.repeat(np.arange(run.starts.size), np.diff(edges))
    forward = found_at(forward_operators(trace), order.op)
    own, back = np.flatnonzero((number >= 0) & (order.op >= 0)), np.flatnonzero(order.is_autograd & (forward >= 0))
    if own.size and back.size:
        starts = trace.get(HOST_OPS)["start_ns"].to_numpy()[forward[back]]
        at = own[np.clip(np.searchsorted(order.start_ns[own], starts, side="right") - 1, 0, None)]
        inside = (starts >= order.start_ns[at]) & (starts < order.end_ns[at])
        number[back[inside]] = number[at[inside]]
    return number


def _spared(trace: Trace, order: CallOrder, number: Int64Array) -> dict[tuple[int, int], Intervals]:
    """By (process, thread) the time in the units but the first of each row, up to the next event of the row; of a pause
    far longer than is usual between them, such as a garbage collection, that usual part."""
    tables = [trace.get(table).select("process", "thread") for table in (HOST_OPS, API_CALLS)]
    spared, again = dict[tuple[int, int], Intervals](), np.flatnonzero(number > 0)
    goes_on = np.append(number[1:], -1)[again] >= number[again]  # else the last of its row
    pause_ns = np.maximum(order.to_next_ns[again], 0)
    pause_ns = np.minimum(pause_ns, int(FAR * np.median(pause_ns))) if again.size else pause_ns
    ends = np.where(order.is_autograd[again] | ~goes_on, 0, pause_ns)
    for line in np.unique(order.line[again]).tolist():
        own = order.line[again] == line
        rows = again[own]
        op, call = int(order.op[rows[0]]), int(order.call[rows[0]])
        process, thread = tables[0].row(op) if op >= 0 else tables[1].row(call)
        spared[process, thread] = Intervals.union_of(order.start_ns[rows], order.end_ns[rows] + ends[own])
    return spared
