"""Memory: lifetimes, classes, phases, the allocator and its ledger.

The ledger: live bytes by category at every event, the peak and who held it, and memory from step to step.

Law: at every event the categories sum to the allocator's own running total, to the byte. At the snapshot itself,
requested + rounding = allocated; allocated + awaited + free = reserved; reserved + what only the driver sees = used.

A step's first allocation is its start, and growth is measured by the level just before it. The first step builds
optimizer state and the second is the first to run on top of it, so both are left out.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from timesink.measures.memory.allocator import MAPS, UNMAPS
from timesink.measures.memory.classes import (
    BACKWARD,
    FORWARD,
    PHASE_NAMES,
    Category,
    Classes,
    memory_classes,
    user_frame,
)
from timesink.measures.timeline import Device
from timesink.model.arrays import BoolArray, Int64Array, median
from timesink.model.trace import Trace, remembered
from timesink.records import Record


class Holder(Record):
    """Blocks alive at the peak that were allocated at one place: file, line and function as the stack names them."""

    category: Category
    place: str
    count: int
    bytes: int


class MemoryLedger(Record, eq=False):
    """One (rank, device). `live_bytes[c, i]`: bytes of category `c` before event 0 (i = 0) and after event i - 1.

    Bytes are as asked for; `totals_bytes` is what the allocator counts over the same instants. `time_ns` belongs to the
    events, so it is one shorter. `peak` is the first position of the highest total.
    """

    classes: Classes
    live_bytes: Int64Array
    totals_bytes: Int64Array
    time_ns: Int64Array
    peak: int

    @property
    def peak_bytes(self) -> int:
        """The highest total."""
        return int(self.totals_bytes[self.peak]) if self.totals_bytes.size else 0

    @property
    def peak_phase(self) -> str:
        """Forward, backward or optimizer; empty where the record has no stacks to tell by."""
        stack = self.classes.lives.events["stack"]
        if stack.null_count() == len(stack):
            return ""
        return PHASE_NAMES[self.classes.phases.of_event[max(self.peak - 1, 0)]]

    def at_peak(self) -> dict[Category, int]:
        """Bytes by category at the peak; they sum to it."""
        return {category: int(self.live_bytes[at, self.peak]) for at, category in enumerate(Category)}

    @property
    def unclassified_ratio(self) -> float:
        """Share of the peak that no rule names."""
        return self.at_peak()[Category.UNCLASSIFIED] / self.peak_bytes if self.peak_bytes else 0.0

    def alive_at_peak(self) -> BoolArray:
        """Which lifetimes are alive at the peak."""
        frame = self.classes.lives.frame
        return np.asarray((frame["born"].to_numpy() < self.peak) & (frame["died"].to_numpy() >= self.peak))

    def alive_bytes(self, position: int, chosen: BoolArray) -> int:
        """Bytes of the chosen lifetimes that are alive at a position."""
        frame = self.classes.lives.frame
        alive = (frame["born"].to_numpy() < position) & (frame["died"].to_numpy() >= position)
        return int(frame["bytes"].to_numpy()[alive & chosen].sum())

    def forward_peak(self) -> int | None:
        """The position of the highest total among forward events; None where there are none, or nothing is trained."""
        phases = self.classes.phases
        forward = np.flatnonzero(phases.of_event == FORWARD)
        if not phases.has_backward or not forward.size:
            return None
        return int(forward[self.totals_bytes[forward + 1].argmax()]) + 1

    def holders(self, most: int) -> tuple[Holder, ...]:
        """Who held the peak: places by bytes, largest first, ties by place."""
        frame = self.classes.lives.frame.with_columns(code=pl.Series(self.classes.code))
        alive = frame.filter(pl.Series(self.alive_at_peak()))
        rows = alive.group_by("code", "stack").agg(pl.len().alias("count"), pl.col("bytes").sum())
        sums: dict[tuple[Category, str], tuple[int, int]] = {}
        categories = tuple(Category)
        for code, stack, count, size in rows.iter_rows():
            key = (categories[code], user_frame(stack))
            blocks, bytes_ = sums.get(key, (0, 0))
            sums[key] = (blocks + count, bytes_ + size)
        holders = [Holder(category, place, *sum_) for (category, place), sum_ in sums.items()]
        return tuple(sorted(holders, key=lambda holder: (-holder.bytes, holder.category, holder.place))[:most])


@remembered
def memory_ledger(trace: Trace) -> Mapping[Device, MemoryLedger]:
    """The ledger of every (rank, device) that the trace has memory events or blocks of."""
    return {key: _of_device(classes) for key, classes in memory_classes(trace).items()}


def _of_device(classes: Classes) -> MemoryLedger:
    lives = classes.lives
    live = np.stack([lives.live_bytes(classes.of(category)) for category in Category])
    totals = np.concatenate([[lives.start_bytes], lives.totals_bytes])
    peak = int(totals.argmax()) if totals.size else 0
    return MemoryLedger(classes, live, totals, lives.events["time_ns"].to_numpy(), peak)


class MemorySteps(Record):
    """One (rank, device). `levels_bytes`: alive just before each step's start, from the third start on.

    `growth_bytes` is the smallest rise between neighbouring levels (0 where any falls or fewer than three are there):
    what every step leaves behind at least. `leaver` is the place that allocated most of what the last whole step left.
    `driver_calls` counts segments taken and given back from the third step on, `driver_bytes` their sizes.
    """

    steps: int
    levels_bytes: tuple[int, ...]
    growth_bytes: int
    leaver: str
    driver_calls: int
    driver_bytes: int

    @property
    def driver_calls_per_step(self) -> float:
        """Per step, the first two left out."""
        return self.driver_calls / max(self.steps - 2, 1)


@remembered
def memory_steps(trace: Trace) -> Mapping[Device, MemorySteps]:
    """Steps per (rank, device); those without a training step have none."""
    devices = {}
    for key, ledger in memory_ledger(trace).items():
        starts = ledger.classes.phases.starts
        events = ledger.classes.lives.events
        # live position p counts the events before p, so totals[start] is the level just before the step begins
        levels = tuple(int(level) for level in ledger.totals_bytes[starts[2:]]) if starts.size > 2 else ()
        rises = np.diff(np.array(levels, np.int64))
        growth = int(rises.min()) if rises.size >= 2 and rises.min() > 0 else 0
        later = events[int(starts[2]) :] if starts.size > 2 else events[:0]
        traffic = later.filter(pl.col("action").cast(pl.String).is_in((*MAPS, *UNMAPS)))
        size = int(traffic["size_bytes"].fill_null(0).sum())
        leaver = _leaver(ledger.classes.lives.frame, int(starts[-2]), int(starts[-1])) if growth else ""
        devices[key] = MemorySteps(int(starts.size), levels, growth, leaver, traffic.height, size)
    return devices


def _leaver(frame: pl.DataFrame, start: int, end: int) -> str:
    """The place whose blocks were born in that step and outlive it, by bytes."""
    left = frame.filter((pl.col("born") >= start) & (pl.col("born") < end) & (pl.col("died") >= end))
    sums = left.group_by("stack").agg(pl.col("bytes").sum())
    by_place: dict[str, int] = {}
    for stack, size in sums.iter_rows():
        by_place[user_frame(stack)] = by_place.get(user_frame(stack), 0) + size
    return max(by_place, key=lambda one: (by_place[one], one), default="")


def forward_share(ledger: MemoryLedger) -> float | None:
    """Forward's share of the step's host time, by medians; None where no whole step is in the record.

    Forward is from a step's first allocation to the first one of its backward pass; the device may run behind.
    """
    phases, time_ns = ledger.classes.phases, ledger.time_ns
    backward = np.flatnonzero(phases.of_event == BACKWARD)
    first = np.searchsorted(backward, phases.starts)
    has_backward = first < backward.size
    forward_ns = time_ns[backward[first[has_backward]]] - time_ns[phases.starts[has_backward]]
    step_ns = np.diff(time_ns[phases.starts])
    if not forward_ns.size or not step_ns.size or not int(median(step_ns)):
        return None
    return int(median(forward_ns)) / int(median(step_ns))
