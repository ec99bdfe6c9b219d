"""Decoding a Kineto trace into checked tables, beside orjson.loads of the same bytes.

    python -m benchmarks.decode [--megabytes 500] [--runs 5]

Each figure is the median of several runs, candidates in turn, one fresh process per run. Seconds are those of the work
alone, imports left out; the rival's bytes are in memory already. Memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.inputs import grown, traces
from benchmarks.runs import Row, at_least, at_most, best_of, look_at, over_floor, run, show, unpack

from benchmarks import peers

NAME = "decode"
LOADS_BAR, GZIP_BAR, MEMORY_BAR, MB_PER_S_BAR = 5.0, 1.3, 0.6, 1000.0


def tables(file: Path) -> float:
    """Wall seconds from the file to checked tables, as a command reads it."""
    import numpy.ma  # noqa: F401  # which Polars loads where no command has kept it from that

    from timesink._native import keep_freed
    from timesink.readers import ReadLimits
    from timesink.readers.kineto import READERS, decoded, tables
    from timesink.startup import RARE_COLLECTIONS

    assert decoded.decode and tables.to_trace
    gc.set_threshold(*RARE_COLLECTIONS)
    keep_freed(one_heap=True)
    start = perf_counter()
    trace = READERS[0].read(file, ReadLimits())
    seconds = perf_counter() - start
    assert sum(frame.height for frame in trace.tables.values()) > 1000
    return seconds


def tables_on_one_thread(file: Path) -> float:
    """The same on one thread."""
    os.environ["POLARS_MAX_THREADS"] = "1"
    return tables(file)


def loads(file: Path) -> float:
    """Wall seconds of orjson.loads alone."""
    import orjson

    text = file.read_bytes()
    start = perf_counter()
    events = orjson.loads(text)["traceEvents"]
    seconds = perf_counter() - start
    assert len(events) > 1000
    return seconds


CANDIDATES: dict[str, Callable[[Path], float]] = {
    "tables": tables,
    "tables, one thread": tables_on_one_thread,
    "loads": loads,
}


def rows(runs: int, megabytes: int = 500) -> Iterator[Row]:
    """One row per candidate, then the ratios the bars are about."""
    with traces(megabytes) as (packed,):
        text = grown(megabytes)
        size_mb = text.stat().st_size / 1e6
        plans = [("tables", text), ("tables, one thread", text), ("loads", text), ("tables", packed)]
        taken: dict[tuple[str, Path], list[tuple[float, float]]] = {plan: [] for plan in plans}
        for _ in range(runs):
            for candidate, file in plans:
                done = run([sys.executable, "-m", "benchmarks.decode", "--run", candidate, "--file", str(file)])
                taken[candidate, file].append((json.loads(done.text)["seconds"], done.peak_mb))
        beside = list(_peers(text, runs))
        looked_s, copied_s, unpacked_s = (
            best_of(runs, work, file) for work, file in ((look_at, text), (_copy, text), (unpack, packed))
        )
    median = {}
    for (candidate, file), found in taken.items():
        seconds, peak_mb = (statistics.median(column) for column in zip(*found, strict=True))
        median[candidate, file] = seconds, peak_mb
        figure = f"{seconds:.2f} s, {size_mb / seconds:,.0f} MB/s, {peak_mb:,.0f} MB"
        yield Row(NAME, f"{candidate}, {size_mb:.0f} MB{' gzip' if file == packed else ''}", figure)
    plain_s, peak_mb = median["tables", text]
    per_core = size_mb / median["tables, one thread", text][0]
    bar = f">= {MB_PER_S_BAR:,.0f} MB/s"
    yield Row(NAME, "tables, one thread", f"{per_core:,.0f} MB/s", bar, per_core >= MB_PER_S_BAR)
    yield at_least(NAME, "orjson.loads / checked tables", median["loads", text][0] / plain_s, LOADS_BAR)
    yield at_most(NAME, "peak memory / text", peak_mb / size_mb, MEMORY_BAR, "x")
    for name, seconds, peer_mb in beside:
        figure = f"{seconds:.2f} s, {size_mb / seconds:,.0f} MB/s, {peer_mb:,.0f} MB; {seconds / plain_s:.1f} x tables"
        yield Row(NAME, name, figure)
    packed_s = median["tables", packed][0]
    yield over_floor(NAME, "tables", plain_s, "read and look once", looked_s)
    yield over_floor(NAME, "tables", plain_s, "read whole and copied once", copied_s)
    yield over_floor(NAME, "tables of gzip", packed_s, "unpack", unpacked_s)
    yield at_most(NAME, "gzip / (unpacking + plain)", packed_s / (unpacked_s + plain_s), GZIP_BAR, "x")


def _copy(text: Path) -> None:
    """Read the file whole into fresh memory, and copy that."""
    bytearray(text.read_bytes())


def _peers(text: Path, runs: int) -> Iterator[tuple[str, float, float]]:
    """Name, seconds and peak memory of the libraries, where `python -m benchmarks.peers` made their environment.

    They make objects, no tables.
    """
    if peers.interpreter() is None:
        return
    for name in peers.LOADS:
        taken = [run(peers.loading(name, text)) for _ in range(runs)]
        seconds = statistics.median(json.loads(done.text)["seconds"] for done in taken)
        yield name, seconds, statistics.median(done.peak_mb for done in taken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--run", choices=sorted(CANDIDATES), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        print(json.dumps({"seconds": CANDIDATES[chosen.run](chosen.file)}))
    else:
        show(rows(chosen.runs, chosen.megabytes))
