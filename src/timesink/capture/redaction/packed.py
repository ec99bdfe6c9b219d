"""Files that may be packed with gzip or xz, by their first bytes, as text in pieces; a damaged one up to the damage."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from timesink.capture.errors import refused
from timesink.untrusted.budget import TRUSTED, usual_limits

_PIECE_BYTES = 1 << 22
_OVERLAP = 300  # bytes: no token and no key is longer
_EVENT = b'"ph"'  # a member that every event of a trace has
_MAGICS = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


class Unpacked:
    """The text of a file, in pieces. `damage` says afterwards how it ended, where it was damaged."""

    def __init__(self, path: Path) -> None:
        self.path, self.damage = path, ""

    def refuse_bomb(self) -> None:
        """Refuse a file that unpacks to more than any capture does: unpacking alone is quick, and stops there."""
        limits, size, unpacked_bytes, events = usual_limits(), self.path.stat().st_size, 0, 0
        most_bytes, most_events = limits.most_unpacked(size), limits.most_events(size)
        for piece in self.raw() if _opener(self.path) is not open else ():
            unpacked_bytes += len(piece)
            events += piece.count(_EVENT)
            if unpacked_bytes > most_bytes or events > most_events:
                what = f"{self.path.name} unpacks to more than {most_bytes:,} bytes or {most_events:,} events"
                raise refused(f"{what}: a decompression bomb", TRUSTED)

    def pieces(self) -> Iterator[str]:
        """Pieces of at most some megabytes. Bytes that are no UTF-8 become replacement characters."""
        return codecs.iterdecode(self.raw(), "utf-8-sig", "replace")

    def raw(self) -> Iterator[bytes]:
        """The same as bytes."""
        self.damage = ""  # of an earlier pass
        with _opener(self.path)(self.path, "rb") as file:
            try:
                while piece := file.read1(_PIECE_BYTES):
                    yield piece
            except _DAMAGE as error:
                self.damage = f"its packing is damaged ({error}); what follows the damage is left out"

    def overlapping(self) -> Iterator[bytes]:
        """The same, each piece with the end of the one before: what is looked for is whole in one of them."""
        tail = b""
        for piece in self.raw():
            yield tail + piece
            tail = (tail + piece)[-_OVERLAP:]

    def whole(self) -> bytes:
        """All of it at once."""
        return b"".join(self.raw())

    def lines(self) -> Iterator[str]:
        """Lines without their ends."""
        rest = ""
        for piece in self.pieces():
            *lines, rest = (rest + piece).split("\n")
            yield from lines
        if rest:
            yield rest


def writes(pieces: Callable[[Unpacked, Any], Iterator[str | bytes]]) -> Callable[[Unpacked, Path, Any], None]:
    """What writes those pieces into a file, packed as its name says."""

    def write(unpacked: Unpacked, target: Path, cleaner: Any) -> None:
        opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(target.suffix, open)
        with opened(target, "wb") as file:
            for piece in pieces(unpacked, cleaner):
                file.write(piece if isinstance(piece, bytes) else piece.encode("utf-8", "replace"))

    return write


def _opener(path: Path) -> Any:
    with path.open("rb") as file:
        head = file.read(6)
    return next((opener for magic, opener in _MAGICS.items() if head.startswith(magic)), open)
