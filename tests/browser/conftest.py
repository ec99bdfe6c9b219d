"""Chromium without a network; the tests of this folder skip where it, or what drives it, is absent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.browser.pages import launched


@dataclass
class Opened:
    """A page that was opened, what it asked for, and what it complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for the tests of a module, with an empty profile. It ends with them: it holds an event loop."""
    if shutil.which("chromium") is None:
        pytest.skip("Chromium is not on this machine (Debian: apt-get install chromium)")
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    with launched(str(tmp_path_factory.mktemp("profile"))) as browser:
        yield browser


@pytest.fixture
def opened(context: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens HTML text from a file, at a width and in a colour scheme."""
    pages = []

    def open_text(text: str, *, width: int = 1280, scheme: str = "light") -> Opened:
        path = tmp_path / f"report{len(pages)}.html"
        path.write_text(text, encoding="utf-8")
        page = context.new_page()
        pages.append(page)
        shown = Opened(page)
        page.on("request", lambda request: shown.requests.append(request.url))
        page.on("console", lambda message: shown.complaints.append(message.text))
        page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(path.as_uri())
        return shown

    yield open_text
    for page in pages:
        page.close()
