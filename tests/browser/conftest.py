"""Chromium without a network; the tests of this folder skip where it, or what drives it, is absent."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.browser.pages import launched, needs_browser

FOLDER = Path(__file__).parent


@dataclass
class Opened:
    """A page that was opened, what it asked for, and what it complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


_started = ExitStack()
_browsers: list[Any] = []


@pytest.fixture
def context(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One browser, with an empty profile, for as many tests of this folder as follow one another in a process."""
    needs_browser()
    if not _browsers:
        _browsers.append(_started.enter_context(launched(str(tmp_path_factory.mktemp("profile")))))
    return _browsers[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the browser before a test of another folder: it holds an event loop, in which no other can start."""
    if nextitem is None or nextitem.path.parent != FOLDER:
        _browsers.clear()
        _started.close()


@pytest.fixture
def opened(context: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Opens HTML text from a file, at a width and in a colour scheme; `script` runs before those of the page."""
    pages = []

    def open_text(text: str, *, width: int = 1280, scheme: str = "light", script: str = "") -> Opened:
        path = tmp_path / f"report{len(pages)}.html"
        path.write_text(text, encoding="utf-8")
        page = context.new_page()
        pages.append(page)
        shown = Opened(page)
        page.on("request", lambda request: shown.requests.append(request.url))
        page.on("console", lambda message: shown.complaints.append(message.text))
        page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        page.add_init_script(script)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(path.as_uri())
        return shown

    yield open_text
    for page in pages:
        page.close()
