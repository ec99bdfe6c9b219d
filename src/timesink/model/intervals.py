"""Interval algebra on half-open int64 nanosecond intervals [start_ns, end_ns).

`Intervals` holds sorted, disjoint, non-empty intervals, so a total is a plain sum. Unions, shares and coverage are
single passes of `_native` over them; a union begins anew where a start is past every earlier end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink._native import covered, merged, places, shared, united
from timesink.model.arrays import Int64Array, slices
from timesink.records import Record

_LEAST: Final = int(np.iinfo(np.int64).min)
_MOST: Final = int(np.iinfo(np.int64).max)


class Intervals(Record, eq=False):
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
        return cls(*merged(np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64)))

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
        return Intervals(*united(self.start_ns, self.end_ns, other.start_ns, other.end_ns))

    def __and__(self, other: Intervals) -> Intervals:
        few, many = sorted((self, other), key=len)
        return Intervals(*shared(few.start_ns, few.end_ns, many.start_ns, many.end_ns))

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(other):
            return self
        between = Intervals(other.end_ns[:-1], other.start_ns[1:])  # millions of them are not copied
        around = Intervals(np.array([_LEAST, other.end_ns[-1]]), np.array([other.start_ns[0], _MOST]))
        return (self & between) | (self & around)

    def clip(self, start_ns: int, end_ns: int) -> Intervals:
        """The parts of these intervals inside the window [start_ns, end_ns)."""
        return self & Intervals.one(start_ns, end_ns)

    def covered_ns(self, start_ns: npt.ArrayLike, end_ns: npt.ArrayLike) -> Int64Array:
        """For each window of the arguments, how many nanoseconds of it these intervals cover."""
        return covered(self.start_ns, self.end_ns, np.asarray(start_ns, np.int64), np.asarray(end_ns, np.int64))


def intervals_by(frame: pl.DataFrame, *keys: str) -> dict[Any, Intervals]:
    """The union of a frame's `start_ns`, `end_ns` rows per combination of two or more keys, in their order."""
    parts = frame.sort(keys).partition_by(keys, as_dict=True, maintain_order=True)
    return {key: Intervals.of(part) for key, part in parts.items()}


def _joined(parts: list[Int64Array]) -> Int64Array:
    return np.concatenate([np.empty(0, np.int64), *parts])


def begun_in(instants_ns: Int64Array, start_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
    """How many of the instants, in any order, lie in each of some half-open windows."""
    edges = np.sort(np.concatenate((start_ns, end_ns)))
    after = np.zeros(edges.size + 1, np.int64)  # instants by how many edges they come after
    for some in slices(0, instants_ns.size):
        after += np.bincount(places(edges, instants_ns[some], True), minlength=after.size)
    before = np.cumsum(after)
    counts: Int64Array = before[np.searchsorted(edges, end_ns)] - before[np.searchsorted(edges, start_ns)]
    return counts
