"""A forward pass that runs a second time before the backward pass, without being part of it: an evaluation in a step.

Kernels are taken in the order of their launches. Between two backward passes the program's thread launches the
optimizer, and the forward pass of the next step. If the kernels up to the loss before a backward pass also ran earlier
since the backward pass before, a second forward pass ended there; it began where both stop to be alike.
Where operators are recorded, those of the second pass must not record gradients (show no sequence number).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from timesink.measures.habits.extra_work import ExtraWork, extra_work
from timesink.measures.habits.sequences import STRETCH, launched
from timesink.measures.timeline.attribution import belonging_to
from timesink.measures.timeline.autograd import recording_operators
from timesink.model.arrays import BoolArray
from timesink.model.nesting import slice_of
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

_SHARE: Final = 0.5  # of the forward pass: a shorter twin is another head, or a loss that is written twice


@remembered
def repeated_forward(trace: Trace) -> tuple[ExtraWork, ...] | None:
    """Per device what the second pass runs; None where no backward pass can be told from a forward pass."""
    order = launched(trace)
    if not order.of_backward:
        return None
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    keys = {(rank, process) for rank, process, _ in order.of_backward}
    for rank, process in sorted(keys):
        first, last = slice_of(order.frame, ("rank", "process"), (rank, process))
        here = order.frame[first:last]
        by_launch = np.lexsort((here["row"].to_numpy(), here["launched_ns"].to_numpy()))
        threads = [thread for _, owner, thread in order.of_backward if owner == process]
        backward = here["thread"].is_in(threads).to_numpy()[by_launch]
        row, code = here["row"].to_numpy()[by_launch], here["code"].to_numpy()[by_launch]
        losses = (here["family"] == "loss").to_numpy()[by_launch]
        for first, last in _between(backward):
            ends = np.flatnonzero(losses[first:last]) + 1
            if ends.size and (found := _twin(code[first : first + ends[-1]].tobytes())) is not None:
                flags[row[first + found[0] : first + found[1]]] = True
    return extra_work(trace, flags & ~belonging_to(trace, recording_operators(trace)))


def _between(backward: BoolArray) -> list[tuple[int, int]]:
    """First and last (exclusive) of the stretches that another thread launches, each up to a backward pass."""
    ends = np.flatnonzero(backward & ~np.concatenate(([True], backward[:-1])))
    starts = np.flatnonzero(~backward & np.concatenate(([True], backward[:-1])))
    before = np.searchsorted(starts, ends)
    return list(zip(starts[before[before > 0] - 1].tolist(), ends[before > 0].tolist(), strict=True))


@lru_cache  # one step is like another
def _twin(codes: bytes) -> tuple[int, int] | None:
    """Where the stretch that ends some codes has run before: first and last (exclusive) of the latest twin."""
    code = np.frombuffer(codes, np.int64)
    size = code.size
    if size < 2 * STRETCH:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(code[: size - STRETCH], STRETCH)
    ends = np.flatnonzero((windows == code[-STRETCH:]).all(axis=1)) + STRETCH
    for end in ends[::-1].tolist():
        most = min(end, size - end)
        alike = code[end - most : end][::-1] == code[size - most :][::-1]
        length = int(np.argmin(alike)) if not alike.all() else most
        if length >= max(_SHARE * (size - end), 2 * STRETCH):
            return end - length, end
    return None
