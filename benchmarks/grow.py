"""Grow a real Kineto trace: its events again and again, with times and ids moved so that each copy is a run of its own.

The text of every event is kept byte for byte but for `ts`, correlation, flow id, External id, Ev Idx, Sequence number,
Record function id, Python ids and the number of a ProfilerStep.

    python -m benchmarks.grow seed.json.gz out.json --megabytes 500
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timesink.untrusted.budget import usual_limits
from timesink.untrusted.unpack import unpacked_whole

_TS = re.compile(rb'("ts":\s*)(\d+)((?:\.\d+)?)')
_IDS = (
    b"correlation", b"External id", b"external id", b"Ev Idx", b"Sequence number", b"Record function id", b"Python id",
    b"Python parent id", b"id", b"wait_on_cuda_event_record_corr_id",
)  # fmt: skip
_ID = re.compile(rb'("(?:' + b"|".join(_IDS) + rb')":\s*)(\d+)')
_STEP = re.compile(rb"(ProfilerStep#)(\d+)")
_HOLE = re.compile(rb"\0([tis])(\d+)\0")


@dataclass(frozen=True, slots=True)
class Seed:
    """A trace to repeat: what stands before and after its events, and the events in pieces."""

    head: bytes
    pieces: list[bytes | tuple[str, int]]
    tail: bytes
    body_bytes: int
    span_us: int
    id_span: int
    step_span: int

    @classmethod
    def of(cls, path: Path) -> Seed:
        """Read a Kineto trace, plain or packed."""
        text, _ = unpacked_whole(path, usual_limits(), "give a smaller seed")
        begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
        end = json.JSONDecoder(strict=False).raw_decode(text.decode("latin-1"), begin - 1)[1] - 1
        body = text[begin:end]
        times = [int(found[2]) for found in _TS.finditer(body)]
        ids = [int(found[2]) for found in _ID.finditer(body) if int(found[2]) < 1 << 40]
        steps = [int(found[2]) for found in _STEP.finditer(body)]
        # Durations may exceed the span of the starts; a second of air keeps the copies apart.
        span_us = max(times) - min(times) + 1_000_000
        return cls(text[:begin], _pieces(body), text[end:], len(body), span_us, max(ids) + 1, len(set(steps)) + 1)

    def events(self, copies: int, span_us: int) -> Iterator[bytes]:
        """The text of the events, so many times, each `span_us` after the one before."""
        for copy in range(copies):
            yield b"," if copy else b""
            yield _copy(self.pieces, {"t": copy * span_us, "i": copy * self.id_span, "s": copy * self.step_span})


def grow(seed: Path, target: Path, megabytes: int) -> int:
    """Write at least `megabytes` of trace and return how many copies it holds. A name in .gz is packed."""
    source = Seed.of(seed)
    copies = max(1, -(-megabytes * 1_000_000 // source.body_bytes))
    with gzip.open(target, "wb", compresslevel=6) if target.suffix == ".gz" else target.open("wb") as stream:
        stream.write(source.head)
        stream.writelines(source.events(copies, source.span_us))
        stream.write(source.tail)
    return copies


def _pieces(body: bytes) -> list[bytes | tuple[str, int]]:
    """The body as text between the numbers that move, and those numbers with their kind."""
    holed = _TS.sub(rb"\1\0t\2\0\3", body)
    holed = _ID.sub(rb"\1\0i\2\0", holed)
    holed = _STEP.sub(rb"\1\0s\2\0", holed)
    parts = _HOLE.split(holed)
    pieces: list[bytes | tuple[str, int]] = []
    for place in range(0, len(parts) - 1, 3):
        pieces += [parts[place], (parts[place + 1].decode(), int(parts[place + 2]))]
    return [*pieces, parts[-1]]


def _copy(pieces: list[bytes | tuple[str, int]], moves: dict[str, int]) -> bytes:
    return b"".join(p if isinstance(p, bytes) else b"%d" % _moved(p, moves) for p in pieces)


def _moved(hole: tuple[str, int], moves: dict[str, int]) -> int:
    kind, number = hole
    return number if kind == "i" and number >= 1 << 40 else number + moves[kind]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=int, default=500)
    chosen = parser.parse_args()
    print(f"{chosen.target}: {grow(chosen.seed, chosen.target, chosen.megabytes)} copies")
