"""JSON of unknown origin as plain values. Standard library only."""

import json
import math
import re
from pathlib import Path
from typing import Any, Final

from timesink.untrusted.budget import usual_limits, way_out

_OF_PYTHON: Final = 300  # levels of lists and objects that functions which call themselves can walk
_SHALLOW: Final = 20  # brackets, which no budget minds
_TOO_DEEP: Final = "it is nested too deeply"
_LONG = re.compile(r"\d{309}")  # the largest double has 309 digits


def parsed(text: str | bytes, *, strict: bool = True) -> Any:
    """The value of a JSON text; whatever is wrong with it is a `ValueError`.

    Nesting beyond the budget is wrong, and a whole number beyond every double. `strict` refuses control characters
    inside texts. Half of a surrogate pair, which JSON can spell and UTF-8 cannot, becomes the replacement character.
    """
    plain = text if isinstance(text, str) else text.decode("latin-1")
    try:
        value = json.loads(text, strict=strict, parse_int=_whole if _LONG.search(plain) else None)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if plain.count("[") + plain.count("{") > _SHALLOW:
        most = min(usual_limits().nested, _OF_PYTHON)
        if (depth := _depth(value)) > most:
            way = f"; {way_out(depth, most)}" if depth <= _OF_PYTHON else ""
            raise ValueError(f"{_TOO_DEEP}: {depth} levels{way}")
    return _encodable(value) if "\\ud" in plain or "\\uD" in plain else value


def _whole(digits: str) -> int:
    if float(digits) in (math.inf, -math.inf):
        raise ValueError(f"it holds a whole number of {len(digits)} digits")
    return int(digits)


def _depth(value: Any) -> int:
    """Levels of lists and objects."""
    level, depth = [value] if isinstance(value, (dict, list)) else [], 0
    while level:
        members = (holder.values() if isinstance(holder, dict) else holder for holder in level)
        level, depth = [inner for values in members for inner in values if isinstance(inner, (dict, list))], depth + 1
    return depth


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
