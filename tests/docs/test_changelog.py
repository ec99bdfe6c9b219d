"""The changelog is told in sentences that somebody reads to their end."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = 30
FRAGMENTS = {path.name: path.read_text() for path in sorted((ROOT / "changes").glob("*"))}
ENTRIES = [line[2:] for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]


def is_a_short_sentence(text: str) -> bool:
    return len(text.split()) <= WORDS and text.endswith(".") and ". " not in text and "\n" not in text


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_is_one_short_sentence(name: str) -> None:
    assert name.endswith(".md") and is_a_short_sentence(FRAGMENTS[name].removesuffix("\n"))


def test_every_entry_is_one_short_sentence() -> None:
    assert ENTRIES and [entry for entry in ENTRIES if not is_a_short_sentence(entry)] == []
