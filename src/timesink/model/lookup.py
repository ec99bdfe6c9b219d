"""Frames put below one another column by column, so that no more than one column is held twice."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl


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
