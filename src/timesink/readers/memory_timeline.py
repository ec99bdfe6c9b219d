"""The raw memory timeline of torch.profiler (`export_memory_timeline(path + ".raw.json.gz")`): rows of four numbers.

Each row is a time, what happened, the bytes that come (or, negative, go), and PyTorch's own category of them. It has no
addresses; a change of a tensor's version moves its bytes from one category to another in two rows.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timesink.errors import UnreadableTrace
from timesink.model.arrays import Int64Array
from timesink.readers import BOMB_FROM_BYTES

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits

ACTIONS = ("unknown", "preexisting", "create", "increment_version", "destroy")
CATEGORIES = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", None)
_HEAD = re.compile(rb"^\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]")
_ROWS = re.compile(rb"[\s\d,\[\]-]*")
_BRACKETS = bytes.maketrans(b"[]", b"  ")
_GZIP = b"\x1f\x8b"
_REMEDY = "export it again with export_memory_timeline(path + '.raw.json.gz')"


class MemoryTimeline:
    """Reader of raw timelines, plain or gzip."""

    format = "torch_memory_timeline"
    version = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """By its first row: four small whole numbers in double brackets."""
        return bool(_HEAD.match(_opened(head, 256) if head.startswith(_GZIP) else head[:256]))

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """Memory events of one GPU. `UnreadableTrace` where a row is no four numbers."""
        if path.stat().st_size > limits.most_held_bytes:
            raise UnreadableTrace(path, f"larger than {limits.most_held_bytes} bytes", remedy="record fewer steps")
        raw = path.read_bytes()
        if raw.startswith(_GZIP):
            most = min(limits.most_held_bytes, max(BOMB_FROM_BYTES, limits.unpacking_ratio * len(raw)))
            data = _opened(raw, most + 1)
            if len(data) > most:
                why = f"its {len(raw)} bytes unpack to more than {most}: too large, or a decompression bomb"
                raise UnreadableTrace(path, why, remedy="unpack it with gzip if you trust it")
        else:
            data = raw
        return _trace(path, _rows(path, data))


READERS = (MemoryTimeline(),)


def _opened(data: bytes, limit: int) -> bytes:
    """Up to `limit` unpacked bytes; what is damaged ends where it still could be read."""
    stream = zlib.decompressobj(31)
    try:
        return stream.decompress(data, limit)
    except zlib.error:
        return b""


def _rows(path: Path, data: bytes) -> Int64Array:
    odd = _ROWS.match(data)
    if odd is None or odd.end() != len(data):
        at = odd.end() if odd else 0
        raise UnreadableTrace(path, "a memory timeline is rows of whole numbers", place=f"byte {at}", remedy=_REMEDY)
    numbers = [part for part in data.translate(_BRACKETS).replace(b" ", b"").replace(b"\n", b"").split(b",") if part]
    if not numbers or len(numbers) % 4:
        raise UnreadableTrace(path, f"{len(numbers)} numbers are no rows of four", remedy=_REMEDY)
    try:
        return np.array(list(map(int, numbers)), np.int64).reshape(-1, 4)
    except (ValueError, OverflowError) as error:
        raise UnreadableTrace(path, "a number is damaged or exceeds 64 bits", remedy=_REMEDY) from error


def _trace(path: Path, rows: Int64Array) -> Trace:
    import polars as pl

    from timesink.model.tables import MEMORY_EVENTS, SOURCES
    from timesink.model.trace import Trace

    time, action, size, category = rows.T
    known = time[time >= 0]
    first = int(known.min()) if known.size else 0
    names = pl.Series(ACTIONS, dtype=pl.Categorical())
    kinds = pl.Series(CATEGORIES, dtype=pl.Categorical())
    events = {
        "rank": np.zeros(len(rows), np.int32),
        "process": np.zeros(len(rows), np.int64),
        "device": np.zeros(len(rows), np.int32),
        "action": names.gather(np.where((action >= 1) & (action <= 4), action, 0).astype(np.uint32)),
        "time_ns": np.where(time < 0, first, time),
        "bytes": np.ascontiguousarray(size),
        "size_bytes": np.abs(size),
        "category": kinds.gather(np.where((category >= 0) & (category < 7), category, 7).astype(np.uint32)),
    }
    source = {"rank": [0], "path": [str(path)], "format": [MemoryTimeline.format], "size_bytes": [path.stat().st_size]}
    return Trace(str(path), {SOURCES: SOURCES.build(source), MEMORY_EVENTS: MEMORY_EVENTS.build(events)})
