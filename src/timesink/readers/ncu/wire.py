"""Protocol-buffer messages, field by field: just enough of the wire format, with every length checked.

The outer shape of a report: magic, header, then blocks, each a header message and a counted list of payloads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

FIXED64, BYTES, FIXED32 = 1, 2, 5  # and 0, a number of one byte or more
_LONGEST_VARINT = 10


class DamagedMessage(ValueError):
    """Bytes that are no message: a length past the end, an unknown wire type, an endless number."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its number, and either `value` (a number) or the span of its bytes in `data`."""

    number: int
    wire: int
    value: int
    start: int
    end: int


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that starts at `at`, and where the next byte stands."""
    value = shift = 0
    for position in range(at, min(end, at + _LONGEST_VARINT)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    raise DamagedMessage(f"a number that starts at byte {at} does not end")


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message that lies in ``data[start:end]``, in the order written."""
    at = start
    while at < end:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise DamagedMessage(f"field number 0 before byte {at}")
        match wire:
            case 0:
                value, at = varint(data, at, end)
                yield Field(number, wire, value, at, at)
            case 1 | 5:
                size = 8 if wire == FIXED64 else 4
                if at + size > end:
                    raise DamagedMessage(f"a {size}-byte number at byte {at} passes the end of its message")
                yield Field(number, wire, int.from_bytes(data[at : at + size], "little"), at, at + size)
                at += size
            case 2:
                size, at = varint(data, at, end)
                if size > end - at:
                    raise DamagedMessage(f"{size} bytes promised at byte {at}, {end - at} left in the message")
                yield Field(number, wire, 0, at, at + size)
                at += size
            case _:
                raise DamagedMessage(f"wire type {wire} at byte {at}")


def text(data: bytes, field: Field) -> str:
    """The bytes of a field as text; bytes that are no UTF-8 become replacement characters."""
    return data[field.start : field.end].decode("utf-8", errors="replace")


def real(data: bytes, field: Field) -> float:
    """A fixed-width field as the float it encodes."""
    return float(struct.unpack_from("<d" if field.wire == FIXED64 else "<f", data, field.start)[0])


def count(field: Field, most: int = 2**31 - 1) -> int:
    """A field that counts or numbers something; `DamagedMessage` where it is beyond what that may be."""
    if field.value > most:
        raise DamagedMessage(f"{field.value} at byte {field.start} is no count")
    return field.value


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
