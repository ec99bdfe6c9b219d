"""What unpacking one file may cost, for all that open one: readers and redaction. Standard library only."""

from __future__ import annotations

from typing import Final

BOMB_FROM_BYTES: Final = 64 << 20
"""Less may be a repetitive trace."""
UNPACKING_RATIO: Final = 150
"""52 to 1 was seen of traces, three times as much is allowed; deflate's maximum is 1,032."""
TRUSTED: Final = "unpack it yourself if you trust it"
"""The way out: a plain file has no ratio."""


def most_unpacked(packed_bytes: int, ratio: int = UNPACKING_RATIO) -> int:
    """Bytes that so many packed ones may unpack to; more are a decompression bomb."""
    return max(BOMB_FROM_BYTES, ratio * packed_bytes)
