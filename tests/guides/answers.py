"""What commands answer, as programs read it."""

import json
from typing import Any

import pytest

from timesink.cli.app import run


def sheets(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, list[dict[str, Any]]]:
    """The sheets of a command's JSON."""
    capsys.readouterr()
    assert run([*map(str, words), "-f", "json"]) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capsys.readouterr().out)
    return found
