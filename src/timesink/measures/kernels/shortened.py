"""Kernels that a fix would make shorter, and by how much: what most measures of wasted kernel time return."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.knowledge.gpus import KERNEL_FLOOR_NS
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline.timeline import Device
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.graph import Case, Range


@dataclass(frozen=True, slots=True, eq=False)
class Shortened:
    """Kernels of one device: `rows` of `device_ops`, ascending, and the share of its time that each keeps after a fix.

    `keep[n]` belongs to case n: cautious, expected, hopeful; 0 where the kernel would not run at all. Shares lie
    between 0 and 1 and do not grow from case to case.
    """

    device: Device
    rows: Int64Array
    keep: tuple[Float64Array, Float64Array, Float64Array]

    @classmethod
    def of(cls, device: Device, rows: npt.ArrayLike, *groups: tuple[npt.ArrayLike, Range]) -> Shortened:
        """From groups of rows that each keep the same share; a row of several groups keeps the smallest."""
        listed = [np.asarray(rows, np.int64), *(np.asarray(mine, np.int64) for mine, _ in groups)]
        every = np.unique(np.concatenate(listed))
        keep = []
        for case in Case:
            share = np.ones(every.size)
            for mine, left in groups:
                at = np.searchsorted(every, np.asarray(mine, np.int64))
                share[at] = np.minimum(share[at], left.at(case))
            keep.append(share)
        return cls(device, every, (keep[0], keep[1], keep[2]))

    def floored(self, trace: Trace) -> Shortened:
        """The same, no kernel that stays shorter than a kernel can run."""
        start, end = self._times(trace)
        floor = np.minimum(KERNEL_FLOOR_NS / np.maximum(end - start, 1), 1.0)
        cautious, expected, hopeful = (np.where(keep > 0, np.maximum(keep, floor), keep) for keep in self.keep)
        return Shortened(self.device, self.rows, (cautious, expected, hopeful))

    def saved(self, trace: Trace, case: Case) -> Intervals:
        """The device time that goes: of each kernel the last part, as long as what it does not keep."""
        start, end = self._times(trace)
        left = np.ceil((end - start) * self.keep[case.value]).astype(np.int64)
        return Intervals.union_of(start + left, end)

    def whole(self, trace: Trace) -> Intervals:
        """The device time in which any of the kernels runs."""
        return Intervals.union_of(*self._times(trace))

    def saved_per_step_ns(self, trace: Trace, case: Case) -> float:
        """The same per steady step."""
        return per_step_ns(trace, self.device, self.saved(trace, case))

    def longest(self, trace: Trace, count: int = 5) -> tuple[int, ...]:
        """Rows of the longest kernels, longest first."""
        start, end = self._times(trace)
        order = np.lexsort((self.rows, start - end))
        return tuple(int(row) for row in self.rows[order[:count]])

    def _times(self, trace: Trace) -> tuple[Int64Array, Int64Array]:
        ops = trace.get(DEVICE_OPS)
        return ops["start_ns"].to_numpy()[self.rows], ops["end_ns"].to_numpy()[self.rows]


def rows_of(frame: pl.DataFrame) -> Int64Array:
    """The rows of `device_ops` that a frame of kernel facts speaks of."""
    return frame["row"].to_numpy()


def all_rows(parts: Iterable[Shortened]) -> Int64Array:
    """Rows of every part together, ascending."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]))
