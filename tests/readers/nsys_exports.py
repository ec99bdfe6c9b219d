"""Small Nsight Systems exports, written as text so that a test shows its input.

A block is a table's name, a line of column names, and rows. ``7:9`` is the serialized id of thread 9 of process 7
(``7:`` of the process), ``-`` is NULL, anything in quotes is text.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from timesink.model.schema import Table
from timesink.model.trace import NoteKind, Trace

Cell = int | float | str | None

_CELL = re.compile(r'"([^"]*)"|(\S+)')
_SERIALIZED = re.compile(r"(\d+):(\d*)")
HARDWARE = 1 << 48  # set in the ids of real exports; it must not leak into process numbers

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
CALL = "CUPTI_ACTIVITY_KIND_RUNTIME"
STRINGS = """
StringIds
id value
1 "gemm"
2 "cudaLaunchKernel_v7000"
3 "cudaStreamSynchronize_v3020"
4 "cudaStreamWaitEvent_v3020"
5 "cuMemcpyHtoDAsync_v2"
"""
ONE_KERNEL = f"""
{STRINGS}

{KERNEL}
start end deviceId contextId streamId correlationId globalPid demangledName
100 150 0 1 7 11 7: 1
"""
START = """
TARGET_INFO_SESSION_START_TIME
utcEpochNs
1700000000000000000
"""


def cell(quoted: str, word: str) -> Cell:
    if not word:
        return quoted
    if word == "-":
        return None
    if found := _SERIALIZED.fullmatch(word):
        return HARDWARE + (int(found[1]) << 24) + int(found[2] or 0)
    return float(word) if "." in word else int(word)


def parsed(text: str) -> dict[str, tuple[list[str], list[list[Cell]]]]:
    """Columns and rows of each table in the text."""
    tables = {}
    for block in re.split(r"\n\s*\n", text.strip()):
        name, columns, *rows = [line.strip() for line in block.splitlines()]
        tables[name] = (columns.split(), [[cell(*found.groups("")) for found in _CELL.finditer(row)] for row in rows])
    return tables


def write_sqlite(path: Path, text: str) -> Path:
    """The tables as a SQLite export."""
    with closing(sqlite3.connect(path)) as db, db:
        for name, (columns, rows) in parsed(text).items():
            texts = {at for row in rows for at, value in enumerate(row) if isinstance(value, str)}
            declared = ", ".join(
                f'"{column}" {"TEXT" if at in texts else "INTEGER"}' for at, column in enumerate(columns)
            )
            db.execute(f"CREATE TABLE {name} ({declared})")
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    return path


def columns(trace: Trace, table: Table, *names: str) -> list[tuple[object, ...]]:
    """The rows of these columns."""
    return trace[table].select(*names).rows()


def messages(trace: Trace, kind: NoteKind) -> list[tuple[str, int]]:
    """What is said of the import in notes of that kind."""
    return [(note.message, note.count) for note in trace.notes if note.kind is kind]
