"""Make captures small and anonymous: few steps, no host name, path, argument or environment, one nsys file a case.

python -m benchmarks.faults.trim torch RAW.json OUT.json
python -m benchmarks.faults.trim nsys REPORT.sqlite FOLDER
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PATHS = re.compile(r"(?:/[^/\s\"]+)+?/(?=(?:site-packages|benchmarks|python3\.\d+)/)")
ABSOLUTE = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
UNREAD = ("Ev Idx", "Record function id", "cbid")
"""Arguments that no reader uses and that take a tenth of a packed trace."""
ARROWS = ("s", "t", "f")
"""Phases of events that only draw, from a call to its kernel, say: no reader keeps them, and they are a quarter."""
DROPPED_TOP = ("trace_id", "distributedInfo", "host_name", "hostname")
SAID_OF_A_JOB = ("backend", "rank", "world_size", "pg_count", "pg_config", "nccl_version")
ONE_HOST = "node"
"""Every rank's host: the ranks of the suite share one, and its clock."""
EXACT_MICROSECONDS = 2**53 / 1000

CASE = "case "
TIMED = re.compile(r"^(CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|OSRT_API|PROFILER_OVERHEAD)$")
WHOLE = re.compile(r"^(ENUM_\w+|TARGET_INFO_(GPU|CUDA_DEVICE|CUDA_CONTEXT_INFO|CUDA_STREAM|SESSION_START_TIME))$")
PROCESS = "(globalTid - globalTid % 16777216)"
"""A process's globalPid, from the globalTid of one of its threads."""
STRING_COLUMNS = ("demangledName", "shortName", "mangledName", "nameId", "textId", "jsonTextId")
ALLOWED = {
    "META_DATA_EXPORT": re.compile(r"^EXPORT_(PRODUCT_\w+|SCHEMA_\w+|PLATFORM|ARCH)$"),
    "META_DATA_CAPTURE": re.compile(
        r"^(CAPTURE_EVENT_TYPE|START_TRIGGER|STOP_TRIGGER|(PROCESS_\d+:)?(COLLECT_\w+|CUDA_GRAPH_TRACE_OPTIONS:MODE))$"
    ),
    "TARGET_INFO_SYSTEM_ENV": re.compile(
        r"^(CpuCores|CpuArchitecture|NvDriverVersion|CudaDriverVersion|Has(Cuda|Nvtx|OSRuntime)Events)$"
    ),
}


def scrubbed(value: Any) -> Any:
    """Text without the folders that say where a program or library lay."""
    if isinstance(value, str):
        return ABSOLUTE.sub("", PATHS.sub("", value)) if "/" in value else value
    if isinstance(value, list):
        return [scrubbed(part) for part in value]
    if isinstance(value, dict):
        return {key: scrubbed(part) for key, part in value.items()}
    return value


def profiler_steps(events: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Begin and end in µs of the host's ProfilerStep ranges, in time order."""
    host = (event for event in events if event.get("ph") == "X" and event.get("cat") == "user_annotation")
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in host if str(e["name"]).startswith("ProfilerStep#"))


def kept_events(events: list[dict[str, Any]], steps: int) -> Iterator[dict[str, Any]]:
    """Metadata, what the host began up to the end of step number `steps`, and the device work it launched."""
    bounds = profiler_steps(events)
    if len(bounds) <= steps:
        yield from events
        return
    end = bounds[steps - 1][1]
    device = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")
    calls = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and event["ts"] < end
        and "correlation" in event.get("args", {})
    }
    for event in events:
        if event.get("ph") == "M":
            yield event
        elif event.get("cat") in device and event["cat"] != "gpu_user_annotation":
            if event.get("args", {}).get("correlation") in calls:
                yield event
        elif event.get("cat") == "ac2g":
            if event.get("id") in calls:
                yield event
        elif event.get("ts", 0) < end:
            yield event


def trim_torch(source: Path, target: Path, steps: int) -> None:
    """A smaller trace of the same times: every number is written back digit for digit."""
    trace = json.loads(source.read_bytes())
    latest = max((event.get("ts", 0) for event in trace["traceEvents"]), default=0)
    if latest >= EXACT_MICROSECONDS:
        raise SystemExit(f"{source.name}: a time of {latest} µs would lose its nanoseconds")
    job = trace.get("distributedInfo", {})
    for name in DROPPED_TOP:
        trace.pop(name, None)
    if job.get("world_size", 1) > 1:
        trace |= {"distributedInfo": {name: job[name] for name in SAID_OF_A_JOB if name in job}, "host_name": ONE_HOST}
    trace["traceName"] = target.name
    trace["traceEvents"] = [
        scrubbed(event) for event in kept_events(trace["traceEvents"], steps) if event.get("ph") not in ARROWS
    ]
    for event in trace["traceEvents"]:
        for name in UNREAD:
            event.get("args", {}).pop(name, None)
    target.write_text(json.dumps(trace, separators=(",", ":")))


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA source.table_info("{table}")')]


def copy_rows(database: sqlite3.Connection, table: str, condition: str = "1", values: tuple[object, ...] = ()) -> None:
    database.execute(f'INSERT INTO main."{table}" SELECT * FROM source."{table}" WHERE {condition}', values)


def copy_window(database: sqlite3.Connection, table: str, begin: int, end: int) -> None:
    """Rows of a timed table that began in the window; those without a time, by the calls of their process that did.

    Of several ranks' calls of the operating system only the ranks' own, not their launcher's.
    """
    names = columns(database, table)
    if "start" in names:
        keep = "start >= ? AND start <= ?"
        if table == "NVTX_EVENTS":  # 59, 60 and 34 are ranges and marks; others only declare domains and names
            keep = f"(({keep}) OR eventType NOT IN (34, 59, 60)) AND NOT coalesce(text, '') LIKE '{CASE}%'"
        elif table == "OSRT_API":
            ranks = f"SELECT DISTINCT {PROCESS} FROM main.CUPTI_ACTIVITY_KIND_RUNTIME"
            keep += f" AND ({PROCESS} IN ({ranks}) OR (SELECT count(*) FROM ({ranks})) < 2)"
        copy_rows(database, table, keep, (begin, end))
    elif "correlationId" in names:
        own, its = ("globalPid, ", f"{PROCESS}, ") if "globalPid" in names else ("", "")
        calls = f"(SELECT {its}correlationId FROM main.CUPTI_ACTIVITY_KIND_RUNTIME)"
        copy_rows(database, table, f"({own}correlationId) IN {calls}")


def copy_strings(database: sqlite3.Connection, tables: list[str]) -> None:
    """The strings that the copied rows name, scrubbed of folders."""
    used = [
        f'SELECT "{column}" FROM main."{table}"'
        for table in tables
        for column in columns(database, table)
        if column in STRING_COLUMNS
    ]
    copy_rows(database, "StringIds", f"id IN ({' UNION '.join(used)})")
    for identifier, value in database.execute("SELECT id, value FROM main.StringIds WHERE value LIKE '%/%'").fetchall():
        database.execute("UPDATE main.StringIds SET value = ? WHERE id = ?", (scrubbed(value), identifier))


def redact(database: sqlite3.Connection, tables: set[str], begin: int, end: int) -> None:
    """Settings by allow-list; no serial number; the session as long as the case."""
    for table, allowed in ALLOWED.items():
        if table in tables:
            for (name,) in database.execute(f'SELECT DISTINCT name FROM source."{table}"').fetchall():
                if allowed.match(name):
                    copy_rows(database, table, "name = ?", (name,))
    if "TARGET_INFO_GPU" in tables:
        database.execute("UPDATE main.TARGET_INFO_GPU SET uuid = NULL, busLocation = NULL")
    if "ANALYSIS_DETAILS" in tables:
        copy_rows(database, "ANALYSIS_DETAILS")
        database.execute(
            "UPDATE main.ANALYSIS_DETAILS SET startTime = ?, stopTime = ?, duration = ?", (begin, end, end - begin)
        )
    if "ThreadNames" in tables:
        copy_rows(database, "ThreadNames", "globalTid IN (SELECT globalTid FROM main.CUPTI_ACTIVITY_KIND_RUNTIME)")
    if "PROCESSES" in tables:
        copy_rows(database, "PROCESSES", "globalPid IN (SELECT globalPid FROM main.CUPTI_ACTIVITY_KIND_KERNEL)")
        database.execute("UPDATE main.PROCESSES SET name = replace(name, rtrim(name, replace(name, '/', '')), '')")


def cut(report: Path, target: Path, begin: int, end: int) -> None:
    """One case of a report as a report of its own."""
    target.unlink(missing_ok=True)
    database = sqlite3.connect(f"file:{target}", uri=True)
    database.execute("ATTACH DATABASE ? AS source", (f"file:{report}?mode=ro",))
    schemas = dict(database.execute("SELECT name, sql FROM source.sqlite_master WHERE type = 'table'").fetchall())
    timed = sorted(
        (name for name in schemas if TIMED.match(name)), key=lambda name: (not name.endswith("RUNTIME"), name)
    )
    others = [name for name in schemas if WHOLE.match(name) or name in ALLOWED]
    others += [name for name in ("StringIds", "ANALYSIS_DETAILS", "ThreadNames", "PROCESSES") if name in schemas]
    for name in [*timed, *others]:
        database.execute(schemas[name])
    for name in timed:
        copy_window(database, name, begin, end)
    for name in others:
        if WHOLE.match(name):
            copy_rows(database, name)
    redact(database, set(schemas), begin, end)
    copy_strings(database, [*timed, *(name for name in ("ThreadNames",) if name in schemas)])
    for name in timed:
        if not database.execute(f'SELECT 1 FROM main."{name}" LIMIT 1').fetchone():
            database.execute(f'DROP TABLE main."{name}"')
    database.commit()
    database.execute("DETACH DATABASE source")
    database.execute("VACUUM")
    database.close()


def trim_nsys(report: Path, folder: Path) -> list[str]:
    """Every case of a report, from when the first rank began it to when the last was done, in its own file.

    It is called `fault.severity.variant.sqlite`.
    """
    database = sqlite3.connect(f"file:{report}?mode=ro", uri=True)
    query = (
        "SELECT coalesce(n.text, s.value) AS name, min(n.start), max(n.end) FROM NVTX_EVENTS n "
        "LEFT JOIN StringIds s ON s.id = n.textId WHERE n.end IS NOT NULL AND name LIKE ? GROUP BY name ORDER BY 2"
    )
    ranges = database.execute(query, (f"{CASE}%",)).fetchall()
    database.close()
    folder.mkdir(parents=True, exist_ok=True)
    for text, begin, end in ranges:
        cut(report, folder / f"{text.removeprefix(CASE).replace('/', '.')}.sqlite", begin, end)
    return [text for text, _, _ in ranges]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", choices=("torch", "nsys"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--steps", type=int, default=6, help="torch: steps to keep")
    options = parser.parse_args()
    if options.tool == "torch":
        trim_torch(options.source, options.target, options.steps)
    else:
        print("\n".join(trim_nsys(options.source, options.target)))


if __name__ == "__main__":
    main()
