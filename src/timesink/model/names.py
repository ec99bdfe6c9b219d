"""Questions about names, asked once per distinct name instead of once per row."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl


def matches(names: pl.Series, pattern: str) -> pl.Series:
    """Whether each name matches the regular expression anywhere; null names do not."""
    return mapped(names, lambda distinct: distinct.str.contains(pattern), pl.Boolean).fill_null(False)


def mapped(names: pl.Series, function: Callable[[pl.Series], pl.Series], dtype: type[pl.DataType]) -> pl.Series:
    """`function` of each name, computed on the distinct names only."""
    distinct = names.unique().drop_nulls()
    if not len(distinct):
        return pl.Series(names.name, [None], dtype=dtype).new_from_index(0, len(names))
    answers = function(distinct.cast(pl.String))
    return names.replace_strict(distinct, answers, default=None, return_dtype=dtype)
