"""Interval algebra on half-open int64 nanosecond intervals.

`Intervals` holds sorted, disjoint, non-empty intervals, so a total is a plain sum. Union follows the running-maximum
formula: after sorting by start, a new interval begins where a start lies past every earlier end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Sorted, disjoint, non-empty half-open intervals [start_ns, end_ns)."""

    start_ns: Times
    end_ns: Times

    @classmethod
    def none(cls) -> Intervals:
        """No intervals."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def one(cls, start_ns: int, end_ns: int) -> Intervals:
        """One window; nothing where it ends before it starts."""
        if end_ns <= start_ns:
            return cls.none()
        return cls(np.array([start_ns], np.int64), np.array([end_ns], np.int64))

    @classmethod
    def union_of(cls, start_ns: npt.ArrayLike, end_ns: npt.ArrayLike) -> Intervals:
        """The union of any intervals: unsorted, overlapping or empty ones included."""
        start, end = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
        full = end > start
        if not full.all():
            start, end = start[full], end[full]
        if not start.size:
            return cls.none()
        if np.any(start[1:] < start[:-1]):
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        reach = np.maximum.accumulate(end)
        begins = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
        ends = np.concatenate((begins[1:], [start.size])) - 1
        return cls(start[begins], reach[ends])

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Intervals:
        """The union of a frame's `start_ns`, `end_ns` rows."""
        return cls.union_of(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())

    @classmethod
    def union_all(cls, parts: Iterable[Intervals]) -> Intervals:
        """The union of several sets."""
        return reduce(cls.__or__, parts, cls.none())

    def __len__(self) -> int:
        return int(self.start_ns.size)

    @property
    def lengths_ns(self) -> Times:
        """Length of each interval."""
        return self.end_ns - self.start_ns

    @property
    def total_ns(self) -> int:
        """Nanoseconds covered."""
        return int(self.lengths_ns.sum())

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.union_of(
            np.concatenate((self.start_ns, other.start_ns)), np.concatenate((self.end_ns, other.end_ns))
        )

    def __and__(self, other: Intervals) -> Intervals:
        return self._where(other, lambda mine, theirs: mine & theirs)

    def __sub__(self, other: Intervals) -> Intervals:
        return self._where(other, lambda mine, theirs: mine & ~theirs)

    def gaps(self, start_ns: int, end_ns: int) -> Intervals:
        """What these intervals leave free of the window."""
        return Intervals.one(start_ns, end_ns) - self

    def clip(self, start_ns: int, end_ns: int) -> Intervals:
        """What lies inside the window."""
        return self & Intervals.one(start_ns, end_ns)

    def covered_ns(self, start_ns: npt.ArrayLike, end_ns: npt.ArrayLike) -> Times:
        """For each window of the arguments, how many nanoseconds of it these intervals cover."""
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.lengths_ns)))

        def up_to(time_ns: Times) -> Times:
            index = np.searchsorted(self.start_ns, time_ns, side="right")
            inside = np.where(index > 0, np.minimum(time_ns, self.end_ns[index - 1]) - self.start_ns[index - 1], 0)
            return np.asarray(np.where(index > 0, before[index - 1] + inside, 0), np.int64)

        if not len(self):
            return np.zeros(np.asarray(start_ns).shape, np.int64)
        start, end = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
        return np.asarray(up_to(np.maximum(end, start)) - up_to(start), np.int64)

    def _where(self, other: Intervals, keep: _Keep) -> Intervals:
        """Sweep both sets at once; `keep` sees, between neighbouring ends, whether each set covers the stretch."""
        points = np.concatenate((self.start_ns, self.end_ns, other.start_ns, other.end_ns))
        if not points.size:
            return Intervals.none()
        mine, theirs = len(self), len(other)
        step = np.repeat(np.array([1, -1, 1, -1], np.int64), [mine, mine, theirs, theirs])
        is_mine = np.arange(points.size) < 2 * mine
        order = np.argsort(points, kind="stable")
        points, step, is_mine = points[order], step[order], is_mine[order]
        in_mine = np.cumsum(np.where(is_mine, step, 0))[:-1] > 0
        in_theirs = np.cumsum(np.where(is_mine, 0, step))[:-1] > 0
        kept = keep(in_mine, in_theirs)
        return Intervals.union_of(points[:-1][kept], points[1:][kept])


class _Keep(Protocol):
    def __call__(self, mine: npt.NDArray[np.bool_], theirs: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]: ...
