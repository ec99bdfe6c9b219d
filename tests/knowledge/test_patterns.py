"""Every pattern that knowledge declares matches its examples and not the others, in each engine that can read it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from contextlib import suppress
from copy import copy

import polars as pl
import pytest
from polars.exceptions import ComputeError

from timesink import knowledge
from timesink.knowledge.pattern import Pattern, patterns_in, regex


def declared() -> dict[str, Pattern]:
    """Every pattern of every module of knowledge, by module and variable."""
    found = {}
    for info in pkgutil.walk_packages(knowledge.__path__, f"{knowledge.__name__}."):
        for name, value in vars(importlib.import_module(info.name)).items():
            for number, pattern in enumerate(patterns_in(value)):
                found[f"{info.name.partition('.knowledge.')[2]}.{name}.{number}"] = pattern
    return found


PATTERNS = declared()
ANY_TEXT = {"logs.MESSAGE.0", "logs.GUARD.0", "profiler_texts.MEMORY_TIMELINE_ROWS.0"}
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
    assert subjects >= {"calls", "collectives", "frames", "kernels", "logs", "metric_names", "op_names", "ranges"}


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
