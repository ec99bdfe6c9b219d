"""What a reader gets stays short: README, tutorial, how-to and explanation, in words, and the first line of each page.

CI prints the counts at the end of its tests.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.docs.commands import DOCS, ROOT

import write_pages

TOGETHER: Final = 45_000
HOW_TO: Final = 800
READ: Final = [ROOT / "README.md", *(page for name in write_pages.READERS for page in (DOCS / name).rglob("*.md"))]


def test_a_reader_has_at_most_so_many_words(record_property: Callable[[str, object], None]) -> None:
    counts = write_pages.words()
    record_property("figure", f"words: {', '.join(f'{name} {count:,}' for name, count in counts.items())}")
    record_property("figure", f"words in all: {sum(counts.values()):,} (at most {TOGETHER:,})")
    assert list(counts) == ["README", *write_pages.READERS] and min(counts.values()) > 500
    assert sum(counts.values()) <= TOGETHER, counts


def test_no_how_to_is_longer_than_a_few_minutes() -> None:
    counts = {page.name: len(page.read_text(encoding="utf-8").split()) for page in (DOCS / "how-to").glob("*.md")}
    assert {name: count for name, count in counts.items() if count > HOW_TO} == {}
    assert counts["it-got-slower.md"] <= 600  # for who is in a hurry


@pytest.mark.parametrize("page", sorted(READ), ids=lambda page: page.stem)
def test_the_first_line_of_a_page_says_what_it_is_for(page: Path) -> None:
    """A sentence stands between its title and the first table, list, block or heading."""
    title, _, rest = page.read_text(encoding="utf-8").partition("\n")
    first = rest.strip().partition("\n")[0]
    assert title.startswith("# ")
    assert re.match(r"[\[*`]{0,2}\w", first) and not first.startswith("`" * 3) and len(first.split()) >= 8, first


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_counts_are_printed_with_the_results_of_the_tests(workers: str) -> None:
    asked = ["-q", "-p", "no:cacheprovider", "-n", workers, f"{__file__}::test_a_reader_has_at_most_so_many_words"]
    ran = subprocess.run([sys.executable, "-m", "pytest", *asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(
        r"= figures =+\nwords: README [\d,]+, tutorial .*\nwords in all: [\d,]+ \(at most 45,000\)\n", ran.stdout
    )
