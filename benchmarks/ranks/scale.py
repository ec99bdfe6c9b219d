"""How long many ranks take: generated runs of 64, 256 and 1,024 ranks, engines beside each other, and 8 x 100 MB.

    python -m benchmarks.ranks.scale                      cost by number of ranks, threads
    python -m benchmarks.ranks.scale --engines            serial, threads, processes and Dask on 64 ranks
    python -m benchmarks.ranks.scale --large SEED.json.gz 8 files of 100 MB, grown from one

Every run is made on the fly from a real rank and deleted. Ranks share the bytes of one grown trace: only what says
which rank it is differs, so that a thousand of them need neither the disk nor the time to be written.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.grow import grow

from timesink.measures.bandwidth import bandwidth
from timesink.measures.collective_waits import waits_of
from timesink.measures.lateness import lateness_of
from timesink.ranks.engines import ENGINES, engine_of
from timesink.ranks.files import find_files
from timesink.ranks.run import run_of


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ranks-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def seed_of(megabytes: float, source: Path, into: Path) -> bytes:
    """A rank grown from a real one to about that size, as text."""
    grow(source, into / "seed.json", 1)
    text = (into / "seed.json").read_bytes()
    if megabytes > 1:
        grow(source, into / "seed.json", int(megabytes))
        text = (into / "seed.json").read_bytes()
    return text


def write_ranks(text: bytes, count: int, into: Path) -> int:
    """`count` ranks of that trace. gzip files may be joined: the large part is packed once, each head anew."""
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    body = gzip.compress(text[begin:], compresslevel=1)
    for rank in range(count):
        info = json.dumps({"rank": rank, "world_size": count, "backend": "nccl"})
        head = b'{"schemaVersion": 1, "distributedInfo": ' + info.encode() + b', "traceEvents": ['
        (into / f"rank{rank}.json.gz").write_bytes(gzip.compress(head) + body)
    return text.count(b'"ph"')


def timed(places: list[str], engine: str) -> tuple[float, float, int]:
    """Seconds of map and merge, seconds of what is asked of all ranks together, calls."""
    begin = time.perf_counter()
    run = run_of(find_files(places), engine_of(engine), keep=False)
    read = time.perf_counter()
    waits = waits_of(run.job)
    lateness_of(waits)
    bandwidth(waits)
    return read - begin, time.perf_counter() - read, run.job.calls.height


def by_ranks(source: Path, megabytes: float, counts: list[int], engine: str) -> None:
    with folder() as made:
        text = seed_of(megabytes, source, made)
        for count in counts:
            with folder() as into:
                events = write_ranks(text, count, into)
                read, asked, calls = timed([str(into)], engine)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(
                f"{count:5} ranks x {events} events, {engine}: read {read:7.2f} s ({1e3 * read / count:6.1f} ms each), "
                f"compare {asked:6.2f} s ({calls} calls), peak {memory:.2f} GB",
                flush=True,
            )


def large(source: Path, ranks: int, megabytes: int) -> None:
    with folder() as into:
        text = seed_of(megabytes, source, into)
        (into / "seed.json").unlink()
        write_ranks(text, ranks, into)
        for _ in range(3):
            busy = time.process_time()
            read, asked, _ = timed([str(into)], "threads")
            busy = time.process_time() - busy  # over two cores: what it takes where nothing else runs
            print(
                f"{ranks} ranks x {len(text) / 1e6:.0f} MB, threads: {read + asked:.2f} s, {busy:.2f} s of processors"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=Path, default=Path("../shared/data/public/kineto/dlrm_8rank"))
    parser.add_argument("--megabytes", type=float, default=1)
    parser.add_argument("--counts", default="64,256,1024")
    parser.add_argument("--engine", default="threads", choices=ENGINES)
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    source = options.seed if options.seed.is_file() else min(options.seed.glob("*.json*"))
    if options.large:
        large(source, 8, 100)
    elif options.engines:
        for engine in ENGINES:
            by_ranks(source, options.megabytes, [64], engine)
    else:
        by_ranks(source, options.megabytes, [int(count) for count in options.counts.split(",")], options.engine)


if __name__ == "__main__":
    main()
