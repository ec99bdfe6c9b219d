"""Laws of questions about names."""

from __future__ import annotations

import polars as pl
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


def test_a_null_name_matches_nothing() -> None:
    names = pl.Series("name", ["gemm", None, "copy"], dtype=pl.Categorical())
    assert matches(names, "").to_list() == [True, False, True]
    assert matches(names, "^g").to_list() == [True, False, False]
