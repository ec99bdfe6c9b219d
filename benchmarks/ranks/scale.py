"""What a thousand ranks take: generated jobs of 64, 256 and 1,024 ranks, read serially and on Dask with an accident.

    python -m benchmarks.ranks.scale                    each job read by the serial engine, then by Dask on two workers
    python -m benchmarks.ranks.scale --counts 16,64     smaller jobs

In each job one file is damaged. While Dask reads, one of its workers is killed. Both runs must give the same digest of
all tables and of the printed page, set the same file aside, and find the clock of every host within its stated error.
Cost is fitted as ranks to a power.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.inputs import seed
from benchmarks.ranks.generated import bodies, folder, spoil, write_ranks
from benchmarks.runs import ROOT, Row, Run, at_most, best_of, over_floor, run, show, unpack

SEEDS = ROOT.parent / "shared" / "data" / "public" / "kineto" / "dlrm_8rank"
NAME = "ranks"
CPU_BAR_MS, GROWTH_BAR = 120.0, 1.05
_DAMAGED = 17


def rows(seeds: list[Path], events: int, counts: list[int]) -> Iterator[Row]:
    """A job of each number of ranks, largest last."""
    made = bodies(seeds, events)
    cost: dict[int, Run] = {}
    for count in counts:
        with folder() as traces:
            total = write_ranks(made, count, traces)
            spoil(sorted(traces.glob("rank*"))[min(_DAMAGED, count - 1)])
            size = sum(file.stat().st_size for file in traces.iterdir()) / 1e9
            what = f"{count:,} ranks"
            yield Row(NAME, f"{what}: {total / 1e6:.1f} M events", f"{size:.2f} GB packed")
            cost[count] = run(_measuring("serial", traces))
            serial = json.loads(cost[count].text)
            yield _noted(f"{what}, serial", cost[count], serial)
            taken = run(_measuring("dask", traces))
            dask = json.loads(taken.text)
            yield _noted(f"{what}, Dask, a worker killed", taken, dask)
            yield from _laws(what, serial, dask)
    for pair in pairwise(counts):
        between = exponent({count: cost[count] for count in pair})
        yield Row(NAME, f"exponent of CPU time, {pair[0]:,} to {pair[1]:,} ranks", f"{between:.2f}")
    if len(counts) > 1:
        yield Row(NAME, "exponent of CPU time, all together", f"{exponent(cost):.2f}")


def growth(events: int, counts: tuple[int, ...]) -> Iterator[Row]:
    """Jobs read serially, without an accident: how cost grows with ranks, beside the unpacking of their files alone."""
    made = bodies(sorted(SEEDS.glob("*.json*")) or [seed()], events)
    cost: dict[int, Run] = {}
    for count in counts:
        with folder() as traces:
            total = write_ranks(made, count, traces)
            cost[count] = run(_measuring("serial", traces))
            said = json.loads(cost[count].text)
            floor_s = sum(best_of(1, unpack, file) for file in traces.iterdir())
        what = f"{count:,} ranks, {total / 1e6:.1f} M events"
        yield _noted(what, cost[count], said)
        yield over_floor(NAME, what, said["read_s"], "unpack every file", floor_s)
        yield at_most(NAME, f"{count:,} ranks, CPU a rank", 1e3 * cost[count].cpu_s / count, CPU_BAR_MS, "ms")
    what = f"growth exponent of CPU time, {counts[0]} to {counts[-1]} ranks"
    yield Row(NAME, what, f"{exponent(cost):.2f}", f"<= {GROWTH_BAR}", exponent(cost) <= GROWTH_BAR)


def _noted(what: str, taken: Run, said: dict[str, Any]) -> Row:
    wall = f"{said['read_s']:.1f} s to read, {said['compare_s']:.1f} s to compare"
    cpu = f"{taken.cpu_s:.0f} s of CPU, {1e3 * taken.cpu_s / said['files']:.0f} ms a rank"
    return Row(NAME, what, f"{wall}; {cpu}; peak {said['peak_mb']:,.0f} MB")


def _laws(what: str, serial: dict[str, Any], dask: dict[str, Any]) -> Iterator[Row]:
    """What must hold whatever the speed, and what the workers took."""
    yield _law(f"{what}: same tables and page, serial and Dask", serial["digest"] == dask["digest"])
    aside = serial["aside"] == dask["aside"] and len(serial["aside"]) == serial["missing"] == 1
    yield _law(f"{what}: damaged file set aside, its rank named as missing", aside)
    replaced = dask["killed"] == 1 and dask["workers_seen"] > dask["workers"]
    yield _law(f"{what}: a worker killed, another started in its place", replaced)
    yield _law(f"{what}: clock of every host within its stated error", serial["clock_misses"] == 0)
    yield Row(NAME, f"{what}: Dask workers, most memory", f"{max(dask['worker_peak_mb']):,.0f} MB each")


def _law(what: str, holds: bool) -> Row:
    return Row(NAME, what, "yes" if holds else "no", "yes", holds)


def _measuring(engine: str, traces: Path) -> list[str]:
    """One file at a time on one thread, as `timesink ranks` and workers read many."""
    one_thread = ("env", "POLARS_MAX_THREADS=1", "OPENBLAS_NUM_THREADS=1")
    return [*one_thread, sys.executable, "-m", "benchmarks.ranks.one_run", engine, str(traces)]


def exponent(cost: dict[int, Run]) -> float:
    """The power of the number of ranks that seconds of CPU follow: the slope of the line through their logarithms."""
    points = [(math.log(count), math.log(taken.cpu_s)) for count, taken in cost.items()]
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=Path, default=SEEDS, help="a folder of real ranks of one job")
    parser.add_argument("--events", type=int, default=200_000, help="events of each rank, at least")
    parser.add_argument("--counts", default="64,256,1024")
    options = parser.parse_args()
    seeds = sorted(options.seeds.glob("*.json*"))
    if not seeds:
        parser.error(f"{options.seeds} holds no traces")
    return 0 if show(rows(seeds, options.events, [int(count) for count in options.counts.split(",")])) else 1


if __name__ == "__main__":
    sys.exit(main())
