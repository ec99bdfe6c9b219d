"""Reading a large Nsight Systems SQLite export: checked tables against `sqlite3` and Python lists.

    python benchmarks/sqlite.py [--kernels 5000000] [--calls 10000000] [--runs 3] [--keep]

The export is grown from a real one: its events repeated, with shifted times and correlation ids. Every run is a process
of its own, the candidates take turns, and the table shows medians. `sqlite3` fetches the same columns of the same
tables, and turns them into lists; it checks, sorts and names nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = HERE / ".cache"
SEEDS = (
    ROOT.parent / "shared" / "data" / "own" / "nsys" / "gpt_before.sqlite",
    ROOT / "tests" / "data" / "nsys" / "gpt_before_5_steps.sqlite",
)
KERNEL, CALL = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
REPEATED = (
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
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
    period = db.execute(f"SELECT max(end) - min(start) + 1000 FROM {CALL}").fetchone()[0]
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


def read_lists(path: Path) -> int:
    from timesink.readers.nsys.export import EVENT_SOURCES, STRINGS

    rows = 0
    kept = []
    with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as db:
        for source in (STRINGS, *EVENT_SOURCES):
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


CANDIDATES = {"timesink.read": read_timesink, "sqlite3 + lists": read_lists}


def measure(candidate: str, path: Path) -> dict[str, float]:
    """One run in a process of its own."""
    command = [sys.executable, __file__, "--one", candidate, "--file", str(path)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))


def one(candidate: str, path: Path) -> None:
    import timesink.readers.nsys.assemble  # noqa: F401 - the import is not what is timed

    started, worked = time.perf_counter(), time.process_time()
    rows = CANDIDATES[candidate](path)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "rows": rows, "peak_bytes": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keep the grown file for the next time")
    parser.add_argument("--one", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.file)
        return
    CACHE.mkdir(exist_ok=True)
    path = CACHE / f"nsys_{options.kernels}_{options.calls}.sqlite"
    if not path.is_file():
        grow(next(seed for seed in SEEDS if seed.is_file()), path, options.kernels, options.calls)
    try:
        report(path, options.runs)
    finally:
        if not options.keep:
            path.unlink()


def report(path: Path, runs: int) -> None:
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in CANDIDATES}
    for _ in range(runs):
        for name in CANDIDATES:
            taken[name].append(measure(name, path))
    size = path.stat().st_size
    print(f"{path.name}: {size / 1e6:.0f} MB, median of {runs} runs, one process each")
    print(f"{'':18}{'seconds':>9}{'CPU s':>9}{'M rows/s':>10}{'peak MB':>9}")
    median = {}
    for name, results in taken.items():
        median[name] = statistics.median(result["seconds"] for result in results)
        rows = results[0]["rows"] / median[name] / 1e6
        peak = statistics.median(result["peak_bytes"] for result in results) / 1e6
        work = statistics.median(result["cpu_seconds"] for result in results)
        print(f"{name:18}{median[name]:9.2f}{work:9.2f}{rows:10.2f}{peak:9.0f}")
    print(f"{median['sqlite3 + lists'] / median['timesink.read']:.1f} times as fast (bar: 5)")


if __name__ == "__main__":
    main()
