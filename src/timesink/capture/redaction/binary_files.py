"""Nsight Compute reports and PyTorch's memory snapshots, written anew.

Of a report kernels, metrics, rules and versions are kept, every other text is left out. A message is walked with the
fields that readers know (`_REPORT`); numbers of other fields are kept, bytes are not: what they hold, sources,
binaries, folders, command lines, nobody has read. A snapshot is unpickled with nothing but containers allowed, cleaned,
and pickled again.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never

from timesink.capture.errors import refused
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.packed import Unpacked, writing
from timesink.untrusted.protobuf import BYTES, NUMBER, DamagedMessage, WireField, fields

_MAGIC = b"NVR\0"
_SOURCES, _SESSION, _STRINGS, _PAYLOAD_BYTES = 1, 3, 4, 5
_WORDS, _SYMBOL, _OPCODE = "words", "symbol", "opcode"
_NUMBERS: dict[int, Any] = {}
_VALUE = {1: _OPCODE}
_SESSION_FIELDS = {6: {2: _WORDS, 3: {1: _WORDS, 2: _VALUE}}, 8: {1: _WORDS, 2: _WORDS}}
_HEADER = {_SESSION: _SESSION_FIELDS, _STRINGS: {1: _WORDS}}
_RULE = {1: _WORDS, 3: {1: {1: {1: _WORDS, 4: _WORDS}, 10: _NUMBERS}}, 4: _WORDS}
_RESULT = {
    5: _SYMBOL, 6: _SYMBOL, 7: _SYMBOL, 10: _NUMBERS, 11: _NUMBERS,
    13: {2: _VALUE, 3: {1: _VALUE, 2: _VALUE}}, 19: _RULE, 21: {2: {2: {3: {1: _WORDS}}}}, 25: _NUMBERS,
}  # fmt: skip
"""By the number of a field: how its text is cleaned, or the fields of its message that are known."""


def redact_ncu(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Kernels, metrics, rules and versions of a report."""
    data = unpacked.path.read_bytes()
    if data[:4] != _MAGIC:
        raise refused(f"{unpacked.path} does not begin as an ncu report", "export a .ncu-repz as .ncu-rep first")
    try:
        with target.open("wb") as file:
            first, last = _sized_at(data, 4, len(data))
            file.write(_MAGIC + _sized(_message(data, first, last, _NUMBERS, cleaner)))
            file.writelines(_blocks(data, last, cleaner))
    except DamagedMessage as damage:
        raise refused(f"the report is damaged: {damage}", "capture it again") from damage


def _blocks(data: bytes, at: int, cleaner: Cleaner) -> Iterator[bytes]:
    """Each block: a header, and messages of which the first are sources."""
    while at + 4 <= len(data):
        header, at = _sized_at(data, at, len(data))
        numbers = {field.number: field.value for field in fields(data, header, at) if field.wire == NUMBER}
        payload, end = at, at + numbers.get(_PAYLOAD_BYTES, 0)
        if end > len(data):
            raise DamagedMessage(f"it is cut at byte {payload}")
        sources, written = numbers.get(_SOURCES, 0), b""
        while at < end:
            first, at = _sized_at(data, at, end)
            written += _sized(b"" if sources > 0 else _message(data, first, at, _RESULT, cleaner))
            sources -= 1
        yield _sized(_message(data, header, payload, _HEADER, cleaner, {_PAYLOAD_BYTES: len(written)})) + written


def _sized_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Where a message begins and ends that stands behind its size."""
    first = at + 4
    last = first + int.from_bytes(data[at:first], "little")
    if last > end:
        raise DamagedMessage(f"it is cut at byte {at}")
    return first, last


def _message(
    data: bytes, start: int, end: int, known: dict[int, Any], cleaner: Cleaner, set_to: dict[int, int] | None = None
) -> bytes:
    """The message with the numbers it has, and of its texts and messages the known ones."""
    written = bytearray()
    at = start
    for field in fields(data, start, end):
        before, at = at, field.end
        if field.wire != BYTES:
            changed = (set_to or {}).get(field.number)
            written += data[before:at] if changed is None else _varint(field.number << 3) + _varint(changed)
        elif field.number in known:
            body = _body(data, field, known[field.number], cleaner)
            written += _varint(field.number << 3 | BYTES) + _varint(len(body)) + body
        else:
            cleaner.removed["fields of unknown content"] += 1
    return bytes(written)


def _body(data: bytes, field: WireField, known: Any, cleaner: Cleaner) -> bytes:
    raw = data[field.start : field.end]
    if isinstance(known, dict):
        return _message(data, field.start, field.end, known, cleaner)
    return cleaner.at(known, raw.decode("utf-8", "replace")).encode()


def _sized(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def _varint(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_MOST_BYTES = 1 << 30
_REMEDY = "dump the snapshot again"


class _ContainersOnly(pickle.Unpickler):
    """Builds containers, text and numbers; everything else is refused."""

    def find_class(self, module: str, name: str) -> Never:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}"[:200])

    def persistent_load(self, _: object) -> Never:
        raise pickle.UnpicklingError("it asks for an object by persistent id")


def redact_snapshot(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Members whose names are words of software, texts word by word."""
    content, name = unpacked.whole(), unpacked.path.name
    if len(content) > _MOST_BYTES or unpacked.damage:
        raise refused(f"{name} {unpacked.damage or 'is too large'}", _REMEDY)
    try:
        for opcode, argument, _ in pickletools.genops(content):  # the unpickler makes room for as many
            if opcode.name in ("LONG_BINPUT", "PUT") and isinstance(argument, int) and argument > len(content):
                raise ValueError("its memo is larger than the file")
        root = _ContainersOnly(io.BytesIO(content)).load()
        cleaner.once = {}
        cleaned, cleaner.once = cleaner.value(root), None
    except (pickle.UnpicklingError, EOFError, RecursionError, MemoryError, ValueError, TypeError, KeyError, IndexError,
            AttributeError, OverflowError) as error:  # fmt: skip
        raise refused(f"{name} is no memory snapshot: {error}", _REMEDY) from error
    with writing(target) as file:
        pickle.dump(cleaned, file, protocol=4)
