"""Questions about names, asked once per distinct name instead of once per row."""

from collections.abc import Callable

import numpy as np
import polars as pl

from timesink._native import looked_up, may_match
from timesink.model.arrays import BoolArray, Int8Array, IntArray
from timesink.model.schema import DType, nulls

_CODED = pl.Categorical()
_MOST_CODES = 1 << 18  # beyond so many distinct names in one process, answers are forgotten
_MOST_TEXTS, _MOST_TOGETHER = 12, 10_000  # sets of names; names in one


class _Answers:
    """What is known of names by pattern: for each code of a category no (0), yes (1), or not asked yet (-1).

    A code stands for one name as long as any series holds it, and `anchor` does.
    """

    def __init__(self) -> None:
        self.anchor = pl.Series([""], dtype=_CODED)
        self.by_pattern: dict[str, Int8Array] = {}
        self._texts: dict[bytes, tuple[pl.Series, str]] = {}

    def texts(self, names: pl.Series, codes: IntArray) -> tuple[pl.Series, str]:
        """The names of these codes, each and joined: one pattern after another is asked of the same few ones."""
        if codes.size > _MOST_TOGETHER:
            return names.cast(pl.String), ""
        asked = codes.tobytes()
        known = self._texts.get(asked)
        if known is None:
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            texts = names.cast(pl.String)
            known = self._texts[asked] = texts, "\n".join(texts)
        return known


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
    texts, joined = held.texts(names[unknown], new)
    asked = not joined or may_match(pattern, joined)
    known[new] = texts.str.contains(pattern).to_numpy() if asked else False
    held.by_pattern[pattern] = known
    return looked_up(codes, known)[0]


_NOTHING_KNOWN: Int8Array = np.empty(0, np.int8)


def of_each(names: pl.Series, function: Callable[[str], object], dtype: DType) -> pl.Series:
    """`function` of each name as a text, computed once for each distinct one."""
    return mapped(names, lambda some: pl.Series([function(name) for name in some.to_list()]), dtype)


def mapped(names: pl.Series, function: Callable[[pl.Series], pl.Series], dtype: DType) -> pl.Series:
    """`function` of each name, computed on the distinct names only."""
    if names.null_count() == len(names):
        return nulls(dtype, len(names), names.name)
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
