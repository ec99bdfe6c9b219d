"""Work of the forward pass that runs again in the backward pass, as layers under activation checkpointing do.

Where operators have sequence numbers, it is known by them: inside a backward pass gradients are not recorded, except
where a layer runs its forward pass again. An operator there that shows a sequence number of its own, and is no backward
of another, is recomputed; or a gradient is taken of a gradient, whose kernels are not those of the forward pass.

Without operators the order of kernels tells: a thread that launches the backward pass launches, kernel for kernel and
grid for grid, a stretch that another thread launched before.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.measures.habits.extra_work import NOTHING, ExtraWork, HostTimes, extra_work
from timesink.measures.habits.sequences import Launched, launched, occurring, telling
from timesink.measures.kernels.facts import within
from timesink.measures.timeline.attribution import attribution, host_nesting
from timesink.measures.timeline.autograd import backward_operators, inside_backward
from timesink.model.arrays import BoolArray
from timesink.model.intervals import Intervals
from timesink.model.nesting import thread_slices
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered


@remembered
def recomputed(trace: Trace) -> tuple[ExtraWork, ...] | None:
    """What is recomputed, per device; None where neither operators nor a thread of the backward pass was recorded."""
    ops = trace.get(HOST_OPS)
    numbered = "sequence_number" in ops.columns and bool((ops["sequence_number"].fill_null(-1) >= 0).any())
    if not numbered and not launched(trace).of_backward:
        return None
    flags, host = _by_number(trace) if numbered else _by_order(trace)
    return extra_work(trace, flags, host)


def _by_number(trace: Trace) -> tuple[BoolArray, HostTimes]:
    """Rows of `device_ops` under an operator that records gradients inside a backward pass, of kernels seen before.

    The host's time is that of the backward operators around them, less what these run of their own."""
    ops, holder, nesting = trace.get(HOST_OPS), attribution(trace).host_op, host_nesting(trace)
    inside = inside_backward(trace)
    numbered = (ops["sequence_number"].fill_null(-1) >= 0).to_numpy()
    again = within(inside & ~backward_operators(trace) & numbered, nesting)
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    flags[holder >= 0] = again[holder[holder >= 0]]
    kernels = launched(trace).frame
    mine = flags[kernels["row"].to_numpy()]
    seen = kernels.filter(pl.Series(~mine))["code"].unique()
    fresh = kernels.filter(pl.Series(mine), ~pl.col("code").is_in(seen.implode()))["row"].to_numpy()
    flags[fresh] = False
    if not flags.any():
        return flags, NOTHING
    top = nesting.outermost(np.arange(ops.height))
    around = nesting.inclusive(again.astype(np.int64)) > 0
    whole = np.isin(top, np.unique(top[again]))
    own = whole & inside & ~again & ~around
    outermost = whole & (nesting.parent < 0)
    return flags, {
        key: _times(ops, outermost, first, last) - _times(ops, own, first, last)
        for (_, *key_of), first, last in thread_slices(ops)
        if outermost[first:last].any()
        for key in [(int(key_of[0]), int(key_of[1]))]
    }


def _times(ops: pl.DataFrame, chosen: BoolArray, first: int, last: int) -> Intervals:
    """When the chosen rows of one thread's slice ran."""
    return Intervals.of(ops[first:last].filter(pl.Series(chosen[first:last])).select("start_ns", "end_ns"))


def _by_order(trace: Trace) -> tuple[BoolArray, HostTimes]:
    """Rows of `device_ops` whose stretch of kernels another thread of the process launched, too; and the host's time
    from a stretch's last launch to the thread's next one."""
    order: Launched = launched(trace)
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    host: dict[tuple[int, int], Intervals] = {}
    for rank, process, thread in sorted(order.of_backward):
        here = order.frame.filter(pl.col("rank") == rank, pl.col("process") == process)
        own, others = here.filter(pl.col("thread") == thread), here.filter(pl.col("thread") != thread)
        found = occurring(own["code"].to_numpy(), others["code"].to_numpy(), telling(own["family"]))
        flags[own["row"].to_numpy()[found]] = True
        at_ns, last = own["launched_ns"].to_numpy(), np.flatnonzero(found[:-1] & ~found[1:])
        host[process, thread] = Intervals.union_of(at_ns[last], at_ns[last + 1])
    return flags, host
