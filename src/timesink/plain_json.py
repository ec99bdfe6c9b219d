"""JSON of unknown origin as plain values. Standard library only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def parsed(text: str | bytes, *, strict: bool = True) -> Any:
    """The value of a JSON text; whatever is wrong with it is a `ValueError`, nesting beyond the stack too.

    `strict` refuses control characters inside texts.
    """
    try:
        return json.loads(text, strict=strict)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def document(path: Path) -> Any:
    """The value in a file. `OSError` where it cannot be opened, `ValueError` where it is no JSON in UTF-8."""
    return parsed(path.read_text("utf-8"))
