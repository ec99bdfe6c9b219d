"""What the tests of this folder ask of a page that is open."""

from __future__ import annotations

from typing import Any

import pytest


def violations(shown: Any) -> list[str]:
    """The rules of axe that the page breaks."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    return [found["id"] for found in axe.Axe().run(shown.page).response["violations"]]
