"""JSON of unknown origin is a plain value that can be walked, or a `ValueError`."""

from __future__ import annotations

import pytest

from timesink.untrusted.budget import VARIABLE, ReadLimits
from timesink.untrusted.plain_csv import read_rows
from timesink.untrusted.plain_json import parsed


@pytest.mark.parametrize("opened", ["[]", '{"a":}'])
def test_nesting_beyond_what_a_walk_can_follow_is_an_error(opened: str) -> None:
    before, after = opened[:-1], opened[-1:]

    def nested(depth: int) -> str:
        return before * depth + ("1" if before != "[" else "") + after * depth

    parsed(nested(ReadLimits().nested))
    for depth in (ReadLimits().nested + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parsed(nested(depth))
        with pytest.raises(ValueError, match="nested too deeply"):
            parsed(nested(depth).encode())


def test_the_budget_allows_deeper_nesting_and_longer_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    deep, cell = "[" * 250 + "]" * 250, "a" * 200_000
    with pytest.raises(ValueError, match=f"250 levels; if you trust the file, set {VARIABLE}=3"):
        parsed(deep)
    with pytest.raises(ValueError, match=f"more than 131,072 characters; if you trust the file, set {VARIABLE}=2"):
        [*read_rows(cell)]
    monkeypatch.setenv(VARIABLE, "3")
    assert parsed(deep)
    assert [*read_rows(cell)] == [[cell]]
    with pytest.raises(ValueError, match=r"301 levels$"):
        parsed("[" * 301 + "]" * 301)


def test_many_brackets_are_no_nesting() -> None:
    assert parsed('["' + "[{" * 1_000 + '"]') == ["[{" * 1_000]
    assert len(parsed("[" + "[{}]," * 1_000 + "[]]")) == 1_001


def test_half_of_a_surrogate_pair_is_replaced_and_a_whole_pair_is_one_character() -> None:
    assert parsed('{"a\\ud800": ["\\ud83d\\ude00"]}') == {"a\ufffd": ["\U0001f600"]}


@pytest.mark.parametrize("text", ["", "{", '"\n"', "9" * 5_000, b"\xff"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # each cause has its own words
        parsed(text)


def test_a_whole_number_beyond_every_double_is_an_error_and_no_other_is_touched() -> None:
    for digits in (f"1{'0' * 309}", f"-1{'0' * 5000}"):
        with pytest.raises(ValueError, match="a whole number of"):
            parsed(f"[{digits}]")
    assert parsed(f"[{2**63}, 1{'0' * 300}]") == [2**63, 10**300]
    assert parsed(f'["{"7" * 400}", 12]') == ["7" * 400, 12]
