"""What a filter, a full buffer or an older version leaves out: any part of a file may be missing, and it is read or
refused with a way out."""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest

from fuzz import seeds
from timesink.errors import UnreadableTrace
from timesink.readers import read

EVENTS = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION", "NVTX_EVENTS", "PROFILER_OVERHEAD", "ThreadNames")


def survives(path: Path) -> None:
    try:
        read(path, cache=False)
    except UnreadableTrace as error:
        assert error.remedy


@pytest.mark.parametrize("kept", [(one,) for one in EVENTS] + list(combinations(EVENTS[:5], 2)), ids="+".join)
def test_an_export_with_some_of_its_tables(kept: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(seeds.nsys_sqlite()[0])
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        gone = [name for name in tables if name.endswith(EVENTS) and not name.endswith(kept)]
        assert len(gone) == len(EVENTS) - len(kept)
        for name in gone:
            db.execute(f'DROP TABLE "{name}"')
        db.commit()
    survives(path)


@pytest.mark.parametrize("page", [0, 1], ids=["raw", "details"])
def test_a_page_without_any_one_of_its_columns(page: int, tmp_path: Path) -> None:
    text = "\n".join(line for line in seeds.ncu_csv()[page].decode().splitlines() if line.startswith('"'))
    rows = list(csv.reader(io.StringIO(text)))
    for left_out in range(len(rows[0])):
        written = io.StringIO()
        csv.writer(written, quoting=csv.QUOTE_ALL).writerows([*row[:left_out], *row[left_out + 1 :]] for row in rows)
        path = tmp_path / f"{left_out}.csv"
        path.write_text(written.getvalue())
        survives(path)
