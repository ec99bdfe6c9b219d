"""Decoding a Kineto trace into checked tables, beside orjson.loads of the same bytes.

    python benchmarks/decode.py                      # grows its inputs (500 MB) under benchmarks/.cache
    python benchmarks/decode.py --megabytes 2000 --only gzip

Each figure is the median of several runs, candidates in turn, one fresh process per run; times are wall clock, memory
is the peak of the whole process with imports. `of text` is that peak over the uncompressed text.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).resolve().parent
SEED = HERE.parent.parent / "shared" / "data" / "public" / "kineto" / "ns_resolution_rank0.json.gz"


def tables(file: Path) -> float:
    """Wall seconds from the file to checked tables."""
    from timesink.readers import ReadLimits
    from timesink.readers.kineto import READER

    start = perf_counter()
    trace = READER.read(file, ReadLimits())
    seconds = perf_counter() - start
    assert sum(frame.height for frame in trace.tables.values()) > 1000
    return seconds


def loads(file: Path) -> float:
    """Wall seconds of orjson.loads alone: the bytes are in memory already."""
    import orjson

    text = file.read_bytes()
    start = perf_counter()
    events = orjson.loads(text)["traceEvents"]
    seconds = perf_counter() - start
    assert len(events) > 1000
    return seconds


def inflate(file: Path) -> float:
    """Wall seconds of unpacking alone, in the reader's windows."""
    from timesink.readers import ReadLimits
    from timesink.readers.kineto.windows import Windows

    start = perf_counter()
    for _ in Windows(file, ReadLimits()):
        pass
    return perf_counter() - start


CANDIDATES: dict[str, Callable[[Path], float]] = {"tables": tables, "loads": loads, "inflate": inflate}


def measured(candidate: str, file: Path) -> tuple[float, float]:
    """Seconds and peak megabytes of one run in a fresh process."""
    command = [sys.executable, __file__, "--run", candidate, "--file", str(file)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result["seconds"], result["peak_mb"]


def compare(text: Path, packed: Path, runs: int, only: str) -> None:
    """Print the table of medians and the ratios the bars are about."""
    plans = [("tables", packed), ("inflate", packed)]
    if only != "gzip":
        plans = [("tables", text), ("loads", text), *plans]
    results: dict[tuple[str, Path], list[tuple[float, float]]] = {plan: [] for plan in plans}
    for _ in range(runs):
        for plan in plans:
            results[plan].append(measured(*plan))
    size_mb = text.stat().st_size / 1e6
    print(f"{text.name}: {size_mb:.0f} MB of text, {packed.stat().st_size / 1e6:.0f} MB packed; medians of {runs}")
    median = {}
    for (candidate, file), found in results.items():
        seconds = statistics.median(run[0] for run in found)
        peak = statistics.median(run[1] for run in found)
        median[candidate, file] = seconds
        name = f"{candidate} {file.suffix}"
        print(
            f"  {name:14} {seconds:8.3f} s {size_mb / seconds:7.0f} MB/s {peak:7.0f} MB {peak / size_mb:6.2f} of text"
        )
    if only != "gzip":
        print(f"  orjson.loads / tables: {median['loads', text] / median['tables', text]:.1f} (bar 5)")
        parts = median["inflate", packed] + median["tables", text]
        print(f"  gzip tables / (inflate + plain tables): {median['tables', packed] / parts:.2f} (bar 1.3)")


def grown(megabytes: int, seed: Path) -> tuple[Path, Path]:
    """The grown trace, plain and packed, made once."""
    from isal import igzip

    from grow import grow

    cache = HERE / ".cache"
    cache.mkdir(exist_ok=True)
    text = cache / f"{seed.name.split('.')[0]}_{megabytes}.json"
    packed = text.with_suffix(".json.gz")
    if not text.exists():
        grow(seed, text, megabytes)
    if not packed.exists():
        with text.open("rb") as source, igzip.open(packed, "wb", compresslevel=2) as target:
            while window := source.read(8 << 20):
                target.write(window)
    return text, packed


def peak_mb() -> float:
    """Peak resident memory of this process: its own, where getrusage would also count the parent's before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=Path, default=SEED)
    parser.add_argument("--only", choices=["all", "gzip"], default="all")
    parser.add_argument("--run", choices=sorted(CANDIDATES))
    parser.add_argument("--file", type=Path)
    chosen = parser.parse_args()
    if chosen.run:
        taken = CANDIDATES[chosen.run](chosen.file)
        print(json.dumps({"seconds": taken, "peak_mb": peak_mb()}))
    else:
        compare(*grown(chosen.megabytes, chosen.seed), chosen.runs, chosen.only)
