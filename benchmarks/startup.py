"""How long a user waits before anything happens: help, import, and the diagnosis of a small trace.

    python -m benchmarks.startup [--runs 7]

Each figure is the median over fresh processes, the bare interpreter's start included. The files of the package are in
the page cache, and its modules compiled, after the first run, which is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator

from benchmarks.inputs import traces
from benchmarks.runs import TIMESINK, Row, at_most, in_turn, noted, run, show

NAME = "start-up"
SMALL_MB = 10
IMPORT = "from time import perf_counter as now; start = now(); import timesink; print((now() - start) * 1e3)"
HELP_MS, IMPORT_MS, DIAGNOSE_CPU_S = 80, 20, 0.6


def rows(runs: int) -> Iterator[Row]:
    """One row per figure."""
    with traces(SMALL_MB) as (small,):
        commands = [
            [sys.executable, "-c", "pass"],
            [*TIMESINK, "--help"],
            [sys.executable, "-c", IMPORT],
            [*TIMESINK, "diagnose", "--no-cache", str(small)],
        ]
        for command in commands:
            run(command)
        bare, shown, _, diagnosed = in_turn(commands, runs)
        imported_ms = statistics.median(float(run(commands[2]).text) for _ in range(runs))
    yield noted(NAME, "python -c pass", bare)
    yield at_most(NAME, "timesink --help", shown.seconds * 1e3, HELP_MS, "ms")
    yield at_most(NAME, "import timesink", imported_ms, IMPORT_MS, "ms")
    yield at_most(NAME, f"timesink diagnose, {SMALL_MB} MB gzip'd, CPU", diagnosed.cpu_s, DIAGNOSE_CPU_S, "s")
    yield noted(NAME, f"timesink diagnose, {SMALL_MB} MB gzip'd", diagnosed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    show(rows(parser.parse_args().runs))
