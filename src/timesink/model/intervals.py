"""Interval algebra on half-open int64 nanosecond intervals [start_ns, end_ns).

`Intervals` holds sorted, disjoint, non-empty intervals, so a total is a plain sum. Unions, shares and coverage are
single passes of `_native` over them; a union begins anew where a start is past every earlier end.

Of intervals that nest on threads it is told who encloses whom, and which is innermost at an instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink import _native
from timesink._native import covered, innermost_at, merged, numbered, places, shared, united
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, none_of, slices
from timesink.startup import dataclass

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


ThreadKey = tuple[int, int, int]

_THREAD = ("rank", "process", "thread")


@dataclass(frozen=True, slots=True, eq=False)
class Nesting:
    """The rows of one host table as trees, one forest per thread.

    Arrays are indexed by table row: `parent` (row of the innermost enclosing interval, or -1), `depth` (0 is
    outermost), `self_ns` (duration less direct children). `order` lists the rows parents first; `first` says where
    each thread's rows begin in it.
    """

    parent: Int64Array
    depth: Int64Array
    self_ns: Int64Array
    order: Int64Array
    first: dict[ThreadKey, tuple[int, int]]
    start_ns: Int64Array
    end_ns: Int64Array

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Nesting:
        """Nest a host table, which is sorted by rank, process, thread, start and end."""
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        threads = list(thread_slices(frame))
        order, parent, depth, self_ns = _native.nest(np.array([first for _, first, _ in threads], np.int64), start, end)
        rows = {key: (first, last) for key, first, last in threads}
        return cls(parent, depth, self_ns, order, rows, start, end)

    def innermost(self, thread: ThreadKey, time_ns: npt.ArrayLike) -> Int64Array:
        """For each instant, the row of the innermost interval of the thread that holds it, or -1."""
        when = np.asarray(time_ns, np.int64)
        if thread not in self.first:
            return np.full(when.shape, -1, np.int64)
        first, last = self.first[thread]
        rows = self.order[first:last]
        return innermost_at(rows, self.parent, self.start_ns, self.end_ns, when)

    def innermost_of(self, frame: pl.DataFrame) -> Int32Array:
        """For each row of another host table, the row of the innermost interval that holds its start; -1 for none."""
        if not self.order.size:
            return none_of(frame.height)
        innermost = np.full(frame.height, -1, np.int32)
        start = frame["start_ns"].to_numpy()
        for key, first, last in thread_slices(frame):
            for some in slices(first, last):
                innermost[some] = self.innermost(key, start[some])
        return innermost

    def inclusive(self, own: Int64Array) -> Int64Array:
        """Per row, the sum of `own` over the row and all that it encloses."""
        return _native.inclusive(self.order, self.parent, own)

    def levels(self) -> list[Int64Array]:
        """The rows of each depth, the outermost first; no level where there are no rows."""
        deepest = int(self.depth.max(initial=-1))
        small = self.depth.astype(np.min_scalar_type(max(deepest, 0)))  # of which a stable sort is a radix sort
        by_depth = np.argsort(small, kind="stable")
        edges = np.searchsorted(self.depth[by_depth], np.arange(deepest + 2))
        return [by_depth[low:high] for low, high in pairwise(edges)]

    def outermost(self, own: Int64Array) -> Int64Array:
        """For each row the value of the outermost interval around it, itself included, that has one; -1 for none."""
        return _native.inherited(self.order, self.parent, own, True)

    def innermost_value(self, own: Int64Array) -> Int64Array:
        """For each row the value of the innermost interval around it, itself included, that has one; -1 for none."""
        return _native.inherited(self.order, self.parent, own, False)

    def outermost_of_name(self, name: Int64Array) -> BoolArray:
        """Whether no interval around the row carries the same name: recursion counts once."""
        return _native.named_alike(self.parent, name) < 0


def thread_slices(frame: pl.DataFrame, of_rank: int | None = None) -> Iterator[tuple[ThreadKey, int, int]]:
    """(rank, process, thread), first row and row after the last, of each thread in a table sorted by them; of one rank
    alone where it is given."""
    begin, end = 0, frame.height
    if of_rank is not None:
        begin, end = slice_of(frame, ("rank",), (of_rank,))
    for key, first, last in key_slices(frame[begin:end], _THREAD):
        rank, process, thread = key
        yield (rank, process, thread), begin + first, begin + last


def key_slices(frame: pl.DataFrame, keys: Sequence[str]) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Each combination of the integer `keys`, its first row and the row after its last, in a table sorted by them.

    Ends are found by bisection: rows are not read, however many there are.
    """
    columns = [frame[key].to_numpy() for key in keys]
    first = 0
    while first < frame.height:
        last, key = frame.height, []
        for column in columns:
            key.append(int(column[first]))
            last = first + int(np.searchsorted(column[first:last], column[first], side="right"))
        yield tuple(key), first, last
        first = last


def numbered_rows(frame: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """Rows of integers or categories by what they hold, null included: the number of each, alike rows under one, in the
    order in which they come first; and of each number the first row."""
    held = []
    for column in frame:
        values = pl.col(column.name).to_physical()
        if column.null_count():
            held.append(values.is_null().cast(pl.Int64).name.suffix(" is null"))
            values = values.fill_null(0)
        held.append(values.cast(pl.Int64))
    return numbered([column.to_numpy() for column in frame.select(held)])


def slice_of(frame: pl.DataFrame, keys: Sequence[str], wanted: tuple[int, ...]) -> tuple[int, int]:
    """First row of one combination of the `keys` and the row after its last, as in `key_slices`; (0, 0) for none."""
    first, last = 0, frame.height
    for key, value in zip(keys, wanted, strict=True):
        column = frame[key].slice(first, last - first).to_numpy()
        own = column.dtype.type(value)  # of another type the whole column is converted to that
        first, last = first + int(np.searchsorted(column, own)), first + int(np.searchsorted(column, own, "right"))
    return (first, last) if first < last else (0, 0)
