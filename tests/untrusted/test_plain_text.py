"""What texts are made of."""

from __future__ import annotations

import pytest

from timesink.untrusted import dashed, is_made_of, numbers_in, stated_version

HELP = {
    "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0": "2025.3.1.90-253135822126v0",
    "NVIDIA (R) Nsight Compute\nVersion 2025.1.0.0 (build 35237751) (public-release)": "2025.1.0.0",
    "NVIDIA-SMI version  : 570.86.10\nNVML version  : 570.86": "570.86.10",
    "no version here.": "",
}


@pytest.mark.parametrize("said", HELP)
def test_a_version_is_the_longest_number_with_dots(said: str) -> None:
    assert stated_version(said) == HELP[said]


def test_numbers_order_versions_as_people_do() -> None:
    assert numbers_in("nsight-systems/2025.10.1") > numbers_in("nsight-systems/2025.9.2")
    assert numbers_in("²٣ none") == ()


def test_a_plain_name_holds_nothing_else() -> None:
    assert is_made_of("a-b_1", "_-")
    assert not any(is_made_of(text, "_-") for text in ("a b", "é", "a/b", "a\n"))


def test_what_is_no_name_becomes_one() -> None:
    assert dashed("tests/test_a.py::test_b[x y]", "_.-") == "tests-test_a.py-test_b-x-y"
    assert dashed("a--b", "_.") == "a-b"
    assert dashed("::", "_") == ""
