"""The ledger: live bytes by category at every event, the peak and who held it, and what the allocator adds on top.

Law: at every event the categories sum to the allocator's own running total, to the byte. At the snapshot itself,
requested + rounding = allocated; allocated + awaited + free = reserved; reserved + what only the driver sees = used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.memo import remembered
from timesink.measures.memory_classes import Category, Classes, memory_classes
from timesink.measures.memory_lifetimes import Device, Ints
from timesink.measures.memory_phases import FORWARD, NAMES
from timesink.measures.memory_stacks import place
from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Holder:
    """Blocks alive at the peak that were allocated at one place: file, line and function as the stack names them."""

    category: Category
    place: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class MemoryLedger:
    """One (rank, device). `live_bytes[c, i]`: bytes of category `c` before event 0 (i = 0) and after event i - 1.

    Bytes are as asked for; `totals_bytes` is what the allocator counts over the same instants. `time_ns` belongs to the
    events, so it is one shorter. `peak` is the first position of the highest total.
    """

    classes: Classes
    live_bytes: npt.NDArray[np.int64]
    totals_bytes: Ints
    time_ns: Ints
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
        return NAMES[self.classes.phases.of_event[max(self.peak - 1, 0)]]

    def at_peak(self) -> dict[Category, int]:
        """Bytes by category at the peak; they sum to it."""
        return {category: int(self.live_bytes[at, self.peak]) for at, category in enumerate(Category)}

    @property
    def unclassified_ratio(self) -> float:
        """Share of the peak that no rule names."""
        return self.at_peak()[Category.UNCLASSIFIED] / self.peak_bytes if self.peak_bytes else 0.0

    def alive_at_peak(self) -> npt.NDArray[np.bool_]:
        """Which lifetimes are alive at the peak."""
        frame = self.classes.lives.frame
        return np.asarray((frame["born"].to_numpy() < self.peak) & (frame["died"].to_numpy() >= self.peak))

    def alive_bytes(self, position: int, chosen: npt.NDArray[np.bool_]) -> int:
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
            key = (categories[code], place(stack))
            known = sums.get(key, (0, 0))
            sums[key] = (known[0] + count, known[1] + size)
        found = [Holder(category, where, *both) for (category, where), both in sums.items()]
        return tuple(sorted(found, key=lambda one: (-one.bytes, one.category, one.place))[:most])


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
