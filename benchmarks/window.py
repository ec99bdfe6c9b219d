"""Diagnosing one hundredth of a large trace through a window, beside diagnosing all of it.

    python -m benchmarks.window [--megabytes 500] [--kernels 1000000] [--runs 1]

The inputs are grown from real ones: a PyTorch trace, plain and packed, and an Nsight Systems export. The window is the
time in which the middle hundredth of the GPU operations start. Every run is a process of its own, imports included.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.inputs import CACHE, grown, packed
from benchmarks.runs import TIMESINK, Row, in_turn, noted, run, show

from benchmarks import sqlite

NAME = "window"
SHARE = 0.01
DIAGNOSE = (*TIMESINK, "diagnose", "--no-cache", "--format", "json")


def middle(path: Path) -> str:
    """The window in which the middle hundredth of the GPU operations start."""
    from timesink.model.tables import DEVICE_OPS
    from timesink.readers import read

    trace = read(path, cache=False)
    starts = trace[DEVICE_OPS]["start_ns"].sort()
    first_ns, _ = trace.extent_ns or (0, 0)
    begin, end = (int(starts[int(len(starts) * at)]) - first_ns for at in (0.5, 0.5 + SHARE))
    return f"{begin}ns:{end}ns"


def rows(runs: int, megabytes: int = 500, kernels: int = 1_000_000) -> Iterator[Row]:
    """Whole and window of each format, and how many times less each takes."""
    CACHE.mkdir(exist_ok=True)
    export = CACHE / f"nsys_window_{kernels}.sqlite"
    sqlite.grow(next(seed for seed in sqlite.SEEDS if seed.is_file()), export, kernels, 2 * kernels)
    text = grown(megabytes)
    inputs = {f"{megabytes} MB of JSON": text, f"{megabytes} MB of JSON, packed": packed(text)}
    inputs[f"export of {kernels / 1e6:g} M kernels"] = export
    try:
        for what, path in inputs.items():
            yield from _beside(what, path, runs)
    finally:
        for path in inputs.values():
            path.unlink()


def _beside(what: str, path: Path, runs: int) -> Iterator[Row]:
    window = run([sys.executable, "-m", "benchmarks.window", "--middle", str(path)]).text.strip()
    whole, cut = in_turn([[*DIAGNOSE, str(path)], [*DIAGNOSE, "--window", window, str(path)]], runs)
    yield noted(NAME, f"diagnose, {what}", whole)
    yield noted(NAME, f"the same, a window of {SHARE:.0%}", cut)
    seconds, cpu, memory = whole.seconds / cut.seconds, whole.cpu_s / cut.cpu_s, whole.peak_mb / cut.peak_mb
    ratios = f"{seconds:.1f} x, {cpu:.1f} x, {memory:.1f} x"
    yield Row(NAME, f"{what}: whole / window, in seconds, seconds of CPU and memory", ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--middle", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.middle:
        print(middle(options.middle))
    else:
        show(rows(options.runs, options.megabytes, options.kernels))


if __name__ == "__main__":
    main()
