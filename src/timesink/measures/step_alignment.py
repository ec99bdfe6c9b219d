"""One step laid beside another: where the first is longer, operation by operation, summing to the difference.

A step's operations on a device, in order of start, cut its window into segments: the idle time before an operation and
the time in which it was the last to run. The two sequences of kernel names are aligned by their longest common blocks;
operations of one step only stand against nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
_LONGEST: Final = 4_000  # operations; a longer step is aligned position by position, as far as names agree


@dataclass(frozen=True, slots=True, eq=False)
class StepOps:
    """One step on one device: what ran, in order of start. `row` are rows of `device_ops`; `end_ns` of the window is
    the start of the next step's first operation."""

    row: Times
    token: Times
    start_ns: Times
    finish_ns: Times
    window_ns: tuple[int, int]

    @property
    def idle_ns(self) -> Times:
        """Idle time before each operation, and, last, at the end of the window: one longer than the operations."""
        reach = np.maximum.accumulate(np.concatenate(([self.window_ns[0]], self.finish_ns)))
        begins = np.append(np.minimum(self.start_ns, self.window_ns[1]), self.window_ns[1])
        return np.asarray(np.maximum(begins - reach, 0), np.int64)

    @property
    def busy_ns(self) -> Times:
        """Time that each operation added to the busy time of the window."""
        reach = np.maximum.accumulate(np.concatenate(([self.window_ns[0]], self.finish_ns)))
        ends = np.minimum(reach, self.window_ns[1])
        begins = np.minimum(np.maximum(self.start_ns, ends[:-1]), self.window_ns[1])
        return np.asarray(np.maximum(ends[1:] - np.maximum(begins, ends[:-1]), 0), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Differences of one step from another, per operation of the longer one. `pair[i]` is the operation of the other
    that stands against it, -1 for none; `busy_ns` and `idle_ns` (one longer: the end of the window) are differences.
    They and `missing_ns`, what only the other step has (zero or less), sum to the difference of the windows."""

    pair: Times
    busy_ns: Times
    idle_ns: Times
    missing_ns: int

    @property
    def total_ns(self) -> int:
        """The difference of the two windows."""
        return int(self.busy_ns.sum() + self.idle_ns.sum() + self.missing_ns)


def align(step: StepOps, other: StepOps) -> Alignment:
    """The first step against the second."""
    pair = _pairs(step.token, other.token)
    held = pair >= 0
    busy, idle = step.busy_ns.astype(np.int64), step.idle_ns.astype(np.int64)
    other_busy, other_idle = other.busy_ns, other.idle_ns
    busy[held] -= other_busy[pair[held]]
    idle[:-1][held] -= other_idle[:-1][pair[held]]
    idle[-1] -= other_idle[-1]
    alone = np.ones(other.token.size, bool)
    alone[pair[held]] = False
    missing = int(other_busy[alone].sum() + other_idle[:-1][alone].sum())
    return Alignment(pair, busy, idle, -missing)


def _pairs(first: Times, second: Times) -> Times:
    if first.size == second.size and np.array_equal(first, second):
        return np.arange(first.size, dtype=np.int64)
    pair = np.full(first.size, -1, np.int64)
    if max(first.size, second.size) > _LONGEST:
        shorter = min(first.size, second.size)
        same = np.flatnonzero(first[:shorter] == second[:shorter])
        pair[same] = same
        return pair
    blocks = SequenceMatcher(None, first.tolist(), second.tolist(), autojunk=False).get_matching_blocks()
    for block in blocks:
        pair[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return pair
