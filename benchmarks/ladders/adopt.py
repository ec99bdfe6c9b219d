"""Take the results of `run_on_gpu.sh` into `captures/`: measurements of every round, captures cut to a few steps.

python -m benchmarks.ladders adopt OUT

Programs of OUT take the place of those of the same name; what is there of all others stays as it is.
A capture without marks is cut where the operators, or the device's work, have repeated so many times. Flow arrows,
which nothing reads, and arguments without a reader are left out; every other value is as the tool wrote it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sqlite3
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.faults import trim
from benchmarks.ladders import columns, suite

CAPTURES = Path(__file__).parent / "captures"
MEASURED = CAPTURES / "measured.json"
UNREAD = ("Ev Idx", "Record function id", "cbid")
DEVICE_TABLES = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"


def end_of(times: list[Any], steps: int, recorded: int = suite.STEPS) -> Any:
    """Of what `recorded` steps did, the first thing after so many of them."""
    if len(times) % recorded:
        raise SystemExit(f"{len(times)} things are no {recorded} steps")
    return times[len(times) * steps // recorded]


def outermost(operators: list[dict[str, Any]]) -> list[float]:
    """When the operators of the thread that began first began: those within no other, and of these the names that
    every step has equally often."""
    thread = min(operators, key=lambda event: event["ts"])["tid"]
    begins: dict[str, list[float]] = {}
    end = float("-inf")
    for event in sorted((e for e in operators if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
        if event["ts"] >= end:
            begins.setdefault(event["name"], []).append(event["ts"])
            end = event["ts"] + event["dur"]
    return sorted(begin for of_name in begins.values() if len(of_name) % suite.STEPS == 0 for begin in of_name)


def shorter_torch(text: bytes, steps: int) -> dict[str, Any]:
    trace = json.loads(text)
    events = [event for event in trace["traceEvents"] if event.get("cat") not in ("ac2g", "fwdbwd")]
    begins = outermost([event for event in events if event.get("cat") == "cpu_op"])
    if steps < suite.STEPS:
        end = end_of(begins, steps)
        mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#"}
        cuts = [{**mark, "ts": begins[0], "dur": end - begins[0]}, {**mark, "ts": end, "dur": 0.0}]
        names = {"ProfilerStep#"}
        events = [e for e in trim.kept_events([*events, *cuts], 1) if e.get("name") not in names]
    for event in events:
        for name in UNREAD:
            event.get("args", {}).pop(name, None)
    return columns.split_trace({**trace, "traceEvents": events})


def shorter_nsys(content: bytes, steps: int) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        Path(file.name).write_bytes(content)
        database = sqlite3.connect(file.name)
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        device = [name for name in DEVICE_TABLES if name in there]
        if steps < suite.STEPS:
            calls = " UNION ALL ".join(f"SELECT correlationId FROM {name}" for name in device)
            launches = database.execute(f"SELECT start FROM {RUNTIME} WHERE correlationId IN ({calls}) ORDER BY start")
            end = end_of([start for (start,) in launches], steps)
            for name in (RUNTIME, "OSRT_API"):
                if name in there:
                    database.execute(f"DELETE FROM {name} WHERE start >= ?", (end,))
        for name in (*device, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUDA_GPU_MEMORY_USAGE_EVENTS"):
            if name in there:
                database.execute(f"DELETE FROM {name} WHERE correlationId NOT IN (SELECT correlationId FROM {RUNTIME})")
        database.commit()
        database.close()
        return columns.split_tables(Path(file.name))


def there(path: Path) -> dict[str, Any]:
    """The captures that a file holds; none where there is no such file."""
    return columns.unpack(path.read_bytes()) if path.exists() else {}


def adopted(archive: Path, tool: str, steps: int) -> None:
    """Every capture of one tool in one file, where names that all use are kept once; with what is there of others."""
    path = CAPTURES / f"{tool}.columns.xz"
    captures = there(path)
    with tarfile.open(archive) as source:
        for member in source:
            content = source.extractfile(member)
            if content is None or "/" in member.name:
                raise SystemExit(f"{archive.name}: {member.name!r} is no plain file of a result")
            whole = lzma.decompress(content.read())
            name = member.name.partition(".")[0]
            captures[name] = shorter_torch(whole, steps) if tool == "torch" else shorter_nsys(whole, steps)
    path.write_bytes(columns.pack(captures))
    print(f"{tool}: {path.stat().st_size / 1e3:.0f} KB")


def unpacked(tool: str, folder: Path) -> None:
    """The captures of one tool as files that it could have written: NAME.json or NAME.sqlite."""
    for name, parts in there(CAPTURES / f"{tool}.columns.xz").items():
        if tool == "torch":
            columns.write_trace(parts, folder / f"{name}.json")
        else:
            columns.write_tables(parts, folder / f"{name}.sqlite")


def kept(measured: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """By program and set of changes: ms of every block of every round, and whether all receipts agreed."""
    found: dict[str, Any] = {}
    for name, rounds in measured.items():
        for result_of in rounds.values():
            for variant, result in result_of.items():
                case = found.setdefault(name, {}).setdefault(variant, {"blocks_ms": [], "equal": True})
                case["blocks_ms"].append([round(block, 3) for block in result.get("blocks_ms", ())])
                case["equal"] &= result.get("receipts_equal", False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=suite.KEPT, help="how many steps of each capture are kept")
    given = parser.parse_args()
    CAPTURES.mkdir(exist_ok=True)
    measured = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    measured |= kept(json.loads((given.out / "measured.json").read_text()))
    MEASURED.write_text(json.dumps(measured, separators=(",", ":"), sort_keys=True) + "\n")
    for tool in ("torch", "nsys"):
        adopted(given.out / f"{tool}.tar", tool, given.steps)


if __name__ == "__main__":
    main()
