"""Intervals that nest on threads: who encloses whom, and which is innermost at an instant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink import _native
from timesink._native import innermost_at, numbered
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, none_of, slices
from timesink.records import Record

ThreadKey = tuple[int, int, int]

THREAD: Final = ("rank", "process", "thread")
"""Columns that tell the threads of a job apart."""


class Nesting(Record, eq=False):
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
    for key, first, last in key_slices(frame[begin:end], THREAD):
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
