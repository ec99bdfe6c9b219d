"""Laws of questions about names."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.model.names import mapped, matches

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
