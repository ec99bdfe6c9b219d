"""Nsight Compute reports and PyTorch's memory snapshots, written anew.

Of a report the texts of the fields that readers know (`_RESULT`) and all numbers are kept; sources, binaries, folders,
command lines, which nobody has read, are not. A snapshot is unpickled with nothing but containers allowed.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Iterator
from typing import Any, Never

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.packed import Unpacked
from timesink.untrusted.protobuf import BYTES, NUMBER, DamagedMessage, fields

_MOST_BYTES, _REMEDY = 1 << 30, "dump the snapshot again"  # of a snapshot
_MAGIC = b"NVR\0"
_SOURCES, _SESSION, _STRINGS, _PAYLOAD_BYTES = 1, 3, 4, 5
_VALUE = {1: "opcode"}
_SESSION_FIELDS = {6: {2: "words", 3: {1: "words", 2: _VALUE}}, 8: {1: "words", 2: "words"}}
_HEADER = {_SESSION: _SESSION_FIELDS, _STRINGS: {1: "words"}}
_RULE = {1: "words", 3: {1: {1: {1: "words", 4: "words"}, 10: {}}}, 4: "words"}
_RESULT = {
    5: "symbol", 6: "symbol", 7: "symbol", 10: {}, 11: {},
    13: {2: _VALUE, 3: {1: _VALUE, 2: _VALUE}}, 19: _RULE, 21: {2: {2: {3: {1: "words"}}}}, 25: {},
}  # fmt: skip
"""By the number of a field: how its text is cleaned, or the fields of its message that are known."""


def cleaned_ncu(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[bytes]:
    """Kernels, metrics, rules and versions of a report."""
    data = unpacked.path.read_bytes()
    try:
        head, at = _message_at(data, len(_MAGIC), len(data))
        yield _MAGIC + _sized(_cleaned(head, {}, cleaner))
        while at + 4 <= len(data):
            block, at = _block(data, at, cleaner)
            yield block
    except DamagedMessage as damage:
        raise refused(f"the report is damaged: {damage}", "capture it again") from damage


def _block(data: bytes, at: int, cleaner: Cleaner) -> tuple[bytes, int]:
    """A header, and messages of which the first are sources; and where the next begins."""
    header, at = _message_at(data, at, len(data))
    numbers = {field.number: field.value for field in fields(header, 0, len(header)) if field.wire == NUMBER}
    sources, end = numbers.get(_SOURCES, 0), at + numbers.get(_PAYLOAD_BYTES, 0)
    if end > len(data):
        raise DamagedMessage(f"it is cut at byte {at}")
    written = b""
    while at < end:
        result, at = _message_at(data, at, end)
        written += _sized(b"" if sources > 0 else _cleaned(result, _RESULT, cleaner))
        sources -= 1
    return _sized(_cleaned(header, _HEADER | {_PAYLOAD_BYTES: len(written)}, cleaner)) + written, end


def _message_at(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The message that stands there behind its size, and where it ends."""
    last = at + 4 + int.from_bytes(data[at : at + 4], "little")
    if last > end:
        raise DamagedMessage(f"it is cut at byte {at}")
    return data[at + 4 : last], last


def _cleaned(data: bytes, place: str | dict[int, Any], cleaner: Cleaner) -> bytes:
    """A text by its place; of a message the numbers, or those of its place, and the texts and messages known there."""
    if isinstance(place, str):
        return cleaner.at(place, data.decode("utf-8", "replace")).encode()
    written, at = bytearray(), 0
    for field in fields(data, 0, len(data)):
        before, at, known = at, field.end, place.get(field.number)
        if field.wire != BYTES:
            written += _varint(field.number << 3) + _varint(known) if isinstance(known, int) else data[before:at]
        elif isinstance(known, (str, dict)):
            inner = _cleaned(data[field.start : at], known, cleaner)
            written += _varint(field.number << 3 | BYTES) + _varint(len(inner)) + inner
        else:
            cleaner.removed["fields of unknown content"] += 1
    return bytes(written)


def _sized(message: bytes) -> bytes:
    return len(message).to_bytes(4, "little") + message


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


class _ContainersOnly(pickle.Unpickler):
    """Builds containers, text and numbers; everything else is refused, as persistent ids are by default."""

    def find_class(self, module: str, name: str) -> Never:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:200])


def cleaned_snapshot(unpacked: Unpacked, cleaner: Cleaner) -> Iterator[bytes]:
    """Members whose names are words of software, texts word by word."""
    content, name = unpacked.whole(), unpacked.path.name
    if len(content) > _MOST_BYTES or unpacked.damage:
        raise refused(f"{name} {unpacked.damage or 'is too large'}", _REMEDY)
    try:
        for opcode, argument, _ in pickletools.genops(content):  # the unpickler makes room for as many
            if opcode.name in ("LONG_BINPUT", "PUT") and isinstance(argument, int) and argument > len(content):
                raise ValueError("its memo is larger than the file")
        yield pickle.dumps(cleaner.value(_ContainersOnly(io.BytesIO(content)).load()), protocol=4)
    except (pickle.UnpicklingError, EOFError, RecursionError, MemoryError, ValueError, TypeError, KeyError, IndexError,
            AttributeError, OverflowError) as error:  # fmt: skip
        raise refused(f"{name} is no memory snapshot: {error}", _REMEDY) from error
