"""Cut a window out of an Nsight Systems SQLite export, and leave out everything that names people or machines.

    python tools/reduce_nsys.py IN.sqlite OUT.sqlite START_NS END_NS

Kept: events that begin in the window, the strings they use, the enumerations read, the GPU without its serial numbers.
Left out: environment, command line, host, user, paths, processes, threads of other programs, diagnostics.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

EVENTS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
    "OSRT_API",
    "PROFILER_OVERHEAD",
)
WHOLE = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SESSION_START_TIME")
ENUMS = ("ENUM_CUDA_MEM_KIND", "ENUM_CUDA_MEMCPY_OPER", "ENUM_CUPTI_SYNC_TYPE", "ENUM_NSYS_EVENT_TYPE")
META = ("EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION", "EXPORT_PARAM_TIME_NORMALIZE")
SERIALS = ("busLocation", "uuid", "luid", "ctxswDevPath", "ctrlDevPath", "utcTime", "localTime")
NAMES = ("demangledName", "shortName", "mangledName", "nameId", "textId")


def reduce(source: Path, target: Path, start_ns: int, end_ns: int) -> None:
    target.unlink(missing_ok=True)
    db = sqlite3.connect(target.absolute().as_uri(), uri=True)
    db.execute("ATTACH ? AS old", (f"{source.absolute().as_uri()}?mode=ro&immutable=1",))
    schema = dict(db.execute("SELECT name, sql FROM old.sqlite_master WHERE type = 'table'"))
    for table in (*EVENTS, *WHOLE, *ENUMS, "StringIds", "META_DATA_EXPORT", "META_DATA_CAPTURE", "ThreadNames"):
        if table in schema:
            db.execute(schema[table])
    for table in (name for name in EVENTS if name in schema):
        domains = " OR eventType IN (33, 75)" if table == "NVTX_EVENTS" else ""  # names of categories and domains
        where = f"WHERE start BETWEEN ? AND ?{domains}"
        db.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table} {where}", (start_ns, end_ns))
    for table in (name for name in (*WHOLE, *ENUMS) if name in schema):
        db.execute(f"INSERT INTO main.{table} SELECT * FROM old.{table}")
    marks = ",".join("?" * len(META))
    db.execute(f"INSERT INTO META_DATA_EXPORT SELECT * FROM old.META_DATA_EXPORT WHERE name IN ({marks})", META)
    db.execute("INSERT INTO META_DATA_CAPTURE SELECT * FROM old.META_DATA_CAPTURE WHERE name = 'CAPTURE_EVENT_TYPE'")
    db.execute(
        "INSERT INTO main.ThreadNames SELECT * FROM old.ThreadNames WHERE globalTid IN "
        "(SELECT globalTid FROM main.CUPTI_ACTIVITY_KIND_RUNTIME)"
    )
    columns = {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in schema}
    for table in (*EVENTS, "ThreadNames"):
        for name in (name for name in NAMES if name in columns.get(table, ())):
            used = f"SELECT * FROM old.StringIds WHERE id IN (SELECT {name} FROM main.{table})"
            db.execute(f"INSERT OR IGNORE INTO main.StringIds {used}")
    for table in WHOLE:
        for name in (name for name in SERIALS if name in columns.get(table, ())):
            db.execute(f"UPDATE main.{table} SET {name} = NULL")
    db.commit()
    db.execute("DETACH old")
    db.execute("VACUUM")


if __name__ == "__main__":
    reduce(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
