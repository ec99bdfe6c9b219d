"""Every pattern that knowledge declares matches its examples and not the others, in each engine that can read it."""

import importlib
import pkgutil
import re
from contextlib import suppress
from copy import copy

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from polars.exceptions import ComputeError

from timesink import knowledge
from timesink._native import may_match
from timesink.knowledge import Pattern
from timesink.records import field_names
from timesink.startup import regex


def patterns_in(name: str, value: object) -> dict[str, Pattern]:
    """The pattern of that name, or those of a mapping, a tuple or a record by names that begin with it."""
    if isinstance(value, Pattern):
        return {name: value}
    if isinstance(value, Struct):
        value = {key: getattr(value, key) for key in field_names(value)}
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (tuple, list)) else ()
    within: dict[str, Pattern] = {}
    for key, part in parts:
        within |= patterns_in(f"{name}.{key}", part)
    return within


def declared() -> dict[str, Pattern]:
    """Every pattern of every module of knowledge, by the first module and variable that has it."""
    found: dict[str, Pattern] = {}
    for info in pkgutil.walk_packages(knowledge.__path__, f"{knowledge.__name__}."):
        found |= patterns_in(info.name.partition(".knowledge.")[2], vars(importlib.import_module(info.name)))
    first = {id(pattern): name for name, pattern in reversed(found.items())}
    return {name: pattern for name, pattern in found.items() if first[id(pattern)] == name}


PATTERNS = declared()
ANY_TEXT = {
    "logs.MESSAGE",
    "logs.GUARD",
    "profiler_texts.MEMORY_TIMELINE_ROWS",
    "kernel_symbols._QUALIFIED",
    "metric_names.SAMPLED_IN",
}
"""They find a part of a line that another pattern has chosen, so there is nothing that they must not match."""


def test_a_regex_is_compiled_when_it_is_first_used_and_then_does_what_that_of_re_does() -> None:
    late, plain = regex(r"(\d+)x", re.IGNORECASE), re.compile(r"(\d+)x", re.IGNORECASE)
    assert "search" not in vars(late)
    assert late.findall("2x 3X") == plain.findall("2x 3X") == ["2", "3"]
    assert late.sub("", "2x3X4") == plain.sub("", "2x3X4")
    assert (late.pattern, copy(late).flags) == (plain.pattern, plain.flags)
    broken = regex("(")
    with pytest.raises(re.error):
        broken.search("")


def test_every_subject_declares_patterns() -> None:
    assert len(PATTERNS) > 100
    subjects = {name.partition(".")[0] for name in PATTERNS}
    assert subjects >= {"calls", "collectives", "frames", "kernels", "logs", "metric_names", "operators", "ranges"}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_matches_its_examples_and_not_the_others(name: str) -> None:
    pattern = PATTERNS[name]
    assert pattern.means and pattern.does
    assert bool(pattern.does_not) != (name in ANY_TEXT)
    texts, expected = [*pattern.does, *pattern.does_not], [True] * len(pattern.does) + [False] * len(pattern.does_not)
    answers = []
    with suppress(ComputeError):  # where it looks around itself, which the engine of Polars cannot
        answers.append(pl.Series(texts, dtype=pl.String).str.contains(pattern).to_list())
    with suppress(re.error):  # where it has a flag in the middle, which `re` refuses
        answers.append([re.search(pattern, text) is not None for text in texts])
    assert answers
    assert all(answer == expected for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_a_pattern_matches_is_never_ruled_out_by_its_words(name: str, data: st.DataObject) -> None:
    pattern = PATTERNS[name]
    assert all(may_match(pattern, text) for text in pattern.does)
    if may_match(pattern, ""):  # no word has to be there, so nothing is ruled out
        return
    with suppress(re.error):
        assert may_match(pattern, data.draw(st.from_regex(pattern)))


PIECES = st.one_of(
    st.sampled_from(
        ["abc", "xyz", "Kern", "ab", "a", r"\d", r"\w", r"\.", ".", "[a-c]", "[^]x]", r"[\]y]", "^", "$", r"\b"]
    ),
    st.text("abcK", min_size=1, max_size=5),
)
EXPRESSIONS = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(
            st.sampled_from(["(", "(?:", "(?i:", "(?=", "(?!", "(?<!abc)("]),
            inner,
            st.sampled_from(["", "?", "*", "+", "{0,2}", "+?"]),
        ).map(lambda parts: f"{parts[0]}{parts[1]}){parts[2]}"),
        st.tuples(inner, inner).map("|".join),
        inner.map(lambda text: f"{text}?" if text[-1:].isalnum() else text),
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["", "(?i)"]), EXPRESSIONS, st.text("abcxyzKern. ſK", max_size=12))
def test_words_rule_out_only_what_does_not_match(flag: str, expression: str, text: str) -> None:
    with suppress(re.error):
        found = re.search(flag + expression, text)
        assert may_match(flag + expression, text) or found is None


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("^(?:cuda|hip)Launch\\w*|aten::fill_$", "cudaMemcpy, aten::fill"),
        ("(?i)soft_?max(?:es)?", "Max"),
        ("(foo|bars)+", "fo bar"),
        ("[a-z]needed?", "no nee"),
    ],
)
def test_words_rule_out_texts_without_any_of_them(expression: str, text: str) -> None:
    assert not may_match(expression, text)


@pytest.mark.parametrize("text", ["KERN", "\u212aern", "\udc80"])
def test_what_cannot_be_ruled_out_may_match(text: str) -> None:
    assert may_match("(?i)kern", text)
    assert may_match("ab|kern", text)  # a short word tells nothing apart
