"""JSON of unknown origin as plain values. Standard library only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parsed(text: str | bytes, *, strict: bool = True) -> Any:
    """The value of a JSON text; whatever is wrong with it is a `ValueError`, nesting beyond the stack too.

    `strict` refuses control characters inside texts. Half of a surrogate pair, which JSON can spell and UTF-8 cannot,
    becomes the replacement character.
    """
    try:
        value = json.loads(text, strict=strict)
        escapes = text if isinstance(text, str) else text.decode("latin-1")
        return _encodable(value) if _SURROGATE.search(escapes) else value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_encodable(key): _encodable(part) for key, part in value.items()}
        case list():
            return [_encodable(part) for part in value]
        case _:
            return value


def document(path: Path) -> Any:
    """The value in a file. `OSError` where it cannot be opened, `ValueError` where it is no JSON in UTF-8."""
    return parsed(path.read_text("utf-8"))
