"""JSON of unknown origin is a plain value that can be walked, or a `ValueError`."""

from __future__ import annotations

import pytest

from timesink.untrusted.plain_json import MOST_NESTED, parsed


@pytest.mark.parametrize("opened", ["[]", '{"a":}'])
def test_nesting_beyond_what_a_walk_can_follow_is_an_error(opened: str) -> None:
    before, after = opened[:-1], opened[-1:]

    def nested(depth: int) -> str:
        return before * depth + ("1" if before != "[" else "") + after * depth

    parsed(nested(MOST_NESTED))
    for depth in (MOST_NESTED + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parsed(nested(depth))
        with pytest.raises(ValueError, match="nested too deeply"):
            parsed(nested(depth).encode())


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
