"""Whatever the cells of a table hold, the fast way and the obvious way agree."""

import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.laws import examples

from timesink import _native
from timesink.knowledge.nsys_tables import ExportTable
from timesink.model.trace import ImportNote
from timesink.readers.nsys import sqlite

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


plain = st.tuples(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300), st.integers(0, 1)),
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), words, st.tuples(words, st.integers(1, 3000)).map(lambda text: text[0] * text[1])),
)


NOTHING = (None, None, None, None)
LATE = [NOTHING] * 40 + [(None, None, 0.5, "a")]


@example(LATE, 512, "NONE", 3, True)  # a column whose first piece holds nothing
@example([*LATE, *LATE], 512, "NONE", 3, True)
@example([*((at, at, None, "x" * 40) for at in range(20)), *LATE], 512, "FULL", 5, False)
@given(
    st.lists(plain, max_size=60),
    st.sampled_from([512, 1024, 4096, 65536]),
    st.sampled_from(["NONE", "FULL"]),
    st.integers(1, 5),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(60))
def test_pages_of_any_size_are_read_as_sqlite_reads_them(rows, page_bytes, vacuum, every, keyed):
    """Rows longer than a page, removed rows, columns added later, another name of the row id, and many levels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.sqlite"
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"PRAGMA page_size={page_bytes}")
            db.execute(f"PRAGMA auto_vacuum={vacuum}")
            db.execute(f"CREATE TABLE NVTX_EVENTS (other, {'start INTEGER PRIMARY KEY' if keyed else 'start'}, kind)")
            starts = [(at if keyed else row[0], row[1]) for at, row in enumerate(rows)]
            db.executemany("INSERT INTO NVTX_EVENTS (start, kind) VALUES (?, ?)", starts)
            db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN value")
            db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN text")
            for at, row in enumerate(rows):
                if at % every:
                    change = "UPDATE NVTX_EVENTS SET value = ?, text = ? WHERE rowid = ?"
                    db.execute(change, (*row[2:], at if keyed else at + 1))
            db.execute("DELETE FROM NVTX_EVENTS WHERE rowid % 7 = 3")
            db.commit()
            kept = db.execute("SELECT start, kind, value, text FROM NVTX_EVENTS").fetchall()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite, "careful_rows", None)  # no row of this needs it
            frame, is_even = sqlite.read_table(path, TABLE, COLUMNS, []), pl.col("start") % 2 == 0
            patch.setattr(sqlite, "_PAGES_AT_ONCE", 2)
            in_pieces = sqlite.read_table(path, TABLE, COLUMNS, [], lambda batch: batch.filter(is_even))
    assert frame.rows() == [(start, kind, as_real(value), text or "", None) for start, kind, value, text in kept]
    assert in_pieces.equals(frame.filter(is_even))


@pytest.mark.parametrize(
    "declared",
    [
        "(start, kind DEFAULT 5, value, text)",
        "(start INTEGER PRIMARY KEY DESC, kind, value, text)",
        "(start INTEGER PRIMARY KEY, kind, value, text) WITHOUT ROWID",
        "(kind, two AS (kind * 2), value, text, start AS (kind + 1) STORED)",
    ],
)
def test_tables_of_other_kinds_are_read_as_sqlite_reads_them(tmp_path, declared):
    path = tmp_path / "export.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE NVTX_EVENTS {declared}")
        whose = "kind, value, text" if "STORED" in declared else "start, kind, value, text"
        for number in range(40):
            row = (number, number / 2, f"text {number}")
            values = row if "STORED" in declared else (1000 - number, *row)
            db.execute(f"INSERT INTO NVTX_EVENTS ({whose}) VALUES ({', '.join('?' * len(values))})", values)
        kept = db.execute("SELECT start, kind, value, text FROM NVTX_EVENTS").fetchall()
    assert sqlite.read_table(path, TABLE, COLUMNS, []).drop("absent").rows() == kept


def test_a_file_in_another_encoding_is_read(tmp_path):
    path = tmp_path / "export.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA encoding='UTF-16le'")
        db.execute("CREATE TABLE NVTX_EVENTS (start, kind, value, text)")
        db.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 0.5, 'é')")
    assert sqlite.read_table(path, TABLE, COLUMNS, []).rows() == [(1, 2, 0.5, "é", None)]


@given(st.lists(typical, min_size=1, max_size=80), st.integers(0, 2**32), st.integers(1, 40))
@settings(deadline=None, max_examples=examples(60))
def test_damaged_pages_are_read_as_sqlite_reads_them_or_left_to_it(rows, seed, bytes_changed):
    """Where the fast way reads a damaged file to its end, its rows are those that SQLite reads, or reads before damage
    that lies beside them."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, rows)
        layout = sqlite._layout(path, "NVTX_EVENTS", {name: TABLE.columns[name] for name in COLUMNS})
        data, rng = bytearray(path.read_bytes()), random.Random(seed)
        for _ in range(bytes_changed):
            data[rng.randrange(4096, len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            table = _native.SqliteTable(path, *layout, 65_536)
            while table.read(1):
                pass
            nothing = [None] * len(table)  # which is empty once its columns are handed over
            starts = pl.Series(table.columns().get("start", nothing), dtype=pl.Int64).to_list()
        except _native.IrregularTable:
            return
        expected, whole = [], True
        with closing(sqlite3.connect(path)) as db:
            try:
                expected.extend(start for (start,) in db.execute("SELECT start FROM NVTX_EVENTS NOT INDEXED"))
            except sqlite3.DatabaseError:
                whole = False
        assert starts[: None if whole else len(expected)] == expected
