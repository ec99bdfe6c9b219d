"""The text of a file in windows of a few megabytes, unpacked on the way, within a budget."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.errors import UnreadableTrace

if TYPE_CHECKING:
    from timesink.readers import ReadLimits

GZIP_MAGIC = b"\x1f\x8b"
WINDOW_BYTES = 4 << 20
PACKED_BYTES = 256 << 10  # what a damaged stream may take with it


def looks_like_json(head: bytes) -> bool:
    """Whether text, plain or gzip, begins as JSON objects and arrays do."""
    if head.startswith(GZIP_MAGIC):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, 64)
        except zlib.error:
            return False
    return head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1] in (b"{", b"[")


@dataclass(slots=True)
class Windows:
    """Iterates over the text of `path`. Afterwards `problem` says how a gzip file was damaged, if it was."""

    path: Path
    limits: ReadLimits
    unpacked_bytes: int = 0
    problem: str = ""

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """The windows, in order. Each is valid until the next is asked for."""
        with self.path.open("rb") as stream:
            packed = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        return _ahead(self._unpacked()) if packed else self._plain()

    def _plain(self) -> Iterator[memoryview]:
        window = memoryview(bytearray(WINDOW_BYTES))
        with self.path.open("rb", buffering=0) as stream:
            while count := stream.readinto(window):
                self._spend(count)
                yield window[:count]

    def _unpacked(self) -> Iterator[bytes]:
        from isal import igzip_lib

        consumed = 0
        with self.path.open("rb", buffering=0) as stream:
            packed = stream.read(PACKED_BYTES)
            while packed.startswith(GZIP_MAGIC):  # a file may hold several members
                member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
                while not member.eof:
                    if member.needs_input and not packed and not (packed := stream.read(PACKED_BYTES)):
                        self.problem = "the gzip stream ends before its end mark"
                        return
                    consumed += len(packed)
                    try:
                        window = member.decompress(packed, WINDOW_BYTES)
                    except igzip_lib.IsalError as error:  # type: ignore[misc]  # the stub declares a value
                        self.problem = f"the gzip stream is damaged ({error})"
                        return
                    packed = b""
                    self._spend(len(window), consumed)
                    yield window
                packed = member.unused_data
                consumed -= len(packed)
                if len(packed) < len(GZIP_MAGIC):
                    packed += stream.read(PACKED_BYTES)
            if packed.strip(b"\0"):
                self.problem = "bytes that are no gzip follow the gzip stream"

    def _spend(self, count: int, packed_bytes: int | None = None) -> None:
        self.unpacked_bytes += count
        if self.unpacked_bytes > self.limits.unpacked_bytes:
            message = f"the file unpacks to more than {self.limits.unpacked_bytes:,} bytes"
            raise UnreadableTrace(self.path, message, remedy="raise the limit if you trust the file")
        if packed_bytes is not None and self.limits.is_bomb(self.unpacked_bytes, packed_bytes):
            message = (
                f"{packed_bytes:,} bytes of gzip unpack to more than {self.unpacked_bytes:,}: a decompression bomb"
            )
            raise UnreadableTrace(self.path, message, remedy="raise the limit if you trust the file")


def _ahead(windows: Iterator[bytes]) -> Iterator[bytes]:
    """The same windows, the next one unpacked by a second thread while this one is decoded."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(next, windows, None)
        while (window := coming.result()) is not None:
            coming = pool.submit(next, windows, None)
            yield window
