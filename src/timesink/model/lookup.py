"""Joins by number: where an id stands first. Correlations, process by process, are such ids.

Frames put below one another column by column, so that no more than one column is held twice.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from timesink.model.arrays import Int64Array

_AT_ONCE = 1 << 18
_DENSE = 8  # a look-up table may be this many times longer than what it serves; sparser ids are searched instead


def first_places(wanted: Int64Array, known: Int64Array) -> Int64Array:
    """For each wanted id, the first place in `known` that holds it; -1 where none does, and for negative ids."""
    held = known >= 0
    if not held.any() or not wanted.size:
        return np.full(wanted.size, -1, np.int64)
    low, high = int(np.min(known, where=held, initial=np.iinfo(np.int64).max)), int(known.max())
    if high - low < _DENSE * (known.size + wanted.size):
        return _looked_up(wanted, known, low, high)
    rows = np.flatnonzero(held)
    ids, first = np.unique(known[rows], return_index=True)
    at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[at] == wanted, rows[first[at]], -1)


def _looked_up(wanted: Int64Array, known: Int64Array, low: int, high: int) -> Int64Array:
    """By a table of the first place of each id; slice by slice, so that little is needed beside it and the result."""
    places = np.full(high - low + 1, -1, np.int32)
    for begin in reversed(range(0, known.size, _AT_ONCE)):
        ids = known[begin : begin + _AT_ONCE][::-1]  # the last to be written is the first there is
        rows = np.arange(begin + ids.size - 1, begin - 1, -1, dtype=np.int32)
        held = ids >= 0
        places[ids[held] - low] = rows[held]
    found = np.full(wanted.size, -1, np.int64)
    for begin in range(0, wanted.size, _AT_ONCE):
        ids = wanted[begin : begin + _AT_ONCE]
        inside = (ids >= low) & (ids <= high)
        found[begin : begin + _AT_ONCE][inside] = places[ids[inside] - low]
    return found


def stacked(parts: Iterable[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    """The rows of all parts, each column in one piece; every part has the columns of `schema`.

    Hand over an iterator: parts that somebody else holds stay in memory until the end.
    """
    columns: list[list[pl.Series]] = [[] for _ in schema]
    for part in parts:
        for column, series in zip(columns, part.get_columns(), strict=True):
            column.append(series)
    whole = []
    for (name, dtype), column in zip(schema.items(), columns, strict=True):
        series = pl.concat(column, rechunk=True) if column else pl.Series(name, [], dtype=dtype)
        column.clear()
        whole.append(lean(series))
    return pl.DataFrame(whole)


def lean(series: pl.Series) -> pl.Series:
    """The same values. A column of nulls or of zeros is made anew, out of pages that nothing was written to: the
    operating system gives those no memory, and a column that a profiler leaves empty then costs none."""
    if not len(series):
        return series
    if series.null_count() == len(series):
        return pl.Series(series.name, [None], dtype=series.dtype).new_from_index(0, len(series))
    if series.dtype.is_integer() and not series.null_count() and series.min() == series.max() == 0:
        return pl.Series(series.name, [0], dtype=series.dtype).new_from_index(0, len(series))
    return series
