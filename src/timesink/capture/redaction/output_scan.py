"""A last look at a redacted file: nothing that was learnt, and nothing with the shape of a secret, may be in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import private_texts

_CERTAIN = tuple(
    (shape, b"@" if "@" in shape else b"", re.compile(shape.encode())) for shape in private_texts.CERTAIN_SHAPES
)
_SHORTEST = 5  # bytes of a name that binary data do not hold by chance
_OVERLAP = 300


def found_in(path: Path, names: Iterable[str]) -> list[str]:
    """What is in the file, one phrase for each kind; what it is called is not repeated."""
    looked_for = [name for name in names if len(name) >= _SHORTEST]
    known = re.compile(private_texts.whole_words(looked_for).encode(), re.IGNORECASE) if looked_for else None
    found: set[str] = set()
    tail = b""
    for piece in Unpacked(path).raw():
        text = tail + piece
        if known is not None and known.search(text):
            found.add("a name of a person or a machine")
        found |= {shape.means for shape, sign, pattern in _CERTAIN if sign in text and pattern.search(text)}
        tail = text[-_OVERLAP:]
    return sorted(found)
