"""JSON of unknown origin as plain values. Standard library only."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Final

MOST_NESTED: Final = 100
"""Levels of lists and objects. No file that is taken has more, and what walks a value may call itself as often."""
_TOO_DEEP: Final = "it is nested too deeply"
_LONG = re.compile(r"\d{309}")  # the largest double has 309 digits


def parsed(text: str | bytes, *, strict: bool = True) -> Any:
    """The value of a JSON text; whatever is wrong with it is a `ValueError`.

    Nesting beyond `MOST_NESTED` is wrong, and a whole number beyond every double. `strict` refuses control characters
    inside texts. Half of a surrogate pair, which JSON can spell and UTF-8 cannot, becomes the replacement character.
    """
    plain = text if isinstance(text, str) else text.decode("latin-1")
    try:
        value = json.loads(text, strict=strict, parse_int=_whole if _LONG.search(plain) else None)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if plain.count("[") + plain.count("{") > MOST_NESTED and _is_too_deep(value):
        raise ValueError(_TOO_DEEP)
    return _encodable(value) if "\\ud" in plain or "\\uD" in plain else value


def _whole(digits: str) -> int:
    if float(digits) in (math.inf, -math.inf):
        raise ValueError(f"it holds a whole number of {len(digits)} digits")
    return int(digits)


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_NESTED):
        members = (holder.values() if isinstance(holder, dict) else holder for holder in level)
        level = [inner for values in members for inner in values if isinstance(inner, (dict, list))]
        if not level:
            return False
    return True


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_encodable(key): _encodable(inner) for key, inner in value.items()}
        case list():
            return [_encodable(inner) for inner in value]
        case _:
            return value


def document(path: Path) -> Any:
    """The value in a file. `OSError` where it cannot be opened, `ValueError` where it is no JSON in UTF-8."""
    return parsed(path.read_text("utf-8"))
