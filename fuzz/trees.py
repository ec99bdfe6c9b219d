"""Mutations of a tree of plain values: what a field holds, which fields there are, how often, how deep."""

from __future__ import annotations

import json
import math
import random
from typing import Any

HUGE = 1 << 63
HOSTILE_TEXT = (
    "",
    "\x1b]52;c;cm0=\x07",
    "\n::error::boom",
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "../../../../etc/passwd",
    "/dev/zero",
    "a\u202eb\x00\ud800",
    "%s%n{0}${HOME}",
    "x" * 70_000,
)
EXTREMES: tuple[Any, ...] = (
    *(0, -1, 1, HUGE - 1, HUGE, -HUGE, 2 * HUGE, 10**400, 1 << 31, -(1 << 31)),
    *(0.1, -0.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf),
    *(None, True, False, [], {}, [[]], {"": {}}, "NaN", "1e999", "18446744073709551616", "-5"),
    *HOSTILE_TEXT,
)
RAW = (
    b"[" * 5_000,
    b'{"a":' * 5_000,
    b"]}" * 500,
    b"\xff\xfe\x00",
    b'"',
    b"\x00" * 4_096,
    b"NaN",
    b"1e999",
    b"9" * 5_000,
    b"\xed\xa0\x80",
    b'"\\ud800"',
    b"A" * 70_000,
)
_DEPTHS = (10, 600, 1_500, 20_000)  # 600 can be parsed, and not walked by a function that calls itself


def mutated_tree(root: Any, rng: random.Random) -> Any:
    """The tree with one change at a random place. Containers on the way there are changed in place."""
    holder, key = _place(root, rng)
    if holder is None:
        return rng.choice(EXTREMES)
    value = holder[key]
    match rng.randrange(10):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder[key:key] = [value] * rng.choice((1, 1, 50))  # duplicate ids, events within one another
        case 2:
            other_holder, other_key = _place(root, rng)
            holder[key] = value if other_holder is None else other_holder[other_key]
        case 3 if isinstance(value, (int, float)) and not isinstance(value, bool):
            holder[key] = rng.choice((-value, value + 1, value - 1, value * 10**6, value + HUGE, str(value)))
        case 4:
            holder[key] = _nested(rng)
        case _:
            holder[key] = rng.choice(EXTREMES)
    return root


def json_text(tree: Any) -> bytes:
    """JSON, NaN and infinity included; what was marked as deep is written as brackets."""
    text = json.dumps(tree, default=lambda marked: f"\0deep{marked.depth}" if isinstance(marked, Deep) else None)
    for depth in _DEPTHS:
        text = text.replace(f'"\\u0000deep{depth}"', "[" * depth + "]" * depth)
    return text.encode("utf-8", "surrogatepass")


class Deep:
    """Nesting deeper than Python can build or write."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __reduce__(self) -> Any:
        return (list, ())


def _nested(rng: random.Random) -> Deep:
    return Deep(rng.choice(_DEPTHS))


def _place(root: Any, rng: random.Random) -> tuple[Any, Any]:
    """A random place: the container and the key or index in it; deep places are as likely as shallow ones."""
    holder, key, here = None, None, root
    for _ in range(rng.choice((1, 2, 3, 3, 4, 4, 5, 6))):
        if isinstance(here, dict) and here:
            holder, key = here, rng.choice(list(here))
        elif isinstance(here, list) and here:
            holder, key = here, rng.randrange(len(here))
        else:
            break
        here = holder[key]
    return holder, key
