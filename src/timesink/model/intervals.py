"""Interval algebra on half-open int64 nanosecond intervals [start_ns, end_ns).

`Intervals` holds sorted, disjoint, non-empty intervals, so a total is a plain sum. Union follows the running-maximum
formula: after sorting by start, a new interval begins where a start is past every earlier end. `union_ns` gives the
total length of unions of intervals, one union per group, all groups in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.model.arrays import Int64Array
from timesink.model.record import dataclass

AT_ONCE: Final = 1 << 18
"""Longer sets are worked through in slices of so many, which bounds the memory that an operation takes."""
_LEAST: Final = int(np.iinfo(np.int64).min)
_MOST: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Sorted, disjoint, non-empty half-open intervals [start_ns, end_ns)."""

    start_ns: Int64Array
    end_ns: Int64Array

    @classmethod
    def none(cls) -> Intervals:
        """No intervals."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def one(cls, start_ns: int, end_ns: int) -> Intervals:
        """One window, as far as 64 bits hold it: a trace may have any time. Nothing where it ends before it starts."""
        start_ns, end_ns = max(start_ns, _LEAST), min(end_ns, _MOST)
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
        every = list(parts)
        return cls.union_of(_joined([chunk.start_ns for chunk in every]), _joined([chunk.end_ns for chunk in every]))

    def __len__(self) -> int:
        return int(self.start_ns.size)

    @property
    def lengths_ns(self) -> Int64Array:
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
        few, many = sorted((self, other), key=len)
        return Intervals.union_all(few._inside(many, first) for first in range(0, len(many), AT_ONCE))

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(other):
            return self & Intervals(np.array([_LEAST]), np.array([_MOST]))
        return self & Intervals(np.concatenate(([_LEAST], other.end_ns)), np.concatenate((other.start_ns, [_MOST])))

    def _inside(self, other: Intervals, first: int) -> Intervals:
        """What these intervals share with `AT_ONCE` of the others, in order; pieces may touch."""
        start, end = other.start_ns[first : first + AT_ONCE], other.end_ns[first : first + AT_ONCE]
        low = np.searchsorted(self.end_ns, start, side="right")
        count = np.maximum(np.searchsorted(self.start_ns, end, side="left") - low, 0)
        owner = np.repeat(np.arange(count.size), count)
        index = np.arange(owner.size) + np.repeat(low - (np.cumsum(count) - count), count)
        return Intervals(np.maximum(start[owner], self.start_ns[index]), np.minimum(end[owner], self.end_ns[index]))

    def gaps(self, start_ns: int, end_ns: int) -> Intervals:
        """The parts of the window [start_ns, end_ns) that these intervals leave free."""
        return Intervals.one(start_ns, end_ns) - self

    def clip(self, start_ns: int, end_ns: int) -> Intervals:
        """The parts of these intervals inside the window [start_ns, end_ns)."""
        return self & Intervals.one(start_ns, end_ns)

    def covered_ns(self, start_ns: npt.ArrayLike, end_ns: npt.ArrayLike) -> Int64Array:
        """For each window of the arguments, how many nanoseconds of it these intervals cover."""
        start, end = np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)
        found = np.zeros(start.shape, np.int64)
        if not len(self):
            return found
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.lengths_ns)))
        for first in range(0, start.size, AT_ONCE):
            chunk = slice(first, first + AT_ONCE)
            last = self._covered_until(np.maximum(end[chunk], start[chunk]), before)
            found[chunk] = last - self._covered_until(start[chunk], before)
        return found

    def _covered_until(self, time_ns: Int64Array, before: Int64Array) -> Int64Array:
        """Nanoseconds covered up to each instant; `before` are those covered before each interval."""
        index = np.maximum(np.searchsorted(self.start_ns, time_ns, side="right") - 1, 0)
        start = self.start_ns[index]
        inside = np.minimum(time_ns, self.end_ns[index]) - start
        return np.asarray(np.where(time_ns >= start, before[index] + inside, 0), np.int64)


def _joined(parts: list[Int64Array]) -> Int64Array:
    return np.concatenate([np.empty(0, np.int64), *parts])


def begun_in(instants_ns: Int64Array, start_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
    """How many of the instants, in any order, lie in each of some half-open windows."""
    ordered = np.sort(instants_ns)
    counts: Int64Array = np.searchsorted(ordered, end_ns) - np.searchsorted(ordered, start_ns)
    return counts


def union_ns(group: Int64Array, start_ns: Int64Array, end_ns: Int64Array, group_count: int) -> Int64Array:
    """For each group 0 .. group_count - 1, how many nanoseconds its intervals cover together.

    The running maximum of ends restarts at each group because every group is shifted past the reach of the one before.
    """
    if not group.size:
        return np.zeros(group_count, np.int64)
    start, end = start_ns - start_ns.min(), end_ns - start_ns.min()
    stride = int(end.max()) + 1
    if group_count > 1 and stride * group_count >= np.iinfo(np.int64).max:
        return _one_by_one(group, start, end, group_count)
    start, end = start + group * stride, end + group * stride
    order = np.argsort(start)
    start, end = start[order], end[order]
    before = np.concatenate(([-1], np.maximum.accumulate(end)[:-1]))
    total = np.concatenate(([0], np.cumsum(np.maximum(end - np.maximum(start, before), 0))))
    return np.diff(total[np.searchsorted(start, np.arange(group_count + 1) * stride)])


def _one_by_one(group: Int64Array, start: Int64Array, end: Int64Array, group_count: int) -> Int64Array:
    """The same where shifted times would leave int64: halves of the groups, which shift half as far."""
    half = group_count // 2
    low = group < half
    return np.concatenate(
        (
            union_ns(group[low], start[low], end[low], half),
            union_ns(group[~low] - half, start[~low], end[~low], group_count - half),
        )
    )
