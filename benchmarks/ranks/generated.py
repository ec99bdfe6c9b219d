"""Jobs of any number of ranks, made from the few real ranks that are at hand.

Every rank is one of the real ones, its events repeated (`benchmarks.grow`), under a rank, a host and a clock of its
own: eight ranks share a host, each host's clock is off by an amount that is known. gzip files may be joined, so the
long part is packed once per real rank and only the head anew: a thousand ranks take seconds to write.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.grow import Seed

PER_HOST = 8
_EVENT = b'"ph"'
_BASE_NS = 4_000_000_000  # small: the seeds may count from 1970 as it is, and tables hold 73 years on either side
_FAR_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Body:
    """All that follows the opening bracket of a rank's events, packed."""

    packed: bytes
    events: int
    text_bytes: int


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that goes with all that is in it."""
    path = Path(tempfile.mkdtemp(prefix="ranks-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def bodies(seeds: Sequence[Path], events: int) -> list[Body]:
    """Each seed repeated equally often and equally far apart, so that each holds so many events or more."""
    sources = [Seed.of(seed) for seed in seeds]
    copies = -(-events // min(b"".join(source.events(1, 0)).count(_EVENT) for source in sources))
    span_us = max(source.span_us for source in sources)
    made = []
    for source in sources:
        text = b"".join([*source.events(copies, span_us), b"]}"])
        made.append(Body(gzip.compress(text, compresslevel=1), text.count(_EVENT), len(text)))
    return made


def write_ranks(made: Sequence[Body], count: int, into: Path) -> int:
    """`count` ranks in turn of those bodies; how many events they hold together."""
    for rank in range(count):
        head = {
            "schemaVersion": 1,
            "host_name": f"node{rank // PER_HOST:04}",
            "baseTimeNanoseconds": _BASE_NS + clock_offset_ns(rank),
            "distributedInfo": {"rank": rank, "world_size": count, "backend": "nccl"},
        }
        opened = json.dumps(head)[:-1] + ', "traceEvents": ['
        (into / f"rank{rank:05}.json.gz").write_bytes(gzip.compress(opened.encode()) + made[rank % len(made)].packed)
    return sum(made[rank % len(made)].events for rank in range(count))


def clock_offset_ns(rank: int) -> int:
    """What this rank's clock shows beyond rank 0's: one amount per host, up to two seconds either way."""
    return ((rank // PER_HOST) * 777_767_777) % (2 * _FAR_NS) - _FAR_NS if rank >= PER_HOST else 0


def spoil(file: Path) -> None:
    """What an interrupted copy over a broken link leaves: a file of the right name that is no gzip any more."""
    file.write_bytes(b"\x1f\x8b" + bytes(4096))
