"""Run the unpickling child under its budget and take over the columns it writes."""

from __future__ import annotations

import json
import stat
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from timesink.errors import UnreadableTrace

if TYPE_CHECKING:
    from timesink.readers import ReadLimits

MAGIC = b"TSNP"
CHILD = Path(__file__).with_name("child.py")
REMEDY = "write it again with torch.cuda.memory._dump_snapshot(path), and open no pickle from a source you do not trust"

# Measured on real snapshots: a built record of an event takes about ten times its pickled bytes.
_BASE_BYTES, _BYTES_PER_BYTE, _MOST_BYTES = 1 << 30, 40, 16 << 30
_BASE_S, _BYTES_PER_S = 20, 2 << 20


@dataclass(frozen=True, slots=True)
class Budget:
    """What one snapshot may cost: address space, processor time, wall time, rows and frames, unpacked bytes."""

    address_space_bytes: int
    cpu_s: int
    wall_s: float
    rows: int = 30_000_000
    file_bytes: int = 4 << 30
    unpacked_bytes: int = 4 << 30

    @classmethod
    def of(cls, path: Path, limits: ReadLimits) -> Budget:
        """In proportion to the file's size; a packed one counts ten times."""
        size = path.stat().st_size * (10 if path.suffix in (".gz", ".xz") else 1)
        cpu_s = _BASE_S + size // _BYTES_PER_S
        return cls(
            address_space_bytes=min(_BASE_BYTES + _BYTES_PER_BYTE * size, _MOST_BYTES),
            cpu_s=cpu_s,
            wall_s=5.0 * cpu_s,
            unpacked_bytes=min(limits.unpacked_bytes, 4 << 30),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The child's columns by name (`event.size`), and its texts."""

    numbers: Mapping[str, npt.NDArray[np.int64]]
    texts: tuple[str, ...]

    def __getitem__(self, name: str) -> npt.NDArray[np.int64]:
        return self.numbers.get(name, np.empty(0, np.int64))


def columns_of(path: Path, budget: Budget) -> Decoded:
    """The snapshot's columns; `UnreadableTrace` where the child refuses it or exceeds its budget."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableTrace(path, "it is no regular file")
    if path.stat().st_size > budget.file_bytes:
        raise UnreadableTrace(path, f"it has more than {budget.file_bytes} bytes", remedy="record fewer events")
    limits = (budget.address_space_bytes, budget.cpu_s, budget.rows, budget.unpacked_bytes)
    with path.open("rb") as stream:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", str(CHILD), *map(str, limits)],
                stdin=stream,
                capture_output=True,
                timeout=budget.wall_s,
                check=False,
                env={},
            )
        except subprocess.TimeoutExpired as late:
            raise UnreadableTrace(path, f"it takes longer than {budget.wall_s:.0f} s", remedy=REMEDY) from late
    if done.returncode != 0 or not done.stdout.startswith(MAGIC):
        raise UnreadableTrace(path, _why(done, budget), remedy=REMEDY)
    return _decoded(done.stdout)


def _why(done: subprocess.CompletedProcess[bytes], budget: Budget) -> str:
    try:
        return str(json.loads(done.stdout)["refused"])
    except (ValueError, KeyError, TypeError):
        pass
    if done.returncode < 0:
        return f"it exceeds its budget of {budget.cpu_s} s or {budget.address_space_bytes} bytes"
    if b"MemoryError" in done.stderr:
        return f"it needs more than {budget.address_space_bytes} bytes of memory"
    if b"resource" in done.stderr:
        return "this system cannot limit what a pickle may use; read it on Linux or macOS"
    return f"the process that reads it ended with status {done.returncode}"


def _decoded(data: bytes) -> Decoded:
    (length,) = struct.unpack_from(">Q", data, len(MAGIC))
    at = len(MAGIC) + 8
    head = json.loads(data[at : at + length])
    at += length
    numbers = {}
    for name, count in head["columns"].items():
        numbers[name] = np.frombuffer(data, np.int64, count, at)
        at += 8 * count
    return Decoded(numbers, tuple(head["texts"]))
