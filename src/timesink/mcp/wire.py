"""What an agent sends, made such that it is answered: JSON can spell half of a surrogate pair, which no text holds, and
the SDK drops a request with one in silence."""

from __future__ import annotations

import json
import os
import sys
from io import BufferedReader, RawIOBase, TextIOWrapper
from typing import Any


def without_halves(line: bytes) -> bytes:
    """The line with the replacement character for each escape of half a surrogate pair."""
    if rb"\ud" not in line.lower():
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line  # for the SDK to refuse
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode() + b"\n"


def mend_requests() -> None:
    """Have requests read so from now on. Programs that the server starts see no input, as the SDK would have it."""
    wire = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = TextIOWrapper(BufferedReader(_Mended(wire)), encoding="utf-8", errors="replace")


class _Mended(RawIOBase):
    def __init__(self, wire: Any) -> None:
        self._wire, self._left = wire, b""

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, into: Any) -> int:
        """Bytes of one line, or of what is left of it."""
        self._left = self._left or without_halves(self._wire.readline())
        count = min(len(into), len(self._left))
        into[:count], self._left = self._left[:count], self._left[count:]
        return count
