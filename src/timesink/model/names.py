"""Questions about names, asked once per distinct name instead of once per row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from polars.exceptions import ComputeError

from timesink.model.arrays import BoolArray, Int8Array, Int64Array, IntArray

_CODED = pl.Categorical()
_MOST_CODES = 1 << 18  # beyond so many distinct names in one process, answers are forgotten


class _Answers:
    """What is known of names by pattern: for each code of a category no (0), yes (1), or not asked yet (-1).

    A code stands for one name as long as any series holds it, and `anchor` does.
    """

    def __init__(self) -> None:
        self.anchor = pl.Series([""], dtype=_CODED)
        self.by_pattern: dict[str, Int8Array] = {}


_answers = _Answers()


def matches(names: pl.Series, pattern: str) -> pl.Series:
    """Whether each name matches the regular expression anywhere; null names do not."""
    coded = names.cast(_CODED)
    if nulls := coded.null_count():
        found = np.zeros(len(names), bool)
        if nulls < len(names):
            found[coded.is_not_null().to_numpy()] = _matched(coded.drop_nulls(), pattern)
    else:
        found = _matched(coded, pattern)
    return pl.Series(names.name, found)


def _matched(names: pl.Series, pattern: str) -> BoolArray:
    """The same for categories without a null; a name is asked once in the life of the process."""
    global _answers
    if not len(names):
        return np.zeros(0, bool)
    physical = names.to_physical()
    needed = 1 + int(physical.max())  # type: ignore[arg-type]
    if needed > _MOST_CODES:
        _answers = _Answers()
    held = _answers
    known = held.by_pattern.get(pattern, _NOTHING_KNOWN)
    if known.size < needed:
        known = np.pad(known, (0, max(needed, 2 * known.size) - known.size), constant_values=-1)
    answers = pl.Series(known)[physical]  # which NumPy would do with numbers of eight bytes
    if answers.min() < 0:  # type: ignore[operator]
        row_of = _row_of_each(physical.to_numpy(), known.size)
        new = np.flatnonzero((row_of >= 0) & (known < 0))
        known[new] = names[row_of[new]].cast(pl.String).str.contains(pattern).to_numpy()
        answers = pl.Series(known)[physical]
    held.by_pattern[pattern] = known
    return (answers > 0).to_numpy()


_NOTHING_KNOWN: Int8Array = np.empty(0, np.int8)


def _row_of_each(codes: IntArray, size: int) -> Int64Array:
    """A row that holds each code below `size`; -1 where none does."""
    row_of = np.full(size, -1, np.int64)
    row_of[codes] = np.arange(codes.size)
    return row_of


def pattern_fault(pattern: str) -> str | None:
    """Why a text is no regular expression, in one line; None where it is one."""
    try:
        pl.Series([""]).str.contains(pattern)
    except ComputeError as error:
        return str(error).partition("\n\n")[0].strip().splitlines()[-1]
    return None


def mapped(names: pl.Series, function: Callable[[pl.Series], pl.Series], dtype: type[pl.DataType]) -> pl.Series:
    """`function` of each name, computed on the distinct names only."""
    if names.null_count() == len(names):
        return pl.Series(names.name, [None], dtype=dtype).new_from_index(0, len(names))
    coded = names.cast(_CODED)
    named = coded.drop_nulls() if coded.null_count() else coded
    codes = named.to_physical().to_numpy()
    row_of = _row_of_each(codes, int(codes.max()) + 1)
    distinct = np.flatnonzero(row_of >= 0)
    answers = function(named[row_of[distinct]].cast(pl.String)).cast(dtype)
    answer_of = np.zeros(row_of.size, np.uint32)
    answer_of[distinct] = np.arange(distinct.size, dtype=np.uint32)
    answered = answers[answer_of[codes]] if named is coded else answers[answer_of][coded.to_physical()]
    return answered.alias(names.name)
