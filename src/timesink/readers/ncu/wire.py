"""Protocol-buffer messages, field by field: just enough of the wire format, with every length checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

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
