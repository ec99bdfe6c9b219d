"""Reading and diagnosing a large Nsight Systems SQLite export, against `sqlite3` and Python lists.

    python -m benchmarks.sqlite [--kernels 5000000] [--calls 10000000] [--runs 3] [--keep]

The export is grown from a real one: its events repeated, with shifted times and correlation ids. Every run is a process
of its own, the candidates take turns, and the table shows medians. `sqlite3` fetches the same columns of the same
tables, and turns them into lists; it checks, sorts, names and diagnoses nothing. Seconds leave imports out.
"""

from __future__ import annotations

import argparse
import json
import math
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from benchmarks.inputs import CACHE
from benchmarks.peers import nsys_ai
from benchmarks.runs import ROOT, TIMESINK, Row, at_most, best_of, look_at, noted, over_floor, run, show

NAME = "sqlite"
BARS = {"read": (9.0, None), "read and diagnose": (25.0, 3000.0)}
"""Seconds and megabytes of 5 M kernels and 10 M calls."""
GROWTH_BAR = 1.05
LARGEST_BAR_S, LARGEST_BAR_MB = 60.0, 6000
SEEDS = (
    ROOT.parent / "shared" / "data" / "own" / "nsys" / "gpt_before.sqlite",
    ROOT / "tests" / "data" / "nsys" / "gpt_before_5_steps.sqlite",
)
KERNEL, CALL, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
REPEATED = (
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    RANGES,
)
# Two calls per kernel, as asked: the seed's many look-ups of kernel names are left out.
NO_LOOKUPS = "nameId NOT IN (SELECT id FROM StringIds WHERE value LIKE 'cuKernelGetName%' OR value LIKE 'cuGetProc%')"


def grow(seed: Path, target: Path, kernels: int, calls: int) -> None:
    """Repeat the seed's events until there are `kernels` kernels and `calls` calls."""
    partial = target.with_suffix(".part")
    partial.unlink(missing_ok=True)
    partial.write_bytes(seed.read_bytes())
    db = sqlite3.connect(partial)
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("PRAGMA synchronous=OFF")
    begin, end = db.execute(f"SELECT min(start), max(end) FROM {CALL}").fetchone()
    marked = db.execute(f"SELECT min(start), max(end) FROM {RANGES} WHERE end > {begin}").fetchone()
    period = max(end, marked[1]) - min(begin, marked[0]) + 1000  # ranges of copies that overlap would nest
    ids = db.execute(f"SELECT max(correlationId) + 1 FROM {CALL}").fetchone()[0]
    db.execute(f"DELETE FROM {CALL} WHERE NOT ({NO_LOOKUPS})")
    events = {KERNEL: kernels, CALL: calls, **dict.fromkeys(REPEATED, 1 << 62)}
    seeds = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in events}
    repeats = max(-(-kernels // seeds[KERNEL]), -(-calls // seeds[CALL]))
    for table, wanted in events.items():
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        moved = {"start": "+ c.n * :period", "end": "+ c.n * :period", "correlationId": "+ c.n * :ids"}
        shown = ", ".join(f'"{name}" {moved.get(name, "")}' for name in columns)
        db.execute(f"CREATE TEMP TABLE seed AS SELECT * FROM {table}")
        db.execute(
            f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n + 1 < :repeats) "
            f"INSERT INTO {table} SELECT {shown} FROM c CROSS JOIN seed LIMIT :rows",
            {"period": period, "ids": ids, "repeats": repeats, "rows": wanted - seeds[table]},
        )
        db.execute("DROP TABLE seed")
        db.commit()
    db.close()
    partial.replace(target)


def read_timesink(path: Path) -> int:
    from timesink.readers import read

    trace = read(path, cache=False)
    return sum(trace[table].height for table in trace)


def diagnose_timesink(path: Path) -> int:
    """Rows read, and diagnosed."""
    from timesink.diagnosis.engine import diagnose
    from timesink.readers import read

    trace = read(path, cache=False)
    assert diagnose(trace).statement
    return sum(trace[table].height for table in trace)


def read_lists(path: Path) -> int:
    from timesink.readers.nsys.export import DECLARED, STRINGS

    rows = 0
    kept = []
    with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as db:
        for source in (STRINGS, *(source for source in DECLARED if source.columns.keys() & {"start", "timestamp"})):
            present = {row[1] for row in db.execute(f"PRAGMA table_info({source.name})")}
            wanted = ", ".join(f'"{name}"' for name in source.columns if name in present)
            if not wanted:
                continue
            columns = [
                list(column)
                for column in zip(*db.execute(f"SELECT {wanted} FROM {source.name}").fetchall(), strict=True)
            ]
            rows += len(columns[0]) if columns else 0
            kept.append(columns)
    return rows


CANDIDATES = {"read": read_timesink, "read and diagnose": diagnose_timesink, "sqlite3 and lists": read_lists}


def one(candidate: str, path: Path) -> dict[str, float]:
    """The work of one candidate in this process; what it imports is imported before the clock starts."""
    import timesink.readers.nsys.assemble  # noqa: F401
    from timesink.diagnosis.registry import all_rules

    all_rules()
    started = time.perf_counter()
    count = CANDIDATES[candidate](path)
    return {"seconds": time.perf_counter() - started, "rows": count}


def rows(runs: int, kernels: int = 5_000_000, calls: int = 10_000_000, keep: bool = False) -> Iterator[Row]:
    """One row per candidate, then the ratios to the lists."""
    CACHE.mkdir(exist_ok=True)
    path = CACHE / f"nsys_{kernels}_{calls}.sqlite"
    if not path.is_file():
        grow(next(seed for seed in SEEDS if seed.is_file()), path, kernels, calls)
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in CANDIDATES}
    try:
        for _ in range(runs):
            for name in CANDIDATES:
                done = run([sys.executable, "-m", "benchmarks.sqlite", "--one", name, "--file", str(path)])
                found = json.loads(done.text.splitlines()[-1])
                taken[name].append((found["seconds"], found["rows"], done.peak_mb))
        looked_s, stepped_s = best_of(runs, look_at, path), best_of(runs, _step, path)
    finally:
        if not keep:
            path.unlink()
    seconds = {name: statistics.median(entry[0] for entry in found) for name, found in taken.items()}
    for name, found in taken.items():
        count, peak_mb = found[0][1], statistics.median(entry[2] for entry in found)
        figure = f"{seconds[name]:.2f} s, {count / seconds[name] / 1e6:.2f} M rows/s, {peak_mb:,.0f} MB"
        yield Row(NAME, f"{name}: {kernels / 1e6:g} M kernels, {calls / 1e6:g} M calls", figure)
    yield over_floor(NAME, "read", seconds["read"], "read the file and look once", looked_s)
    yield over_floor(NAME, "read", seconds["read"], "SQLite steps over kernels and calls, one core", stepped_s)
    yield Row(NAME, "sqlite3 and lists / read", f"{seconds['sqlite3 and lists'] / seconds['read']:.3g} x")
    for name, (most_s, most_mb) in BARS.items():
        yield at_most(NAME, name, seconds[name], most_s, "s")
        if most_mb is not None:
            yield at_most(
                NAME, f"{name}: peak memory", statistics.median(entry[2] for entry in taken[name]), most_mb, "MB"
            )


def _step(path: Path) -> None:
    """Let SQLite itself step over every kernel and call and add up one column, on one core."""
    with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as db:
        for table in (KERNEL, CALL):
            db.execute(f"SELECT total(end) FROM {table} NOT INDEXED").fetchone()


def growth(kernels: int, calls: int) -> Iterator[Row]:
    """The exponent of CPU time and of memory in the number of kernels, over one, four and sixteen times as many."""
    taken = []
    for share in (16, 4, 1):
        path = CACHE / f"nsys_growth_{kernels // share}.sqlite"
        grow(next(seed for seed in SEEDS if seed.is_file()), path, kernels // share, calls // share)
        try:
            done = run([sys.executable, "-m", "benchmarks.sqlite", "--one", "read and diagnose", "--file", str(path)])
        finally:
            path.unlink()
        taken.append(done)
        yield noted(NAME, f"read and diagnosed, {kernels // share / 1e6:g} M kernels, imports included", done)
    for small, large, what in zip(taken, taken[1:], ("1 to 4", "4 to 16"), strict=False):
        cpu, memory = (math.log(b / a, 4) for a, b in ((small.cpu_s, large.cpu_s), (small.peak_mb, large.peak_mb)))
        yield Row(NAME, f"growth exponent, {what} times, of CPU time and memory", f"{cpu:.2f}, {memory:.2f}",
                  f"<= {GROWTH_BAR} (CPU)", cpu <= GROWTH_BAR)  # fmt: skip


def largest(kernels: int, calls: int, keep: bool) -> Iterator[Row]:
    """One diagnosis of so many kernels: the largest export that must fit."""
    CACHE.mkdir(exist_ok=True)
    path = CACHE / f"nsys_{kernels}_{calls}.sqlite"
    if not path.is_file():
        grow(next(seed for seed in SEEDS if seed.is_file()), path, kernels, calls)
    try:
        taken = run([*TIMESINK, "diagnose", "--no-cache", "--format", "json", str(path)])
    finally:
        if not keep:
            path.unlink()
    size = f"{kernels / 1e6:g} M kernels, {calls / 1e6:g} M calls"
    yield noted(NAME, f"diagnose, {size}, once", taken)
    yield at_most(NAME, f"diagnose, {size}", taken.seconds, LARGEST_BAR_S, "s")
    yield at_most(NAME, f"peak memory, {size}", taken.peak_mb, LARGEST_BAR_MB, "MB")


def beside_nsys_ai(kernels: int, calls: int) -> Iterator[Row]:
    """`nsys-ai diagnose` and `timesink diagnose` of one export, both from the command line."""
    command = nsys_ai()
    if command is None:
        return
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        path = Path(folder) / "export.sqlite"
        grow(next(seed for seed in SEEDS if seed.is_file()), path, kernels, calls)
        ours = run([*TIMESINK, "diagnose", "--no-cache", "--format", "json", str(path)])
        theirs = run([str(command), "diagnose", str(path)])
    size = f"{kernels / 1e6:g} M kernels"
    yield noted(NAME, f"timesink diagnose, {size}", ours)
    yield noted(NAME, f"nsys-ai 0.3.0 diagnose, {size}", theirs)
    yield Row(NAME, "CPU time: nsys-ai / timesink", f"{theirs.cpu_s / ours.cpu_s:.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="only how time and memory grow, and nsys-ai beside us")
    parser.add_argument("--largest", action="store_true", help="only one diagnosis of that export, and its memory")
    parser.add_argument("--keep", action="store_true", help="keep the grown file for the next time")
    parser.add_argument("--one", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.file)))
    elif options.growth:
        show(chain(growth(options.kernels, options.calls), beside_nsys_ai(options.kernels // 16, options.calls // 16)))
    elif options.largest:
        show(largest(options.kernels, options.calls, options.keep))
    else:
        show(rows(options.runs, options.kernels, options.calls, options.keep))


if __name__ == "__main__":
    main()
