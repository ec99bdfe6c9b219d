"""The documentation builds without a warning and needs no network to be read."""

import re
import subprocess
import sys
from pathlib import Path

import lxml.html
import pytest

pytestmark = pytest.mark.slow  # builds the site
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install mkdocs-material)")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING -" not in built.stderr
    return target


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in sorted(DOCS.rglob("*.md")):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = "//script/@src | //img/@src | //iframe/@src | //link[@rel='stylesheet' or @rel='preload']/@href"
    for page in sorted(site.rglob("*.html")):
        sources = lxml.html.parse(str(page)).xpath(fetched)
        assert [source for source in sources if re.match(r"(https?:)?//", source)] == []


def test_every_page_is_in_the_navigation_or_linked_from_it() -> None:
    """Of at most forty entries."""
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(listed) <= 40
    reached = {DOCS / page for page in listed}
    for page in sorted(reached):
        links = re.findall(r"\]\(([^)#:]+\.md)", page.read_text(encoding="utf-8"))
        reached |= {(page.parent / link).resolve() for link in links}
    assert sorted(str(page.relative_to(DOCS)) for page in set(DOCS.rglob("*.md")) - reached) == []
