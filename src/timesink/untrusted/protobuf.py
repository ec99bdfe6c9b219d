"""The wire format of protocol buffers, as reports of Nsight Compute use it, with every length checked.

Standard library only.
"""

from collections.abc import Iterator
from dataclasses import dataclass

NUMBER, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
_LONGEST_VARINT = 10


class DamagedMessage(ValueError):
    """Bytes that are no message: a length past the end, an unknown wire type, an endless number."""


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of a message: its number, and either `value` (a number) or the span of its bytes in `data`."""

    number: int
    wire: int
    value: int
    start: int
    end: int


def varint(data: bytes | bytearray, at: int, end: int) -> tuple[int, int]:
    """The number that starts at byte `at`, and the offset of the byte after it."""
    value = shift = 0
    for position in range(at, min(end, len(data), at + _LONGEST_VARINT)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    raise DamagedMessage(f"a number that starts at byte {at} does not end")


def fields(data: bytes | bytearray, start: int, end: int) -> Iterator[WireField]:
    """The fields of the message in ``data[start:end]``, in the order written."""
    at = start
    while at < end:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise DamagedMessage(f"field number 0 before byte {at}")
        match wire:
            case 0:
                value, at = varint(data, at, end)
                yield WireField(number, wire, value, at, at)
            case 1 | 5:
                size = 8 if wire == FIXED64 else 4
                if at + size > end:
                    raise DamagedMessage(f"a {size}-byte number at byte {at} passes the end of its message")
                yield WireField(number, wire, int.from_bytes(data[at : at + size], "little"), at, at + size)
                at += size
            case 2:
                size, at = varint(data, at, end)
                if size > end - at:
                    raise DamagedMessage(f"{size} bytes promised at byte {at}, {end - at} left in the message")
                yield WireField(number, wire, 0, at, at + size)
                at += size
            case _:
                raise DamagedMessage(f"wire type {wire} at byte {at}")
