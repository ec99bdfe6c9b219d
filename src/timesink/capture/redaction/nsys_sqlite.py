"""An Nsight Systems export without environment, command lines, paths, host and user names. In place, and compacted."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

# Tables nothing in a diagnosis needs, and that hold the environment, users, processes of others, disks, networks.
_DROPPED = re.compile(
    r"^(TARGET_INFO_(SYSTEM_ENV|NIC_INFO|NETWORK|PROCESS|EXEC|DISK|CGROUP|CONTAINER|NVTX_PAYLOAD_SCHEMA_DIR)\w*|DIAGNOSTIC_EVENT"
    r"|ANALYSIS_FILE|ANALYSIS_DETAILS|PROCESS_ENV\w*|FILE_(ACCESS|SYSTEM)\w*|NETWORK_\w+|NIC_\w+|PROFILER_CONFIG\w*)$"
)
_META_TABLES = ("META_DATA_CAPTURE", "META_DATA_EXPORT")
_META_KEPT = re.compile(r"EXPORT_(PRODUCT|SCHEMA)_\w+|EXPORT_PARAM_TIME_NORMALIZE|CAPTURE_EVENT_TYPE|\w*CUDA_GRAPH\w*")
_EMPTIED = re.compile(
    r"(?i)^(busLocation|uuid|luid|ctxswDevPath|ctrlDevPath|utcTime|localTime|hostname|vmId|chipSerial)$"
)
_PATH = re.compile(r"(?<![\w.)])(?:/[\w.@+~-]+){2,}/?|\b[A-Za-z]:\\[^\s\"']+")


def redact_sqlite(path: Path) -> list[str]:
    """Rewrite the file; returns one sentence per kind of thing removed."""
    removed: list[str] = []
    with closing(sqlite3.connect(path.resolve().as_uri(), uri=True)) as db:
        db.execute("PRAGMA secure_delete = ON")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        for step in (_drop_tables, _trim_meta, _empty_columns, _shorten_paths):
            removed += step(db, tables)
        db.commit()
        db.execute("VACUUM")
    return removed


def _drop_tables(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    for table in [name for name in tables if _DROPPED.match(name)]:
        (rows,) = db.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
        db.execute(f'DROP TABLE "{table}"')
        tables.remove(table)
        if rows:
            yield f"table {table} ({rows} rows)"


def _trim_meta(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    """Capture settings hold the command line, the working directory and the environment among others: keep a list."""
    for table in _META_TABLES:
        if table in tables:
            names = [name for (name,) in db.execute(f"SELECT DISTINCT name FROM {table}")]
            unwanted = [name for name in names if not _META_KEPT.fullmatch(name or "")]
            db.executemany(f"DELETE FROM {table} WHERE name IS ?", [(name,) for name in unwanted])
            if unwanted:
                yield f"{len(unwanted)} settings of {table}: environment, command line, folders, host and user among them"


def _empty_columns(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    for table in tables:
        columns = list(db.execute(f'PRAGMA table_info("{table}")'))
        for name, type_ in ((row[1], row[2]) for row in columns if _EMPTIED.match(row[1])):
            blank = "''" if "TEXT" in type_.upper() else "0"
            db.execute(f'UPDATE "{table}" SET "{name}" = {blank} WHERE "{name}" IS NOT NULL')
            yield f"column {table}.{name}"


def _shorten_paths(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    """Every other text that holds a path keeps its last part: `/home/ann/x/train.py` becomes `train.py`."""
    count = 0
    for table in tables:
        texts = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")') if "TEXT" in row[2].upper()]
        for column in texts:
            query = f'SELECT DISTINCT "{column}" FROM "{table}" WHERE "{column}" GLOB \'*/*/*\' OR "{column}" GLOB \'*:\\*\''
            for (text,) in db.execute(query).fetchall():
                shorter = _PATH.sub(lambda found: _last(found.group()), text)
                if shorter != text:
                    db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?', (shorter, text))
                    count += 1
    if count:
        yield f"folders of {count} paths in names"


def _last(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
