"""Forward, backward, optimizer: the phase of every allocator event, told by the stacks of the allocations around it.

The autograd engine and the optimizer leave their frames in every stack below them. An event that shows neither belongs
to the phase of the allocation before it. Annotations of the optimizer (`record_function` marks that snapshots carry)
are used where there are any: a fused optimizer allocates nothing, so its stacks never show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.memory_lifetimes import Ints, Lifetimes
from timesink.measures.memory_stacks import facts
from timesink.model.names import matches
from timesink.model.tables import RANGES
from timesink.model.trace import Trace

FORWARD, BACKWARD, OPTIMIZER, RELEASE = 0, 1, 2, 3
NAMES = ("forward", "backward", "optimizer", "gradient release")
_OPTIMIZER_RANGE, _RELEASE_RANGE = r"^Optimizer\.step#", r"^Optimizer\.zero_grad#"
_RELEASE_FRAME = r": zero_grad\b"


@dataclass(frozen=True, slots=True, eq=False)
class Phases:
    """`of_event`: phase of each event. `run_end`: per event, the position where its run of one phase ends.

    `starts`: positions where a step begins: the first forward event after an optimizer run, or where no optimizer
    shows, after a backward run. Position 0 is one where the record begins with a step's forward.
    """

    of_event: npt.NDArray[np.int8]
    run_end: Ints
    starts: Ints

    @property
    def has_backward(self) -> bool:
        """Whether anything was trained in the record."""
        return bool((self.of_event == BACKWARD).any())


def phases_of(trace: Trace, rank: int, lives: Lifetimes) -> Phases:
    """Phases of one device's events."""
    events = lives.events
    shown = facts(events["stack"])
    is_alloc = (events["action"] == "alloc").to_numpy() & (events["bytes"] > 0).to_numpy()
    # With Python stacks only, the engine's own threads have none: what has no stack among others that do is backward.
    by_silence = bool(shown["known"][is_alloc].any()) and not bool((shown["backward"] & ~shown["python"]).any())
    silent = ~shown["known"] if by_silence else np.zeros(events.height, bool)
    phase = np.full(events.height, -1, np.int8)
    phase[is_alloc & shown["known"]] = FORWARD
    phase[is_alloc & (shown["backward"] | silent)] = BACKWARD
    phase[is_alloc & shown["optimizer"]] = OPTIMIZER
    phase[_annotated(trace, rank, events, _OPTIMIZER_RANGE)] = OPTIMIZER
    frees = (events["bytes"] < 0).to_numpy()
    released = _annotated(trace, rank, events, _RELEASE_RANGE) | matches(events["stack"], _RELEASE_FRAME).to_numpy()
    phase[frees & released] = RELEASE
    filled = _filled(phase)
    return Phases(filled, _run_ends(filled), _starts(filled))


def _annotated(trace: Trace, rank: int, events: pl.DataFrame, pattern: str) -> npt.NDArray[np.bool_]:
    marks = trace.get(RANGES).filter(pl.col("rank") == rank)
    marks = marks.filter(matches(marks["name"], pattern))
    time = events["time_ns"].to_numpy()
    inside = np.zeros(time.size, bool)
    for start, end in marks.select("start_ns", "end_ns").iter_rows():
        inside[np.searchsorted(time, start, "left") : np.searchsorted(time, end, "right")] = True
    return inside


def _filled(phase: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Events without a phase of their own take that of the event before; those at the start, forward."""
    at = np.where(phase >= 0, np.arange(phase.size), -1)
    at = np.maximum.accumulate(at) if at.size else at
    return np.where(at >= 0, phase[at], FORWARD).astype(np.int8)


def _run_ends(phase: npt.NDArray[np.int8]) -> Ints:
    if not phase.size:
        return np.empty(0, np.int64)
    edges = np.append(np.flatnonzero(np.diff(phase)) + 1, phase.size)
    return np.asarray(edges[np.searchsorted(edges, np.arange(phase.size), side="right")])


def _starts(phase: npt.NDArray[np.int8]) -> Ints:
    """Forward runs that the last phase of a step precedes; the first run, too, where it is a forward one."""
    last = OPTIMIZER if (phase == OPTIMIZER).any() else BACKWARD
    at = np.flatnonzero(phase != RELEASE)
    if not at.size or not (phase == last).any():
        return np.empty(0, np.int64)
    shown = phase[at]
    is_start = (shown == FORWARD) & np.append(True, shown[:-1] == last)
    return np.asarray(at[is_start], np.int64)
