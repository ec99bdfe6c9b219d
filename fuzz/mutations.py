"""Mutations of real inputs: of their bytes, of the values in JSON and pickles, of the cells in tables.

Bytes alone seldom pass a format's first check; so a packed input is unpacked, mutated and packed again, and a document
that can be parsed is mutated as a tree. Everything follows from the seed of the random numbers.
"""

from __future__ import annotations

import gzip
import json
import pickle
import random
import struct
import zlib
from collections.abc import Callable, Sequence

from fuzz import cells, trees
from fuzz.seeds import files_of, tar_of

BLOCK_BYTES = (1, 16, 512, 4096, 65_536)
LIES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
MOST_BYTES = 2 << 20


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """One to four mutations of the input, of kinds that suit what it is."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = _once(data, rng, others)
    return data[:MOST_BYTES]


def _once(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    if rng.random() < 0.2:
        return mutated_bytes(data, rng, others)
    if data[:2] == b"\x1f\x8b":
        return _repacked(data, rng)
    if data[257:262] == b"ustar":
        return _in_folder(data, rng)
    if data.startswith(b"SQLite format 3\0"):
        return cells.mutated_database(data, rng) or mutated_bytes(data, rng, others)
    if data.startswith((b"PAR1", b"ARROW1")):
        return cells.mutated_frame(data, rng) or mutated_bytes(data, rng, others)
    return _as_tree(data, rng) or _as_lines(data, rng) or mutated_bytes(data, rng, others)


def mutated_bytes(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Cut at a block, flip, splice, repeat, leave out, lie about a size, or insert what a parser stumbles over."""
    kind: Callable[[bytes, random.Random, Sequence[bytes]], bytes] = rng.choice(
        (_cut, _flip, _flip, _splice, _repeat, _leave_out, _lie, _lie, _insert)
    )
    return kind(data, rng, others)


def _cut(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    block = rng.choice(BLOCK_BYTES)
    return data[: rng.randrange(len(data) // block + 1) * block]


def _flip(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 8, 64)) if made else 0):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 64, 4096)))


def _splice(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    source = rng.choice(others) if others else data
    start, end = _span(source, rng)
    at, until = _span(data, rng)
    return data[:at] + source[start:end] + data[until:]


def _repeat(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, rng)
    return data[:end] + data[start:end] * rng.choice((1, 2, 100)) + data[end:]


def _leave_out(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def _lie(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """A number of 1, 2, 4 or 8 bytes, either way round, becomes an extreme one."""
    size, order = rng.choice((1, 2, 4, 8)), rng.choice("<>")
    number = rng.choice(LIES) & ((1 << 8 * size) - 1)
    at = rng.randrange(max(1, len(data) - size))
    return data[:at] + struct.pack(f"{order}{' BH I   Q'[size]}", number) + data[at + size :]


def _insert(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(trees.RAW) + data[at:]


def _repacked(data: bytes, rng: random.Random) -> bytes:
    try:
        plain = zlib.decompressobj(31).decompress(data, MOST_BYTES)
    except zlib.error:
        return mutated_bytes(data, rng)
    if rng.random() < 0.02:  # a bomb, small enough to make and large enough to be told from a trace
        plain += b" " * (80 << 20)
    return gzip.compress(_once(plain, rng, ()) if len(plain) <= MOST_BYTES else plain, compresslevel=1, mtime=0)


def _in_folder(data: bytes, rng: random.Random) -> bytes:
    try:
        files = files_of(data)
    except Exception:  # noqa: BLE001  # a damaged archive is no input of ours: bytes again
        return mutated_bytes(data, rng)
    if not files:
        return data
    name = rng.choice(sorted(files))
    match rng.randrange(10):
        case 0:
            del files[name]
        case 1:
            files[rng.choice(sorted(files))] = files[name]
        case _:
            files[name] = _once(files[name], rng, ())
    return tar_of(files)


def _as_tree(data: bytes, rng: random.Random) -> bytes | None:
    try:
        if data[:1] == b"\x80":
            return pickle.dumps(trees.mutated_tree(_plain(data), rng), protocol=rng.choice((2, 4)))
        return trees.json_text(trees.mutated_tree(json.loads(data), rng))
    except (Exception, RecursionError):  # noqa: BLE001  # what cannot be parsed is mutated as bytes
        return None


def _as_lines(data: bytes, rng: random.Random) -> bytes | None:
    """A document of lines: one is mutated as JSON, doubled, moved, or left out."""
    lines = data.split(b"\n")
    if len(lines) < 3:
        return None
    at = rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            lines.insert(rng.randrange(len(lines)), lines[at])
        case 1:
            del lines[at]
        case _:
            begin = max(0, lines[at].find(b"{"))
            changed = _as_tree(lines[at][begin:], rng)
            lines[at] = lines[at][:begin] + (changed if changed is not None else mutated_bytes(lines[at][begin:], rng))
    return b"\n".join(lines)


class _Containers(pickle.Unpickler):
    """A mutated pickle is not trusted here either."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _plain(data: bytes) -> object:
    import io

    if len(data) > MOST_BYTES:
        raise ValueError("too large to mutate as a tree")
    return _Containers(io.BytesIO(data)).load()
