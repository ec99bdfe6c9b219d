"""Laws of questions about names.

Small helpers of arrays against NumPy and plain loops.

from __future__ import annotations
"""

import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.model.arrays import flag_at, median
from timesink.model.names import mapped, matches
from timesink.model.trace import Trace, release, release_after, remembered

TEXTS = st.lists(st.none() | st.sampled_from(["", "gemm", "add_", "nccl AllReduce", "é\n"]), max_size=20)


@given(TEXTS)
def test_each_name_is_answered_as_if_it_were_asked_alone(texts: list[str | None]) -> None:
    expected = [None if text is None else len(text) for text in texts]
    for dtype in (pl.Categorical(), pl.String):
        names = pl.Series("name", texts, dtype=dtype)
        answers = mapped(names, lambda distinct: distinct.str.len_chars(), pl.UInt32)
        assert answers.to_list() == expected
        assert answers.name == "name"
        assert answers.dtype == pl.UInt32


def test_a_function_sees_each_name_once_however_often_it_stands() -> None:
    seen: list[str] = []

    def noting(distinct: pl.Series) -> pl.Series:
        seen.extend(distinct)
        return distinct.str.len_bytes()

    answers = mapped(pl.Series("name", ["b", None, "aa", "b", "aa"], dtype=pl.Categorical()), noting, pl.UInt32)
    assert answers.to_list() == [1, None, 2, 1, 2]
    assert sorted(seen) == ["aa", "b"]


@given(st.lists(TEXTS, max_size=4), st.sampled_from(["", "^g", "add|é"]), st.booleans())
def test_a_name_is_answered_alike_whoever_asked_before_and_a_null_one_matches_nothing(
    asked: list[list[str | None]], pattern: str, forgetting: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if forgetting:
            patch.setattr("timesink.model.names._MOST_CODES", 2)
        for texts in asked:
            expected = [text is not None and re.search(pattern, text) is not None for text in texts]
            for dtype in (pl.Categorical(), pl.String):
                answers = matches(pl.Series("name", texts, dtype=dtype), pattern)
                assert (answers.to_list(), answers.name, answers.dtype) == (expected, "name", pl.Boolean)


whole = st.lists(st.integers(-(2**62), 2**62), min_size=1)
real = st.lists(st.floats(-1e300, 1e300), min_size=1)


@given(whole | real)
def test_the_median_is_that_of_numpy(values: list[int] | list[float]) -> None:
    assert median(values) == float(np.median(values)) == median(np.array(values)[::-1])


@given(st.lists(st.booleans()), st.data())
def test_a_flag_is_that_at_its_index_and_false_for_none(flags: list[bool], data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(-1, len(flags) - 1)))
    found = flag_at(np.array(flags, np.bool_), np.array(index, np.int64))
    assert found.tolist() == [at >= 0 and flags[at] for at in index]


def test_a_measure_is_taken_once_until_it_is_released() -> None:
    asked = []

    @release_after("XYZ")
    @remembered
    def measure(trace: Trace) -> int:
        asked.append(trace.source)
        return len(asked)

    one, other = Trace("one", {}), Trace("other", {})
    assert [measure(one), measure(one), measure(other)] == [1, 1, 2]
    release("XYZ", one)
    release("XYZ", one)
    assert [measure(one), measure(other)] == [3, 2]
    assert asked == ["one", "other", "one"]
