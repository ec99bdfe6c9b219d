"""Intervals that nest on threads: who encloses whom, and which is innermost at an instant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink._native import enclose, innermost_at, numbered
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, none_of
from timesink.model.record import dataclass

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
        group = np.repeat(np.arange(len(threads)), [last - first for _, first, last in threads]).astype(np.int64)
        order = _longest_first(group, start)
        parent_at, depth_at, self_at = enclose(group, start[order], end[order])
        parent, depth, self_ns = np.empty_like(order), np.empty_like(order), np.empty_like(order)
        parent[order] = np.where(parent_at >= 0, order[parent_at], -1)
        depth[order], self_ns[order] = depth_at, self_at
        slices = {key: (first, last) for key, first, last in threads}
        return cls(parent, depth, self_ns, order, slices, start, end)

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
            innermost[first:last] = self.innermost(key, start[first:last])
        return innermost

    def inclusive(self, own: Int64Array) -> Int64Array:
        """Per row, the sum of `own` over the row and all that it encloses."""
        total = np.array(own, np.int64)
        for rows in reversed(self.levels()[1:]):
            np.add.at(total, self.parent[rows], total[rows])
        return total

    def levels(self) -> list[Int64Array]:
        """The rows of each depth, the outermost first; no level where there are no rows."""
        deepest = int(self.depth.max(initial=-1))
        by_depth = np.argsort(
            self.depth.astype(np.min_scalar_type(max(deepest, 0))), kind="stable"
        )  # small integers: radix sort
        edges = np.searchsorted(self.depth[by_depth], np.arange(deepest + 2))
        return [by_depth[low:high] for low, high in pairwise(edges)]

    def outermost(self, own: Int64Array) -> Int64Array:
        """For each row the value of the outermost interval around it, itself included, that has one; -1 for none."""
        value = np.array(own, np.int64)
        for rows in self.levels()[1:]:
            above = value[self.parent[rows]]
            value[rows] = np.where(above >= 0, above, value[rows])
        return value

    def innermost_value(self, own: Int64Array) -> Int64Array:
        """For each row the value of the innermost interval around it, itself included, that has one; -1 for none."""
        value = np.array(own, np.int64)
        for rows in self.levels()[1:]:
            value[rows] = np.where(value[rows] >= 0, value[rows], value[self.parent[rows]])
        return value

    def outermost_of_name(self, name: Int64Array) -> BoolArray:
        """Whether no interval around the row carries the same name: recursion counts once."""
        outermost = np.ones(name.size, np.bool_)
        rows = np.flatnonzero(self.parent >= 0)
        above = self.parent[rows]
        while rows.size:
            outermost[rows[name[above] == name[rows]]] = False
            going = (name[above] != name[rows]) & (self.parent[above] >= 0)
            rows, above = rows[going], self.parent[above[going]]
        return outermost


def thread_slices(frame: pl.DataFrame, of_rank: int | None = None) -> Iterator[tuple[ThreadKey, int, int]]:
    """(rank, process, thread), first row and row after the last, of each thread in a table sorted by them; of one rank
    alone where it is given."""
    begin, end = 0, frame.height
    if of_rank is not None:
        begin, end = np.searchsorted(frame["rank"].to_numpy(), (of_rank, of_rank + 1)).tolist()
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
    return next(((first, last) for key, first, last in key_slices(frame, keys) if key == wanted), (0, 0))


def _longest_first(group: Int64Array, start: Int64Array) -> Int64Array:
    """Row order with equal starts reversed: rows come sorted by end, and an enclosing interval must come first."""
    rows = np.arange(start.size)
    if start.size < 2:
        return rows
    new = np.concatenate(([True], (start[1:] != start[:-1]) | (group[1:] != group[:-1])))
    begins = np.flatnonzero(new)
    if begins.size == start.size:
        return rows
    run = np.cumsum(new) - 1
    ends = np.concatenate((begins[1:], [start.size]))
    return np.asarray(begins[run] + ends[run] - 1 - rows, np.int64)
