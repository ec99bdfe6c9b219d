"""Gradients that nobody uses: those of weights that no optimizer takes, such as of a network that only makes targets.

Where gradients are reset, each is written anew by the first backward pass after that; where they are not, it is added
to what is there. A pass that does both goes through weights whose gradients nothing resets::

    pass                         of one node after another, the gradient is
    of a network alone           written, written
    of it and of its teacher     written, written, added, added: the teacher's are kept for nobody
    of a second micro-batch      added, added
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.operators import ADDS_IN_PLACE, KEEPS_A_GRADIENT
from timesink.knowledge.ranges import OF_AUTOGRAD
from timesink.measures.habits.extra_work import ExtraWork, extra_work
from timesink.measures.kernels.facts import within
from timesink.measures.timeline.attribution import belonging_to, host_nesting
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace, remembered

_PASSES: Final = 2  # that look so: the first of a program finds nothing to add to


@remembered
def unused_gradients(trace: Trace) -> tuple[ExtraWork, ...]:
    """Per device the work of backward passes that leads to such gradients alone. None where any pass only writes: then
    what a later one adds to may be used, as gradients of several losses are."""
    ops, nesting = trace.get(HOST_OPS), host_nesting(trace)
    keeps = matches(ops["name"], KEEPS_A_GRADIENT).to_numpy()
    if not keeps.any():
        return ()
    top = np.flatnonzero(nesting.parent < 0)
    top = top[np.argsort(ops["start_ns"].to_numpy()[top], kind="stable")]
    thread = ops.select(pl.struct("rank", "process", "thread").rle_id()).to_series().to_numpy()[top]
    number = np.cumsum(np.append(True, np.diff(thread) != 0))  # a pass is what a thread does before another begins
    of_engine = matches(ops["name"], OF_AUTOGRAD).to_numpy()[top]
    top, number = top[of_engine], number[of_engine]
    adds = within(keeps, nesting) & matches(ops["name"], ADDS_IN_PLACE).to_numpy()
    kept, added = (nesting.inclusive(flags.astype(np.int64))[top] > 0 for flags in (keeps, adds))
    written, more = (np.bincount(number[flags], minlength=number.max() + 1) > 0 for flags in (kept & ~added, added))
    if not more[written].all() or np.count_nonzero(written) < _PASSES:
        return ()
    vain = np.zeros(ops.height, np.bool_)
    vain[top] = (written & more)[number] & _in_vain(kept, added, number)
    return extra_work(trace, belonging_to(trace, within(vain, nesting)))


def _in_vain(kept: BoolArray, added: BoolArray, number: Int64Array) -> BoolArray:
    """Which nodes of passes (`number`) lead to gradients that are added and to no others: what a node makes is kept by
    those that follow it at once; where there are none, it goes on to the next node::

        node      loss   mm   keep   relu   mm    keep
        kept      -      -    writes -      -     adds
        in vain   no     no   no     yes    yes   yes
    """
    group = np.cumsum(~kept)
    count, written = (np.bincount(group[flags], minlength=group[-1] + 1) for flags in (kept, kept & ~added))
    told = np.where(count > 0, np.arange(count.size), count.size - 1)
    told = np.minimum.accumulate(told[::-1])[::-1]  # the next group that keeps anything
    of_pass = np.full(count.size, -1)
    of_pass[group] = number
    vain = (count > 0) & (written == 0)
    found: BoolArray = (vain[told] & (of_pass[told] == of_pass))[group]
    return found
