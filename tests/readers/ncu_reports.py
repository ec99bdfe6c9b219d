"""Nsight Compute reports written by hand: the documented block format, from plain Python values."""

import struct
from collections.abc import Iterable, Mapping, Sequence

Value = float | int | str | None


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def message(field: int, body: bytes | str) -> bytes:
    raw = body.encode() if isinstance(body, str) else body
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def value_message(value: Value) -> bytes:
    match value:
        case str():
            return message(2, message(1, value))
        case int():
            return message(2, number(5, value))
        case float():
            return message(2, real(3, value))
        case None:
            return b""


def metric(name: int, value: Value, instances: int = 0) -> bytes:
    body = number(1, name) + value_message(value)
    return message(13, body + b"".join(message(3, number(1, i) + value_message(float(i))) for i in range(instances)))


def rule(identifier: str, text: str, kind: int, percent: float | None = None) -> bytes:
    item = message(1, message(1, text) + number(2, kind) + message(4, "A title"))
    if percent is not None:
        item += message(10, number(1, 2) + real(2, percent))
    return message(19, message(1, identifier) + message(3, message(1, item)) + message(4, "A section"))


def kernel(name: str, metrics: Iterable[bytes], extra: bytes = b"", locked: tuple[int, int] = (1, 1)) -> bytes:
    """A ProfileResult: process 7, grid 2 x 3 x 1, block 64 x 1 x 1, context 1, stream 9."""
    sizes = [number(1, x) + number(2, y) + number(3, z) for x, y, z in ((2, 3, 1), (64, 1, 1))]
    return (
        number(1, 7)
        + message(5, f"_Z{name}")
        + message(6, name)
        + message(7, f"void {name}(float *)")
        + message(10, sizes[0])
        + message(11, sizes[1])
        + b"".join(metrics)
        + extra
        + number(22, 1)
        + number(23, 9)
        + message(25, number(1, locked[0]) + number(2, locked[1]))
    )


def session(command: str = "ncu -o report a.out") -> bytes:
    device = number(1, 0) + message(2, "NVIDIA Test GPU")
    for name, value in {"compute_capability_major": 9, "multiprocessor_count": 132, "clock_rate": 1980000}.items():
        device += message(3, message(1, f"device__attribute_{name}") + value_message(value))
    versions = {
        "Nsight Compute Target": "2025.3.1.0 (build 1)",
        "CUDA Version": "13.0",
        "Display Driver Version": "580.1",
    }
    pairs = b"".join(message(8, message(1, key) + message(2, value)) for key, value in versions.items())
    return message(4, message(5, "a-host")) + message(6, device) + pairs + message(11, command)


def block(results: Sequence[bytes] = (), strings: Sequence[str] = (), details: bytes = b"", sources: int = 0) -> bytes:
    payloads = [b"a cubin"] * sources + list(results)
    payload = b"".join(struct.pack("<I", len(one)) + one for one in payloads)
    header = number(1, sources) + number(2, len(results))
    header += message(3, details) if details else b""
    header += message(4, b"".join(message(1, one) for one in strings)) + number(5, len(payload))
    return struct.pack("<I", len(header)) + header + payload


def report(*blocks: bytes) -> bytes:
    header = number(1, 7)
    return b"NVR\0" + struct.pack("<I", len(header)) + header + b"".join(blocks)


def simple(metrics: Mapping[str, Value], name: str = "k") -> bytes:
    """A report of one kernel with these metrics."""
    found = [metric(index, value) for index, value in enumerate(metrics.values())]
    return report(block(details=session()), block([kernel(name, found)], list(metrics), sources=1))
