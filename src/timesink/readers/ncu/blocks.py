"""The outer shape of a report: magic, header, then blocks, each a header message and a counted list of payloads."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from timesink.readers.ncu.wire import BYTES, DamagedMessage, Field, fields, text

MAGIC = b"NVR\0"

# Field numbers of BlockHeader.
_SOURCES, _RESULTS, _SESSION, _STRINGS, _PAYLOAD_SIZE, _PROCESS, _RANGES = range(1, 8)


@dataclass(slots=True)
class Block:
    """One block: where its session details and its results lie in the file's bytes."""

    at: int
    session: Field | None = None
    process: Field | None = None
    strings: list[str] = field(default_factory=list)
    results: list[tuple[int, int]] = field(default_factory=list)
    ranges: int = 0


@dataclass(slots=True)
class Ending:
    """How the walk over the blocks ended: `cut_at` is the byte of the first block that could not be read whole."""

    cut_at: int | None = None
    why: str = ""


def blocks(data: bytes, ending: Ending) -> Iterator[Block]:
    """The whole blocks of a report, in order. A block that does not fit ends the walk and is told in `ending`."""
    at = len(MAGIC)
    try:
        at = _after_sized(data, at)  # file header
        while at < len(data):
            block, following = _block(data, at)
            yield block
            at = following
    except DamagedMessage as damage:
        ending.cut_at, ending.why = at, str(damage)


def _block(data: bytes, at: int) -> tuple[Block, int]:
    header_end = _after_sized(data, at)
    block = Block(at)
    sources = results = size = 0
    for part in fields(data, at + 4, header_end):
        match part.number:
            case 1:
                sources = part.value
            case 2:
                results = part.value
            case 3 if part.wire == BYTES:
                block.session = part
            case 4 if part.wire == BYTES:
                block.strings = [text(data, one) for one in fields(data, part.start, part.end) if one.number == 1]
            case 5:
                size = part.value
            case 6 if part.wire == BYTES:
                block.process = part
            case 7:
                block.ranges = part.value
            case _:
                pass
    end = header_end + size
    if end > len(data):
        raise DamagedMessage(f"a payload of {size} bytes is promised, {len(data) - header_end} are left")
    payloads = list(_payloads(data, header_end, end))
    block.results = payloads[sources : sources + results]
    return block, end


def _payloads(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    while at < end:
        following = _after_sized(data, at, end)
        yield at + 4, following
        at = following


def _after_sized(data: bytes, at: int, end: int | None = None) -> int:
    """Where a message ends that is preceded by its size as four bytes."""
    last = len(data) if end is None else end
    if at + 4 > last:
        raise DamagedMessage(f"{last - at} bytes left where a size of 4 bytes should stand")
    following: int = at + 4 + struct.unpack_from("<I", data, at)[0]
    if following > last:
        raise DamagedMessage(f"a message of {following - at - 4} bytes is promised, {last - at - 4} are left")
    return following
