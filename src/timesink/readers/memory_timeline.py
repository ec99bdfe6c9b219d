"""The raw memory timeline of torch.profiler (`export_memory_timeline(path + ".raw.json.gz")`): rows of four numbers.

Each row is a time, what happened, the bytes that come (or, negative, go), and PyTorch's own category of them. It has no
addresses; a change of a tensor's version moves its bytes from one category to another in two rows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.errors import UnreadableTrace
from timesink.knowledge import profiler_texts
from timesink.readers.formats import Reader
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.unpack import unpacked_head, unpacked_whole

if TYPE_CHECKING:
    from timesink.model.arrays import Int64Array
    from timesink.model.trace import Trace

ACTIONS = ("unknown", "preexisting", "create", "increment_version", "destroy")
CATEGORIES = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", None)
_HEAD = re.compile(profiler_texts.MEMORY_TIMELINE_HEAD.encode())
_ROWS = re.compile(profiler_texts.MEMORY_TIMELINE_ROWS.encode())
_BRACKETS = bytes.maketrans(b"[]", b"  ")
_REMEDY = "export it again with export_memory_timeline(path + '.raw.json.gz')"


class MemoryTimeline(Reader):
    """Reader of raw timelines, plain or gzip."""

    format = "torch_memory_timeline"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By its first row: four small whole numbers in double brackets."""
        return bool(_HEAD.match(unpacked_head(head, 256)))

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """Memory events of one GPU, up to where the file breaks off; `UnreadableTrace` where a row is damaged."""
        text, damage = unpacked_whole(path, limits, "record fewer steps")
        whole_rows = text.rstrip().endswith(b"]]")
        end = len(text) if whole_rows else text.rfind(b"]") + 1
        losses = [f"{damage}; what came before it was read"] if damage else []
        losses += [] if whole_rows else [f"the text breaks off; what stands before byte {end:,} of the text was read"]
        return _trace(path, _rows(path, text if whole_rows else text[:end]), losses)


READERS = (MemoryTimeline(),)


def _rows(path: Path, text: bytes) -> Int64Array:
    """The numbers of the text, one row of four per event."""
    import numpy as np

    odd = _ROWS.match(text)
    if odd is None or odd.end() != len(text):
        at = odd.end() if odd else 0
        raise UnreadableTrace(path, "a memory timeline is rows of whole numbers", place=f"byte {at}", remedy=_REMEDY)
    numbers = [part for part in text.translate(_BRACKETS).replace(b" ", b"").replace(b"\n", b"").split(b",") if part]
    if not numbers or len(numbers) % 4:
        raise UnreadableTrace(path, f"{len(numbers)} numbers are no rows of four", remedy=_REMEDY)
    try:
        return np.array(list(map(int, numbers)), np.int64).reshape(-1, 4)
    except (ValueError, OverflowError) as error:
        raise UnreadableTrace(path, "a number is damaged or exceeds 64 bits", remedy=_REMEDY) from error


def _trace(path: Path, rows: Int64Array, losses: list[str]) -> Trace:
    import numpy as np
    import polars as pl

    from timesink.model.tables import MEMORY_EVENTS, SOURCES
    from timesink.model.trace import ImportNote, NoteKind, Trace

    time, action, size, category = rows.T
    known = time[time >= 0]
    first = int(known.min()) if known.size else 0
    names = pl.Series(ACTIONS, dtype=pl.Categorical())
    kinds = pl.Series(CATEGORIES, dtype=pl.Categorical())
    events = {
        "rank": np.zeros(len(rows), np.int32),
        "process": np.zeros(len(rows), np.int64),
        "device": np.zeros(len(rows), np.int32),
        "action": names[np.where((action >= 1) & (action <= 4), action, 0).astype(np.uint32)],
        "time_ns": np.where(time < 0, first, time),
        "bytes": np.ascontiguousarray(size),
        "size_bytes": np.abs(size),
        "category": kinds[np.where((category >= 0) & (category < 7), category, 7).astype(np.uint32)],
    }
    source = {"rank": [0], "path": [str(path)], "format": [MemoryTimeline.format], "size_bytes": [path.stat().st_size]}
    notes = tuple(ImportNote(NoteKind.DAMAGE, loss, 1, MEMORY_EVENTS.name) for loss in losses)
    return Trace(str(path), {SOURCES: SOURCES.build(source), MEMORY_EVENTS: MEMORY_EVENTS.build(events)}, notes)
