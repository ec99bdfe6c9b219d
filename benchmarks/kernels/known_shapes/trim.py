"""A report without the programs inside it: `trim.py REPORT OUT`.

Of each block the sources (machine code of whole libraries) go; of each kernel its sections' layout, and the values of
metrics per instruction or sample, except how often each opcode ran. Every metric keeps its value.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from timesink.untrusted.protobuf import BYTES, FIXED32, FIXED64, NUMBER, WireField, fields

_MAGIC = b"NVR\0"
_SOURCES, _RESULTS, _STRINGS, _PAYLOAD_BYTES, _FIRST_OF_RANGES = 1, 2, 4, 5, 7  # of a block's header
_METRIC, _SECTION, _NAME, _INSTANCE = 13, 17, 1, 3
_WITH_INSTANCES = "per_opcode"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _encoded(number: int, wire: int, content: bytes | int) -> bytes:
    tag = _varint(number << 3 | wire)
    if wire == NUMBER:
        return tag + _varint(int(content))
    body = bytes(content)
    return tag + (_varint(len(body)) if wire == BYTES else b"") + body


def _copied(data: bytes, field: WireField) -> bytes:
    content = field.value if field.wire == NUMBER else data[field.start : field.end]
    assert field.wire in (NUMBER, BYTES, FIXED32, FIXED64)
    return _encoded(field.number, field.wire, content)


def _sized(data: bytes, at: int) -> int:
    return at + 4 + struct.unpack_from("<I", data, at)[0]


def trimmed(data: bytes) -> bytes:
    """The same report, smaller. Names are numbered across blocks, so that every table of them stays."""
    assert data[:4] == _MAGIC, "no report of Nsight Compute"
    at = _sized(data, 4)
    out, names = [data[:at]], list[str]()
    while at < len(data):
        payload = _sized(data, at)
        header = list(fields(data, at + 4, payload))
        numbers = {part.number: part.value for part in header if part.wire == NUMBER}
        for part in header:
            if part.number == _STRINGS:
                names += [data[name.start : name.end].decode() for name in fields(data, part.start, part.end)]
        end = payload + numbers.get(_PAYLOAD_BYTES, 0)
        messages = []
        at = payload
        while at < end:
            following = _sized(data, at)
            messages.append((at + 4, following))
            at = following
        first = numbers.get(_SOURCES, 0)
        results = [_result(data, *span, names) for span in messages[first : first + numbers.get(_RESULTS, 0)]]
        body = b"".join(struct.pack("<I", len(one)) + one for one in results)
        changed = {_SOURCES: 0, _RESULTS: len(results), _PAYLOAD_BYTES: len(body)}
        kept = [
            _encoded(part.number, NUMBER, changed[part.number]) if part.number in changed else _copied(data, part)
            for part in header
            if part.number < _FIRST_OF_RANGES
        ]
        head = b"".join(kept)
        out.append(struct.pack("<I", len(head)) + head + body)
        at = end
    return b"".join(out)


def _result(data: bytes, start: int, end: int, names: list[str]) -> bytes:
    kept = []
    for field in fields(data, start, end):
        if field.number == _METRIC:
            kept.append(_encoded(_METRIC, BYTES, _metric(data, field, names)))
        elif field.number != _SECTION:
            kept.append(_copied(data, field))
    return b"".join(kept)


def _metric(data: bytes, metric: WireField, names: list[str]) -> bytes:
    parts = list(fields(data, metric.start, metric.end))
    name = next((names[part.value] for part in parts if part.number == _NAME), "")
    return b"".join(_copied(data, part) for part in parts if part.number != _INSTANCE or _WITH_INSTANCES in name)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(trimmed(Path(sys.argv[1]).read_bytes()))
