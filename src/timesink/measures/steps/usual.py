"""The usual steps: a trace without the lone steps that stand out from its others.

One step that collects garbage, compiles or writes a checkpoint says nothing of the steady state, and of four steps it
is half of the mean: causes that are small in every other step pass their limits by it, and others fall below theirs.
A step is lone where no other is nearly as far beyond the rest:

    steps, ms            left out
    10 10 11 30          30        3 x the rest, and nothing is like it
    10 10 11 30 29       none      it comes back: the program has such steps; so too where the host shows another
    10 14 19 30          none      they all differ
    10 30                30        which of two is the usual one is not known, but both have what the shorter one has

Of twenty steps and more none is left out: one of them moves the others' figures little, and what fewer than a tenth of
the steps have comes last anyway (`timesink.diagnosis.headline.is_of_few_steps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.steps.steps import steps
from timesink.measures.steps.weights import SLOW, usual_and_deviation
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.arrays import Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.record import replace
from timesink.model.trace import Trace, remembered

_ALIKE: Final = 2  # a step whose excess is more than one part in two of another's is like it
_FEWER: Final = 3  # of all steps, at most one in three is left out
_MANY: Final = 20  # the docstring says why


@remembered
def usual_steps(trace: Trace) -> Trace | None:
    """The trace with its lone slow steps left out of the steady ones; None where it has none."""
    periods = _periods(trace)
    most = max((len(own) for own in periods.values()), default=0)
    left_out: set[int] = set()
    while most < _MANY and len(left_out) < max(most // _FEWER, 1):
        lone = {step for own in periods.values() if (step := _lone(own, left_out)) is not None}
        if len(lone) != 1:  # none, or other ranks have others
            break
        left_out |= lone
    return replace(trace, left_out=frozenset(left_out)) if left_out and not _comes_back(trace) else None


def _periods(trace: Trace) -> Mapping[int, Mapping[int, int]]:
    """Per rank: how long each steady step takes, by its number, on the device where it takes longest."""
    found: dict[int, dict[int, int]] = {}
    for rank, step, period_ns in steps(trace).windows.select("rank", "step", "period_ns").iter_rows():
        own = found.setdefault(rank, {})
        own[step] = max(own.get(step, 0), period_ns)
    return found


def _comes_back(trace: Trace) -> bool:
    """Whether the host stood still about as long in another step, be it warm-up or the last one, whose time on the
    device is not known: workers that start anew in each epoch are no accident of one step. While a kernel runs, a host
    that stands still may be ahead of it, with the queue of launches full; while a copy does, it may wait for that."""
    for (rank,), own in steps(trace).frame.partition_by("rank", as_dict=True).items():
        lines = [line for device, line in device_timeline(trace).by_device.items() if device[0] == rank]
        kernels = Intervals.union_all(line.compute | line.communication for line in lines)
        begin, end = own["host_start_ns"].to_numpy(), own["mark_end_ns"].to_numpy()
        still_ns = end - begin - kernels.covered_ns(begin, end)
        if still_ns.max() > SLOW * median(end - begin) and (still_ns >= still_ns.max() / SLOW).sum() > 1:
            return True
    return False


def _lone(periods: Mapping[int, int], left_out: set[int]) -> int | None:
    """The number of the longest step, if no chance and no other step explains it."""
    kept = {step: period for step, period in periods.items() if step not in left_out}
    if len(kept) < 2:
        return None
    longest = max(kept, key=lambda step: (kept[step], -step))
    others: Int64Array = np.array([period for step, period in kept.items() if step != longest], np.int64)
    usual, deviation = usual_and_deviation(others)
    excess = kept[longest] - usual
    stands_out = excess > max(assumed.SPIKE_DEVIATIONS.value * deviation, assumed.SPIKE_PAUSE.value * usual)
    return longest if stands_out and _ALIKE * (float(others.max()) - usual) < excess else None
