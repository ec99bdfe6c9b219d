"""Whatever the cells of a table hold, the fast way and the obvious way agree."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from threading import Event

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples

from timesink.model.trace import ImportNote
from timesink.readers.nsys import sqlite
from timesink.readers.nsys.export import ExportTable

TABLE = ExportTable(
    "NVTX_EVENTS", {"start": "int64", "kind": "int32", "value": "real", "text": "text", "absent": "int64"}
)
COLUMNS = frozenset({"start", "kind", "value", "text"})

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
cells = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31) - 1, 2**31),
    st.floats(allow_nan=False),
    words,
    st.binary(max_size=4),
    st.integers(-1000, 1000).map(str),
)
typical = st.tuples(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), st.integers(0, 100)),
    st.one_of(st.integers(0, 100), st.floats(0, 100)),
    st.one_of(st.none(), words),
)


def as_integer(value: object, bits: int) -> int | None:
    """The integer that a cell stands for, by the letter of the reader's promise."""
    if isinstance(value, (str, bytes)):
        try:
            value = int(value)
        except ValueError:
            return None
    if isinstance(value, float):
        if value != value // 1:
            return None
        value = int(value) if abs(value) != float("inf") else None
    return value if isinstance(value, int) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def as_real(value: object) -> float | None:
    try:
        return None if value is None else float(value)  # type: ignore[arg-type]
    except ValueError:
        return None


def as_text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def written(folder: str, rows: list[tuple[object, ...]]) -> Path:
    path = Path(folder) / "export.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE NVTX_EVENTS (start, kind, value, text)")
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)", rows)
    return path


def integers(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return frame.select("start", "kind").rows()


@given(st.lists(st.tuples(cells, cells, cells, cells), max_size=12))
@settings(deadline=None, max_examples=examples(60))
def test_no_cell_is_misread(rows):
    with tempfile.TemporaryDirectory() as folder:
        notes: list[ImportNote] = []
        frame = sqlite.read_table(written(folder, rows), TABLE, COLUMNS, notes)
    assert integers(frame) == [(as_integer(row[0], 64), as_integer(row[1], 32)) for row in rows]
    assert frame["absent"].to_list() == [None] * len(rows)
    spoiled = sum(
        value is not None and as_integer(value, bits) is None
        for row in rows
        for value, bits in ((row[0], 64), (row[1], 32))
    )
    if spoiled:
        assert sum(note.count for note in notes) >= spoiled


@given(st.lists(typical, max_size=12))
@settings(deadline=None, max_examples=examples(60))
def test_sound_tables_are_read_to_the_letter_without_a_note(rows):
    with tempfile.TemporaryDirectory() as folder:
        notes: list[ImportNote] = []
        frame = sqlite.read_table(written(folder, rows), TABLE, COLUMNS, notes)
    expected = [(row[0], row[1], as_real(row[2]), as_text(row[3]), None) for row in rows]
    assert frame.rows() == expected
    assert not notes


@given(st.lists(st.integers(-50, 50), unique=True, max_size=40), st.integers(1, 4))
@settings(deadline=None, max_examples=examples(40))
def test_ranges_of_row_ids_cover_every_row_once_and_in_order(ids, parts):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = written(folder, [])
        with closing(sqlite3.connect(path)) as db, db:
            db.executemany(
                "INSERT INTO NVTX_EVENTS (rowid, start, kind, value) VALUES (?, ?, 0, 0)", [(n, n) for n in ids]
            )
        patch.setattr(sqlite, "_ROWS_PER_RANGE", 10)
        patch.setattr("os.cpu_count", lambda: parts)
        frame = sqlite.read_table(path, TABLE, COLUMNS, [])
    assert frame["start"].to_list() == sorted(ids)


def test_holes_between_row_ids_make_no_more_ranges_than_the_file_has_room_for(tmp_path, monkeypatch):
    path = written(str(tmp_path), [])
    with closing(sqlite3.connect(path)) as db, db:
        rows = [(n, n) for n in (-(1 << 62), 0, 1 << 62)]
        db.executemany("INSERT INTO NVTX_EVENTS (rowid, start, kind, value) VALUES (?, ?, 0, 0)", rows)
    asked = []
    scanned = sqlite._scan_range
    monkeypatch.setattr(
        sqlite, "_scan_range", lambda scan, bounds, stop: asked.append(bounds) or scanned(scan, bounds, stop)
    )
    assert sqlite.read_table(path, TABLE, COLUMNS, [])["start"].to_list() == [-(1 << 62), 0, 1 << 62]
    assert len(asked) <= 4


@pytest.mark.parametrize("reached", ["first", "second"])
def test_an_interrupted_scan_stops_its_other_threads(
    reached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "export.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE NVTX_EVENTS (start INTEGER)")
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?)", [(number,) for number in range(10)])
        db.commit()
    stops: list[Event] = []

    def scanned(scan: object, bounds: object, stopped: Event) -> list[pl.DataFrame]:
        stops.append(stopped)
        if bounds == reached:
            raise KeyboardInterrupt
        assert stopped.wait(60)  # as a scan of many batches would look
        return []

    monkeypatch.setattr(sqlite, "_ranges", lambda scan: ["first", "second"])
    monkeypatch.setattr(sqlite, "_scan_range", scanned)
    with pytest.raises(KeyboardInterrupt):
        sqlite.read_table(path, TABLE, frozenset({"start"}), [])
    assert all(stopped.is_set() for stopped in stops)
