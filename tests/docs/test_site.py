"""The documentation builds without a warning and needs no network to be read."""

import re
from pathlib import Path

import lxml.html
import pytest
from tests.docs.commands import ROOT

pytestmark = pytest.mark.slow  # builds the site


def test_every_page_is_on_the_site(published: Path) -> None:
    for page in sorted((published / "docs").rglob("*.md")):
        assert (published / "site" / page.relative_to(published / "docs").with_suffix(".html")).is_file()


def test_the_site_fetches_nothing_from_elsewhere(published: Path) -> None:
    fetched = "//script/@src | //img/@src | //iframe/@src | //link[@rel='stylesheet' or @rel='preload']/@href"
    for page in sorted((published / "site").rglob("*.html")):
        sources = lxml.html.parse(str(page)).xpath(fetched)
        assert [source for source in sources if re.match(r"(https?:)?//", source)] == []


def test_every_page_is_in_the_navigation_or_linked_from_it(published: Path) -> None:
    """Of at most forty entries."""
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(listed) <= 40
    docs = published / "docs"
    reached = {docs / page for page in listed}
    for page in sorted(reached):
        links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text(encoding="utf-8"))
        reached |= {(page.parent / link).resolve() for link in links}
    assert sorted(str(page.relative_to(docs)) for page in set(docs.rglob("*.md")) - reached) == []
