"""Is a capture what was asked for? Each check counts one kind of record, and says precisely what is missing."""

from __future__ import annotations

import gzip
import re
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_CHUNK_BYTES = 1 << 20
_KINETO = {
    "CUDA API calls": re.compile(rb'"cat": ?"cuda_(?:runtime|driver)"'),
    "kernels": re.compile(rb'"cat": ?"kernel"'),
    "operators": re.compile(rb'"cat": ?"cpu_op"'),
}
_STEP = re.compile(rb'"ProfilerStep#(\d+)"')
_LONGEST_MATCH = 64
_SQLITE = {
    "steps": "SELECT COUNT(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId "
    "WHERE COALESCE(text, value) LIKE 'step %'",
    "CUDA API calls": "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "kernels": "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "whole CUDA graphs": "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "NVTX ranges": "SELECT COUNT(*) FROM NVTX_EVENTS WHERE end IS NOT NULL",
    "OS runtime calls": "SELECT COUNT(*) FROM OSRT_API",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """What an artefact holds: counts by kind; `wrong` says why it cannot be read at all, or is empty."""

    path: Path
    size_bytes: int
    counts: Mapping[str, int]
    wrong: str = ""

    def missing(self, expected: tuple[str, ...]) -> list[str]:
        """One sentence per kind of record that was expected and is not there."""
        if self.wrong:
            return [f"{self.path.name}: {self.wrong}"]
        return [f"{self.path.name} holds no {kind}" for kind in expected if not self.counts.get(kind)]


def check(path: Path) -> Checked:
    """Count what a torch.profiler trace, an nsys SQLite export or an ncu report holds."""
    if not path.is_file():
        return Checked(path, 0, {}, "it was not written")
    size = path.stat().st_size
    if not size:
        return Checked(path, 0, {}, "it is empty")
    try:
        return Checked(path, size, _counts(path))
    except (OSError, EOFError, zlib.error, sqlite3.Error, ValueError) as broken:
        return Checked(path, size, {}, f"it is damaged ({broken})")


def _counts(path: Path) -> Mapping[str, int]:
    if path.suffix == ".sqlite":
        return _sqlite_counts(path)
    if path.suffix in (".ncu-rep", ".ncu-repz"):
        return {"kernel profiles": _profiles(path)} if path.suffix == ".ncu-rep" else {"kernel profiles": 1}
    return _kineto_counts(path)


def _kineto_counts(path: Path) -> Mapping[str, int]:
    """By pattern, in chunks: quick, and as exact as the profiler's own spelling. Steps are told apart by name, as each
    stands there once for the host and once for the device.
    """
    counts = dict.fromkeys(_KINETO, 0)
    steps: set[bytes] = set()
    rest = b""
    for chunk in _chunks(path):
        text = rest + chunk
        steps.update(_STEP.findall(text))
        for kind, pattern in _KINETO.items():
            counts[kind] += sum(1 for found in pattern.finditer(text) if found.end() > len(rest))
        rest = text[-_LONGEST_MATCH:]
    return {"steps": len(steps), **counts}


def _chunks(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _sqlite_counts(path: Path) -> Mapping[str, int]:
    counts = {}
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for kind, query in _SQLITE.items():
            table = re.findall(r"FROM (\w+)", query)[0]
            counts[kind] = int(db.execute(query).fetchone()[0]) if table in tables else 0
    return counts


def _profiles(path: Path) -> int:
    """Results in an ncu report: ``NVR\\0``, a header, then blocks whose header counts results in field 2."""
    with path.open("rb") as file:
        if file.read(4) != b"NVR\0":
            raise ValueError("it does not begin as an ncu report")
        file.seek(int.from_bytes(file.read(4), "little"), 1)
        total = 0
        while size := file.read(4):
            header = file.read(int.from_bytes(size, "little"))
            fields = dict(_varints(header))
            total += fields.get(2, 0)
            file.seek(fields.get(5, 0), 1)
    return total


def _varints(message: bytes) -> Iterator[tuple[int, int]]:
    """(field, value) of the integer fields of a protocol-buffers message; embedded messages are stepped over."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message):
                raise ValueError("a block's header is cut off")
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            length = varint()
            at += length
        else:
            at += 8 if key & 7 == 1 else 4
