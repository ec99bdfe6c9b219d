"""The documentation as it is published, built once."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.docs.commands import ROOT


@pytest.fixture(scope="session")
def published(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """All pages as Markdown in `docs`, and the site of them in `site`, both made as `make site` makes them."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install mkdocs-material)")

    def build(folder: Path) -> None:
        pages = [str(ROOT / "tools" / "write_pages.py"), "--to", str(folder / "docs")]
        site = ["-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
        for words in (pages, site):
            environment = {**os.environ, "DOCS_DIR": str(folder / "docs")}
            run = subprocess.run(
                [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, run.stderr
            assert "WARNING -" not in run.stderr

    return made_once("published", build)
