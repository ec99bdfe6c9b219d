"""Questions about names, asked once per distinct name instead of once per row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from polars.exceptions import ComputeError

from timesink._native import looked_up
from timesink.model.arrays import BoolArray, Int8Array

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
    codes, held = names.to_physical().to_numpy(), _answers
    known = held.by_pattern.get(pattern, _NOTHING_KNOWN)
    found, unknown = looked_up(codes, known)
    if not unknown.size:
        return found
    if codes[unknown].max() >= _MOST_CODES:
        held = _answers = _Answers()
        known, unknown = _NOTHING_KNOWN, looked_up(codes, _NOTHING_KNOWN)[1]
    new = codes[unknown]
    needed = 1 + int(new.max())
    if known.size < needed:
        known = np.pad(known, (0, max(needed, 2 * known.size) - known.size), constant_values=-1)
    known[new] = names[unknown].cast(pl.String).str.contains(pattern).to_numpy()
    held.by_pattern[pattern] = known
    return looked_up(codes, known)[0]


_NOTHING_KNOWN: Int8Array = np.empty(0, np.int8)


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
    first = looked_up(codes, _NOTHING_KNOWN)[1]
    first = first[np.argsort(codes[first])]
    answers = function(named[first].cast(pl.String)).cast(dtype)
    answer_of = np.zeros(int(codes[first[-1]]) + 1, np.uint32)
    answer_of[codes[first]] = np.arange(first.size, dtype=np.uint32)
    answered = answers[answer_of[codes]] if named is coded else answers[answer_of][coded.to_physical()]
    return answered.alias(names.name)
