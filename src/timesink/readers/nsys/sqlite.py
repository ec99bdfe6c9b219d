"""An export in SQLite, opened so that nothing in the file can act: only plain tables that we know by name are read.

The schema is looked at through Python's `sqlite3` with an authorizer. Rows are read fast where the table is sound and
carefully where it is not. Fast: from the pages of the file straight into columns, without SQLite; whatever is not
plain, or holds a value of another type, ends the fast way. Careful: Python's `sqlite3`, cell by cell, which keeps what
is sound, counts what is not, and keeps the rows before a damaged page.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import polars as pl

from timesink import _native
from timesink.errors import UnreadableTrace
from timesink.knowledge.nsys_tables import ColumnKind, ExportTable
from timesink.knowledge.profiler_texts import EVENT_TABLE
from timesink.model.schema import nulls
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.formats import beginning
from timesink.readers.nsys import export as declared
from timesink.readers.nsys.export import EXPORT_AGAIN, KNOWN, POLARS_TYPE, Keep, kept_rows
from timesink.records import Record, field
from timesink.untrusted.budget import TEXT_CHARACTERS

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_SMALLEST_ROW_BYTES = 4  # two bytes of pointer and two of cell


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Read-only and immutable: no lock, no journal, no write-ahead log is touched. SQLite opens a file that is cut off
    only where the schema counts as writable, which a read-only connection makes harmless.
    """
    stated, actual = _sizes(path)
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        for pragma in (
            "trusted_schema=OFF",
            "cell_size_check=ON",
            *(["writable_schema=ON"] if actual < stated else ()),
        ):
            connection.execute(f"PRAGMA {pragma}")
        yield connection


def _sizes(path: Path) -> tuple[int, int]:
    """Bytes that the header states, and bytes that are there."""
    with path.open("rb") as stream:
        head = stream.read(_HEADER_BYTES)
    page_bytes = int.from_bytes(head[16:18], "big")
    return (65536 if page_bytes == 1 else page_bytes) * int.from_bytes(head[28:32], "big"), path.stat().st_size


_LARGEST = {"int64": 1 << 63, "int32": 1 << 31}

_Cell = int | float | bytes | None
_Value = int | float | str | None


def careful_rows(
    path: Path, source: ExportTable, present: tuple[tuple[str, ColumnKind], ...], notes: list[ImportNote]
) -> pl.DataFrame:
    """Every row before the first damaged page; a cell that is not what its column should hold is null, and counted."""
    wanted = ", ".join(f'"{name}"' for name, _ in present)
    columns: list[list[_Value]] = [[] for _ in present]
    most_rows = path.stat().st_size // _SMALLEST_ROW_BYTES + 1  # more come of pages that refer to one another
    bad = rows = 0
    broken = ""
    try:
        with _opened(path) as connection:
            connection.text_factory = bytes
            for row in connection.execute(f'SELECT {wanted} FROM "{source.name}" NOT INDEXED'):
                rows += 1
                if rows > most_rows:
                    message = (
                        f"it yields more than {most_rows} rows, more than the file can hold: its pages form a loop"
                    )
                    raise UnreadableTrace(path, message, place=f"table {source.name}", remedy=EXPORT_AGAIN)
                for (_, kind), cell, column in zip(present, row, columns, strict=True):
                    value = _value(cell, kind)
                    bad += value is None and cell is not None
                    column.append(value)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        broken = str(error)
    if broken and not rows and source.name in declared.INDISPENSABLE:
        raise UnreadableTrace(path, f"damaged from its first row ({broken})", place=source.name, remedy=EXPORT_AGAIN)
    if broken:
        message = f"table {source.name} is damaged ({broken}): the {rows} rows before the damage were read"
        notes.append(ImportNote(NoteKind.DATA_LOSS, message, 0, source.name))
    notes.extend(declared.spoiled_note(source, bad))
    return pl.DataFrame(
        [
            pl.Series(name, column, dtype=POLARS_TYPE[kind])
            for (name, kind), column in zip(present, columns, strict=True)
        ]
    )


def _value(cell: _Cell, kind: ColumnKind) -> _Value:
    """The cell as its column's kind, or None. Numbers kept as text, or integers as reals, count as numbers."""
    if cell is None:
        return "" if kind == "text" else None
    if kind == "text":
        text = cell.decode("utf-8", errors="replace") if isinstance(cell, bytes) else str(cell)
        return text[:TEXT_CHARACTERS]
    if isinstance(cell, bytes):
        try:
            cell = float(cell) if kind == "real" else int(cell)
        except ValueError:
            return None
    if kind == "real":
        return float(cell)
    if isinstance(cell, float):
        if not cell.is_integer():
            return None
        cell = int(cell)
    return cell if -_LARGEST[kind] <= cell < _LARGEST[kind] else None


_PAGES_AT_ONCE = 2_048  # whoever is interrupted waits for them; a window is cut out of so many
_ARROW_FORMAT = {"int64": "l", "int32": "i", "real": "g", "text": "U"}
_GENERATED = 2  # of hidden columns those that no row holds


def read_table(
    path: Path, source: ExportTable, columns: frozenset[str], notes: list[ImportNote], keep: Keep | None = None
) -> pl.DataFrame:
    """All sound rows of `source`, or those to keep, in the order of the file; absent columns are null. What is lost
    becomes a note.
    """
    if not declared.readable(path, source, columns, notes):
        return declared.no_rows(source)
    present = {name: kind for name, kind in source.columns.items() if name in columns}
    try:
        frame = _plain_rows(path, source, present, keep)
    except _native.IrregularTable:
        rows = careful_rows(path, source, tuple(present.items()), notes)
        frame = kept_rows(rows, source, keep)
    return declared.complete_columns(frame, source, notes)


def _plain_rows(path: Path, source: ExportTable, present: Mapping[str, ColumnKind], keep: Keep | None) -> pl.DataFrame:
    """The rows as their pages have them; `IrregularTable` where SQLite would see more in them than we do."""
    table = _native.SqliteTable(path, *_layout(path, source.name, present), TEXT_CHARACTERS)
    parts, unread = [], True
    while unread:
        unread = table.read(_PAGES_AT_ONCE)
        if keep is not None or not unread:
            rows, columns = len(table), table.columns()
            frame = pl.DataFrame([_series(name, kind, columns.pop(name, None), rows) for name, kind in present.items()])
            parts.append(kept_rows(frame, source, keep))
    return pl.concat(parts) if len(parts) > 1 else parts[0]


def _series(name: str, kind: ColumnKind, column: _native.ArrowColumn | None, rows: int) -> pl.Series:
    """The column without a copy, or so many nulls."""
    if column is None:
        return nulls(POLARS_TYPE[kind], rows, name)
    return pl.Series(name, column, dtype=POLARS_TYPE[kind]).alias(name)


def _layout(path: Path, table: str, present: Mapping[str, ColumnKind]) -> tuple[int, list[tuple[str, int, str, bool]]]:
    """The first page of a table, and of each wanted column, in their order: its name, its place among what a row
    holds, its type, and whether it is another name of the row id, which rows do not hold."""
    with _opened(path) as connection:
        query = "SELECT rootpage, sql FROM sqlite_master WHERE type = 'table' AND name = ?"
        try:
            root, sql = connection.execute(query, (table,)).fetchone()
            every = connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _native.IrregularTable(str(error)) from error
    keys = len([key for _, _, _, _, _, key, _ in every if key])
    stored = [column for column in every if column[-1] != _GENERATED]
    columns = []
    for place, (_, name, kind, _, default, key, _) in enumerate(stored):
        if name in present:
            if default is not None:
                raise _native.IrregularTable(f"column {name} has a default, which rows need not hold")
            is_row_id = key > 0 and keys == 1 and kind.upper() == "INTEGER" and "DESC" not in sql.upper()
            columns.append((name, place, _ARROW_FORMAT[present[name]], is_row_id))
    return root, columns


_SECONDS_TO_LOOK = 60.0
_PLAIN_TABLE = "CREATE TABLE "  # as SQLite itself spells it, whatever was typed
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


class Database(Record):
    """A SQLite export; `tables` holds the plain tables that passed the look at the schema."""

    path: Path
    tables: Mapping[str, frozenset[str]]
    notes: list[ImportNote] = field(default_factory=list)

    def read(self, source: ExportTable, keep: Keep | None = None) -> pl.DataFrame:
        """All rows of the table, or those to keep; damaged rows and pages become notes."""
        return read_table(self.path, source, self.tables.get(source.name, frozenset()), self.notes, keep)


def open_database(path: Path) -> Database:
    """Look at the file and its schema. `UnreadableTrace` says what the file is where it is not an export."""
    notes: list[ImportNote] = []
    _check_file(path, notes)
    try:
        with _looking(path) as connection:
            plain, refused = _plain_tables(connection, path)
            tables = {name: columns for name in sorted(plain & KNOWN) if (columns := _columns(connection, name))}
            refused += [name for name in tables if not _let_through(connection, name, tables[name])]
            notes += declared.unread_note([name for name in sorted(plain - KNOWN) if _has_rows(connection, name)])
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what SQLite says may quote bytes of the file
        raise UnreadableTrace(path, f"SQLite cannot read the schema ({error})", remedy=EXPORT_AGAIN) from error
    for name in refused:
        if name in declared.INDISPENSABLE:
            raise UnreadableTrace(path, "not a plain table, so it is not read", place=name, remedy=EXPORT_AGAIN)
        tables.pop(name, None)
        notes.append(ImportNote(NoteKind.DATA_LOSS, f"{name} is not a plain table, so it was not read", 0, name))
    if not tables:
        raise UnreadableTrace(
            path,
            f"a SQLite database of {len(plain)} tables, none of them from an Nsight Systems export",
            remedy=EXPORT_AGAIN,
        )
    return Database(path, tables, notes)


def _check_file(path: Path, notes: list[ImportNote]) -> None:
    with path.open("rb") as stream:
        head = stream.read(_HEADER_BYTES)
    if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
        raise UnreadableTrace(path, f"not a SQLite database: it {beginning(head)}", remedy=EXPORT_AGAIN)
    for suffix, what in (("-wal", "write-ahead log"), ("-journal", "rollback journal")):
        beside = path.with_name(path.name + suffix)
        if beside.is_file() and beside.stat().st_size:
            raise UnreadableTrace(
                path,
                f"a {what} lies beside it ({beside.name}, {beside.stat().st_size} bytes): part of the data is there",
                remedy=f"close the program that writes it, run sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)', "
                "and try again",
            )
    stated, actual = _sizes(path)
    if actual < stated:
        message = f"the file is cut off: {actual} of {stated} bytes are there; rows on missing pages are lost"
        notes.append(ImportNote(NoteKind.DAMAGE, message))


@contextmanager
def _looking(path: Path) -> Iterator[sqlite3.Connection]:
    with _opened(path) as connection:
        connection.set_authorizer(_authorize)
        deadline = time.monotonic() + _SECONDS_TO_LOOK
        connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 100_000)
        yield connection


def _authorize(action: int, first: str | None, _second: str | None, _database: str | None, via: str | None) -> int:
    """Plain reading only. `via` names the view or trigger that asks, and none may."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first == "table_xinfo" else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED and via is None else sqlite3.SQLITE_DENY


def _plain_tables(connection: sqlite3.Connection, path: Path) -> tuple[set[str], list[str]]:
    """Tables that have pages of their own, and the known names that are something else, such as a view."""
    rows = connection.execute("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master").fetchall()
    if not rows:
        raise UnreadableTrace(path, "a SQLite database without a single table", remedy=EXPORT_AGAIN)
    plain = {
        name
        for kind, name, table, page, sql in rows
        if kind == "table" and name == table and isinstance(name, str) and _has_pages(page, sql)
    }
    return plain, sorted({name for _, name, _, _, _ in rows if name in KNOWN} - plain)


def _has_pages(page: object, sql: object) -> bool:
    return isinstance(page, int) and page > 0 and isinstance(sql, str) and sql.startswith(_PLAIN_TABLE)


def _columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Stored columns; generated and hidden ones count as missing."""
    rows = connection.execute(f'PRAGMA table_xinfo("{table}")').fetchall()
    return frozenset(name for _, name, _, _, _, _, hidden in rows if hidden == 0)


def _let_through(connection: sqlite3.Connection, table: str, columns: frozenset[str]) -> bool:
    """Whether the very query that reads the table does nothing but read it."""
    wanted = ", ".join(f'"{name}"' for name in sorted(columns) if '"' not in name)
    try:
        connection.execute(f'SELECT {wanted} FROM "{table}" NOT INDEXED LIMIT 0')
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False
    return True


def _has_rows(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a table of events that we do not read holds any."""
    if not EVENT_TABLE.fullmatch(table):
        return False
    try:
        return connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False
