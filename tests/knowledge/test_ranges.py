"""Every name of a range matches the example it must match, and not the one it must not; both engines agree."""

from __future__ import annotations

import polars as pl
import pytest

from timesink.knowledge import ranges
from timesink.model.names import matches

PATTERNS = {
    name: value
    for name, value in vars(ranges).items()
    if name.isupper() and name != "EXAMPLES" and isinstance(value, str)
}


def test_every_pattern_has_its_examples() -> None:
    assert set(PATTERNS.values()) == set(ranges.EXAMPLES)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_matches_its_example_and_not_the_other(name: str) -> None:
    does, does_not = ranges.EXAMPLES[PATTERNS[name]]
    assert matches(pl.Series([does, does_not]), PATTERNS[name]).to_list() == [True, False]
