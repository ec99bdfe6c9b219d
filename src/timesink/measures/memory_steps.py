"""Memory from step to step: what stands at every step's start, what grows, and what the allocator asks of the driver.

A step's first allocation is its start; growth is told by the level just before it. The first step builds optimizer
state and the second runs on top of it for the first time, so both are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.memo import remembered
from timesink.measures.memory_ledger import MemoryLedger, memory_ledger
from timesink.measures.memory_lifetimes import Device, Ints
from timesink.measures.memory_phases import BACKWARD
from timesink.measures.memory_stacks import place
from timesink.model.trace import Trace

_TRAFFIC = ("segment_alloc", "segment_map", "segment_free", "segment_unmap")


@dataclass(frozen=True, slots=True)
class MemorySteps:
    """One (rank, device). `levels_bytes`: alive just before each step's start, from the third start on.

    `growth_bytes` is the smallest rise between neighbouring levels (0 where any falls or fewer than three are there):
    what every step leaves behind at least. `leaver` is the place that allocated most of what the last whole step left.
    `driver_calls` counts segments taken and given back from the third step on, `driver_bytes` their sizes.
    `forward_ns` and `step_ns` are medians of host time between first allocations: of forward and backward, and of two
    steps; the device may run behind.
    """

    steps: int
    levels_bytes: tuple[int, ...]
    growth_bytes: int
    leaver: str
    driver_calls: int
    driver_bytes: int
    forward_ns: int | None
    step_ns: int | None

    @property
    def driver_calls_per_step(self) -> float:
        """Per step, the first two left out."""
        return self.driver_calls / max(self.steps - 2, 1)


@remembered
def memory_steps(trace: Trace) -> Mapping[Device, MemorySteps]:
    """Steps per (rank, device); those without a training step have none."""
    found = {}
    for key, ledger in memory_ledger(trace).items():
        starts = ledger.classes.phases.starts
        events = ledger.classes.lives.events
        # live position p counts the events before p, so totals[start] is the level just before the step begins
        levels = tuple(int(level) for level in ledger.totals_bytes[starts[2:]]) if starts.size > 2 else ()
        rises = np.diff(np.array(levels, np.int64))
        growth = int(rises.min()) if rises.size >= 2 and rises.min() > 0 else 0
        later = events[int(starts[2]) :] if starts.size > 2 else events[:0]
        traffic = later.filter(pl.col("action").cast(pl.String).is_in(_TRAFFIC))
        size = int(traffic["size_bytes"].fill_null(0).sum())
        leaver = _leaver(ledger.classes.lives.frame, int(starts[-2]), int(starts[-1])) if growth else ""
        times = _times(ledger.time_ns, ledger.classes.phases.of_event, starts)
        found[key] = MemorySteps(int(starts.size), levels, growth, leaver, traffic.height, size, *times)
    return found


def _times(time_ns: Ints, phase: npt.NDArray[np.int8], starts: Ints) -> tuple[int | None, int | None]:
    backward = np.flatnonzero(phase == BACKWARD)
    first = np.searchsorted(backward, starts)
    whole = first < backward.size
    forward = time_ns[backward[first[whole]]] - time_ns[starts[whole]]
    steps = np.diff(time_ns[starts])
    return (int(np.median(forward)) if forward.size else None, int(np.median(steps)) if steps.size else None)


def _leaver(frame: pl.DataFrame, start: int, end: int) -> str:
    """The place whose blocks were born in that step and outlive it, by bytes."""
    left = frame.filter((pl.col("born") >= start) & (pl.col("born") < end) & (pl.col("died") >= end))
    sums = left.group_by("stack").agg(pl.col("bytes").sum())
    by_place: dict[str, int] = {}
    for stack, size in sums.iter_rows():
        by_place[place(stack)] = by_place.get(place(stack), 0) + size
    return max(by_place, key=lambda one: (by_place[one], one), default="")


def forward_share(ledger: MemoryLedger) -> float | None:
    """Forward's share of the step's host time; None where no whole step is in the record."""
    phases = ledger.classes.phases
    forward_ns, step_ns = _times(ledger.time_ns, phases.of_event, phases.starts)
    return forward_ns / step_ns if forward_ns is not None and step_ns else None
