"""JSON of unknown origin is a plain value that can be walked, or a `ValueError`.

What texts are made of.

Lines of source files that a trace names: below one folder only, and of source files only.
"""

from pathlib import Path

import pytest

from timesink.untrusted import dashed, is_made_of, numbers_in, read_rows, stated_version
from timesink.untrusted.budget import VARIABLE, ReadLimits
from timesink.untrusted.plain_json import parsed
from timesink.views.lines import source_line


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "pkg").mkdir(parents=True)
    (tmp_path / "work" / "pkg" / "model.py").write_text("def f():\n    return 1  " + "x" * 200 + "\n")
    (tmp_path / "work" / "key.pem").write_text("secret\n")
    (tmp_path / "outside.py").write_text("secret\n")
    (tmp_path / "work" / "link.py").symlink_to(tmp_path / "outside.py")
    return tmp_path / "work"


@pytest.mark.parametrize("file", ["pkg/model.py", "/home/else/pkg/model.py"])
def test_a_line_is_found_by_its_path_or_a_tail_of_it(folder: Path, file: str) -> None:
    text = source_line(folder, file, 2)
    assert text is not None and text.startswith("return 1") and len(text) == 100


@pytest.mark.parametrize(
    "file", ["../outside.py", "link.py", "key.pem", "pkg", "none.py", "a\0.py", "x/" * 3000 + "y.py"]
)
def test_nothing_else_is_shown(folder: Path, file: str) -> None:
    assert source_line(folder, file, 1) is None


@pytest.mark.parametrize("line", [None, 0, -1, 99])
def test_a_line_that_is_not_there_is_not_shown(folder: Path, line: int | None) -> None:
    assert source_line(folder, "pkg/model.py", line) is None
