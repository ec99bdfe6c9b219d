"""Files nobody vouches for: which may be opened, and their text in pieces of a few megabytes, within a budget.

A pipe, a device or a socket would keep a reader waiting for ever, so only files and folders are opened. Gzip, xz and
Zstandard are known by their first bytes; any other file is read as it is. A file that was cut
off or damaged yields what came before the damage, and says how it ended; one that unpacks to more than its budget, or
to more than any real trace would (a decompression bomb), is refused.
"""

import errno
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from timesink._native import usual_threads
from timesink.errors import UnreadableTrace
from timesink.untrusted import shortened, spending
from timesink.untrusted.budget import FEWER, TRUSTED, ReadLimits, crowded, way_out

GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"
ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
_HEAD_STEP = 64  # bytes of a packed head that are lost with the first damaged one
_PIECE_BYTES = 1 << 20
_PACKED_BYTES = 256 << 10  # read at once; what a damaged stream may take with it
_WINDOW_BYTES = 128 << 20  # the largest dictionary allowed to a stream: what zstd itself takes without being asked to


def unpacked_head(head: bytes, most_bytes: int) -> bytes:
    """The beginning of the text of a file that begins with `head`, up to where its packing is damaged."""
    packing = _packing(head)
    if packing == "Zstandard":
        return _zstandard_head(head, most_bytes)
    if not packing:
        return head[:most_bytes]
    _, damage, open_member = _decompressor(packing)
    text, member = b"", open_member()
    with suppress(damage, EOFError):
        for at in range(0, len(head), _HEAD_STEP):
            text += member.decompress(head[at : at + _HEAD_STEP], most_bytes)
            if len(text) >= most_bytes or member.eof:
                break
    return text[:most_bytes]


def _zstandard_head(head: bytes, most_bytes: int) -> bytes:
    import zstandard

    with suppress(zstandard.ZstdError):
        stream = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(head)
        return stream.read(most_bytes)
    return b""


def _packing(head: bytes) -> str:
    """What a file that begins so is packed with: gzip, xz, Zstandard, or "" for a plain file."""
    magics = {GZIP_MAGIC: "gzip", _XZ_MAGIC: "xz", ZSTANDARD_MAGIC: "Zstandard"}
    return next((packing for magic, packing in magics.items() if head.startswith(magic)), "")


def unpacked_whole(path: Path, limits: ReadLimits, remedy: str) -> tuple[bytes, str]:
    """The text of a file that has to be held in memory whole, and how its packing was damaged ("" where it was not).

    `UnreadableTrace`, with the remedy given, for a file that is larger than `limits.most_held_bytes`.
    """
    most_bytes = limits.most_held_bytes
    if path.stat().st_size > most_bytes:
        raise UnreadableTrace(path, f"larger than {most_bytes:,} bytes", remedy=remedy)
    file = UnpackedFile(path, replace(limits, unpacked_bytes=most_bytes))
    return (b"".join(file) if file.packing else path.read_bytes()), file.problem


@dataclass(slots=True)
class UnpackedFile:
    """Iterates over the text of `path`, or over what of it is `held`. Afterwards `problem` says how a packed file was
    damaged, if it was."""

    path: Path
    limits: ReadLimits
    held: bytes = b""
    unpacked_bytes: int = 0
    problem: str = ""

    @property
    def packing(self) -> str:
        """What the file is packed with: gzip, xz, Zstandard, or "" for a plain file."""
        with self.path.open("rb") as stream:
            return _packing(stream.read(len(_XZ_MAGIC)))

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """The pieces of the text, in order. Each is valid until the next is asked for."""
        if self.held:
            return iter((self.held,))
        packing = self.packing
        if not packing:
            return self._plain()
        pieces = self._frames() if packing == "Zstandard" else self._members(packing)
        # On one thread, with others that read beside it, to hand a piece over takes longer than it wins.
        return _ahead(pieces) if usual_threads() > 1 else pieces

    def _plain(self) -> Iterator[bytes | memoryview]:
        piece = memoryview(bytearray(_PIECE_BYTES))
        with self.path.open("rb", buffering=0) as stream:
            while count := stream.readinto(piece):
                self._spend(count)
                yield piece[:count]

    def _members(self, packing: str) -> Iterator[bytes]:
        """The pieces of a gzip or xz file, which may hold several members one after the other."""
        magic, damage, open_member = _decompressor(packing)
        consumed = 0
        with self.path.open("rb", buffering=0) as stream:
            packed = stream.read(_PACKED_BYTES)
            while packed.startswith(magic):
                member = open_member()
                while not member.eof:
                    if member.needs_input and not packed and not (packed := stream.read(_PACKED_BYTES)):
                        self.problem = f"the {packing} stream ends before its end mark"
                        return
                    consumed += len(packed)
                    try:
                        piece = member.decompress(packed, _PIECE_BYTES)
                    except damage as error:
                        self.problem = f"the {packing} stream is damaged ({error})"
                        return
                    packed = b""
                    self._spend(len(piece), consumed, packing)
                    yield piece
                packed = member.unused_data
                consumed -= len(packed)
                if len(packed) < len(magic):
                    packed += stream.read(_PACKED_BYTES)
            if packed.strip(b"\0"):
                self.problem = f"bytes that are not {packing} follow the {packing} stream"

    def _frames(self) -> Iterator[bytes]:
        """The pieces of a Zstandard file."""
        import zstandard

        opening = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        with self.path.open("rb") as packed, opening.stream_reader(packed, read_across_frames=True) as stream:
            try:
                while piece := stream.read(_PIECE_BYTES):
                    self._spend(len(piece), packed.tell(), "Zstandard")
                    yield piece
            except zstandard.ZstdError as error:
                self.problem = f"the Zstandard stream is damaged ({error})"

    def _spend(self, count: int, packed_bytes: int | None = None, packing: str = "") -> None:
        """Count unpacked bytes against the budget. `UnreadableTrace` once they exceed it, or a bomb shows."""
        self.unpacked_bytes += count
        if self.unpacked_bytes > self.limits.unpacked_bytes:
            message = f"the file unpacks to more than {self.limits.unpacked_bytes:,} bytes"
            raise UnreadableTrace(self.path, message, remedy=way_out(self.unpacked_bytes, self.limits.unpacked_bytes))
        if packed_bytes is not None and self.unpacked_bytes > self.limits.most_unpacked(packed_bytes):
            size = f"{packed_bytes:,} bytes of {packing} unpack to more than {self.unpacked_bytes:,}"
            raise UnreadableTrace(self.path, f"{size}: a decompression bomb", remedy=TRUSTED)


def _decompressor(packing: str) -> tuple[bytes, Any, Callable[[], Any]]:
    """The first bytes of a stream, the error of a damaged one, and what makes a decompressor (as `lzma` has them)."""
    if packing == "gzip":
        from isal import igzip_lib

        return GZIP_MAGIC, igzip_lib.IsalError, partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP)
    import lzma

    return _XZ_MAGIC, lzma.LZMAError, partial(lzma.LZMADecompressor, memlimit=_WINDOW_BYTES)


def _ahead(pieces: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same pieces, the next one unpacked by a second thread while this one is used.

    No name holds what is waited for: an error would hold this frame, which held it, until cycles are collected.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = [pool.submit(next, pieces, None)]
        while (piece := coming.pop().result()) is not None:
            coming.append(pool.submit(next, pieces, None))
            yield piece


_REMEDY = "give a plain file or a folder"


def refuse_special(path: Path) -> None:
    """`UnreadableTrace` for what is neither a file nor a folder, and for a name that no file can have.

    Every file that somebody else may have written comes by here; what it may cost is added to what the command may.

    What is not there is left for whoever opens it to say.
    """
    try:
        status = path.stat()
    except (ValueError, UnicodeError) as error:  # a null character, half of a surrogate pair
        raise UnreadableTrace(ascii(str(path)), "no file can have this name", remedy=_REMEDY) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise UnreadableTrace(shortened(str(path), 200), error.strerror or "", remedy=_REMEDY) from error
        return
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise UnreadableTrace(path, "it is not a plain file", remedy=_REMEDY)
    spending.allow_for(path)


def plain_files(path: Path, roots: Sequence[Path] = ()) -> Iterator[Path]:
    """The file, or every file in the folder, by name. `UnreadableTrace` for one that is special, or whose link leaves
    the roots, where there are any.
    """
    if path.is_dir() and (why := crowded(path, is_deep=True)):
        raise UnreadableTrace(path, why, remedy=FEWER)
    for part in sorted(path.rglob("*")) if path.is_dir() else [path]:
        refuse_special(part)
        if roots and not any(part.resolve().is_relative_to(root) for root in roots):
            raise UnreadableTrace(part, "its link leads outside the folders that may be read", remedy=_REMEDY)
        if not part.is_dir():
            yield part
