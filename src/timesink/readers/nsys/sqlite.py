"""An export in SQLite, opened so that nothing in the file can act: only plain tables that we know by name are read.

The schema is looked at through Python's `sqlite3` with an authorizer; the driver that reads in bulk has none, so it is
pointed only at tables whose query the authorizer has let through. Rows are read fast where the table is sound and
carefully where it is not. Fast: `adbc-driver-sqlite` over ranges of row ids, one thread and one connection each; it
fixes a column's type from its first batch, so a value of another type further down ends the fast way. Careful: Python's
`sqlite3`, cell by cell, which keeps what is sound, counts what is not, and keeps the rows before a damaged page.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.record import dataclass, field
from timesink.model.schema import stacked
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import (
    EVENT_TABLE,
    EXPORT_AGAIN,
    INDISPENSABLE,
    KNOWN,
    POLARS_TYPE,
    TEXT_CHARACTERS,
    ColumnKind,
    ExportTable,
    Keep,
    complete_columns,
    kept_rows,
    no_rows,
    readable,
    spoiled_note,
    unread_note,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch as ArrowBatch

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_SMALLEST_ROW_BYTES = 4  # two bytes of pointer and two of cell


def uri_of(path: Path) -> str:
    """Read-only and immutable: no lock, no journal, no write-ahead log is touched."""
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


def pragmas_for(path: Path) -> tuple[str, ...]:
    """What to set first. SQLite opens a file that is cut off only where the schema counts as writable, which a
    read-only connection makes harmless.
    """
    stated, actual = size_of(path)
    cut = ("PRAGMA writable_schema=ON",) if actual < stated else ()
    return ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON", *cut)


def size_of(path: Path) -> tuple[int, int]:
    """Bytes that the header states, and bytes that are there."""
    with path.open("rb") as stream:
        head = stream.read(_HEADER_BYTES)
    page_bytes = int.from_bytes(head[16:18], "big")
    return (65536 if page_bytes == 1 else page_bytes) * int.from_bytes(head[28:32], "big"), path.stat().st_size


def most_rows_in(path: Path) -> int:
    """The file cannot hold more rows than this; a table that yields more has pages that refer to one another."""
    return path.stat().st_size // _SMALLEST_ROW_BYTES + 1


def endless(path: Path, table: str) -> UnreadableTrace:
    """The error for such a table."""
    message = f"it yields more than {most_rows_in(path)} rows, more than the file can hold: its pages form a loop"
    return UnreadableTrace(path, message, place=f"table {table}", remedy=EXPORT_AGAIN)


_LARGEST = {"int64": 1 << 63, "int32": 1 << 31}

_Cell = int | float | bytes | None
_Value = int | float | str | None


def careful_rows(
    path: Path,
    source: ExportTable,
    present: tuple[tuple[str, ColumnKind], ...],
    most_rows: int,
    notes: list[ImportNote],
) -> pl.DataFrame:
    """Every row before the first damaged page; a cell that is not what its column should hold is null, and counted."""
    wanted = ", ".join(f'"{name}"' for name, _ in present)
    columns: list[list[_Value]] = [[] for _ in present]
    bad = rows = 0
    broken = ""
    try:
        with closing(sqlite3.connect(uri_of(path), uri=True)) as connection:
            connection.text_factory = bytes
            for pragma in pragmas_for(path):
                connection.execute(pragma)
            for row in connection.execute(f'SELECT {wanted} FROM "{source.name}" NOT INDEXED'):
                rows += 1
                if rows > most_rows:
                    raise endless(path, source.name)
                for (_, kind), cell, column in zip(present, row, columns, strict=True):
                    value = _value(cell, kind)
                    bad += value is None and cell is not None
                    column.append(value)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        broken = str(error)
    if broken and not rows and source.name in INDISPENSABLE:
        raise UnreadableTrace(path, f"damaged from its first row ({broken})", place=source.name, remedy=EXPORT_AGAIN)
    if broken:
        message = f"table {source.name} is damaged ({broken}): the {rows} rows before the damage were read"
        notes.append(ImportNote(NoteKind.DATA_LOSS, message, 0, source.name))
    notes.extend(spoiled_note(source, bad))
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


_BATCH_ROWS = 65_536
_ATTENTIVE_S = 0.1  # Polars handles SIGINT so that no wait ends for it; only a wait that ends by itself sees one
_ROWS_PER_RANGE = 250_000
_MOST_ROWS_PER_RANGE = 2_000_000
_MOST_WORKERS = 4


@dataclass(frozen=True, slots=True)
class _Scan:
    """One query: the wanted columns of a table, in row-id order where it has row ids."""

    path: Path
    table: str
    present: tuple[tuple[str, ColumnKind], ...]
    most_rows: int
    has_row_ids: bool
    source: ExportTable
    keep: Keep | None

    def sql(self, bounds: tuple[int, int] | None) -> str:
        wanted = ", ".join(_expression(name, kind) for name, kind in self.present)
        conditions = [] if bounds is None else [f"_rowid_ BETWEEN {bounds[0]} AND {bounds[1]}"]
        if self.keep is not None and self.keep.outside:
            conditions.append(f"NOT ({self.keep.outside})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f'SELECT {wanted} FROM "{self.table}" NOT INDEXED{where}'


class _Irregular(Exception):
    """The fast way cannot tell what a column holds."""


def read_table(
    path: Path, source: ExportTable, columns: frozenset[str], notes: list[ImportNote], keep: Keep | None = None
) -> pl.DataFrame:
    """All sound rows of `source`, or those to keep, in the order of the file; absent columns are null. What is lost
    becomes a note.
    """
    if not readable(path, source, columns, notes):
        return no_rows(source)
    present = tuple((name, kind) for name, kind in source.columns.items() if name in columns)
    row_ids = "_rowid_" not in {name.lower() for name in columns}  # a column of that name would hide them
    scan = _Scan(path, source.name, present, most_rows_in(path), row_ids, source, keep)
    try:
        frame = _fast(scan)
    except _Irregular:
        frame = kept_rows(careful_rows(path, source, present, scan.most_rows, notes), source, keep)
    return complete_columns(frame, source, notes)


def _fast(scan: _Scan) -> pl.DataFrame:
    ranges, stopped = _ranges(scan), Event()
    with ThreadPoolExecutor(max_workers=min(len(ranges), _most_workers())) as pool:
        scans = [pool.submit(_scan_range, scan, bounds, stopped) for bounds in ranges]
        try:
            while wait(scans, timeout=_ATTENTIVE_S, return_when=FIRST_EXCEPTION).not_done:
                if any(scan.done() and scan.exception() for scan in scans):
                    break
        finally:
            stopped.set()  # whoever is interrupted need not wait for the threads to read on
    results = [scan.result() for scan in scans]
    if sum(part.height for parts in results for part in parts) > scan.most_rows:
        raise endless(scan.path, scan.table)
    schema = pl.Schema({name: POLARS_TYPE[kind] for name, kind in scan.present})
    return stacked((parts.pop(0) for parts in results for _ in range(len(parts))), schema)


def _ranges(scan: _Scan) -> list[tuple[int, int] | None]:
    """Bounds of row ids that share the table out; `None` reads it whole."""
    if not scan.has_row_ids:
        return [None]
    try:
        with closing(sqlite3.connect(uri_of(scan.path), uri=True)) as connection:
            low, high = connection.execute(
                f'SELECT (SELECT _rowid_ FROM "{scan.table}" ORDER BY _rowid_ LIMIT 1), '
                f'(SELECT _rowid_ FROM "{scan.table}" ORDER BY _rowid_ DESC LIMIT 1)'
            ).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return [None]
    if not isinstance(low, int) or not isinstance(high, int):
        return [None]
    size = high - low
    # An interrupt waits for the ranges begun, so a large table is many of them; row ids may have holes of any size.
    count = min(_most_workers(), size // _ROWS_PER_RANGE + 1)
    count = max(count, min(size, scan.most_rows) // _MOST_ROWS_PER_RANGE)
    cuts = [low + (high - low + 1) * part // count for part in range(count)] + [high + 1]
    return [(first, after - 1) for first, after in pairwise(cuts)] if count > 1 else [None]


def _most_workers() -> int:
    return min(_MOST_WORKERS, os.cpu_count() or 1)


def _scan_range(scan: _Scan, bounds: tuple[int, int] | None, stopped: Event) -> list[pl.DataFrame]:
    import adbc_driver_manager
    import pyarrow
    from adbc_driver_sqlite import StatementOptions, dbapi

    parts: list[pl.DataFrame] = []
    rows = 0
    if stopped.is_set():
        return parts
    try:
        with dbapi.connect(uri_of(scan.path), autocommit=True) as connection, connection.cursor() as cursor:
            for pragma in pragmas_for(scan.path):
                cursor.execute(pragma)
            cursor.adbc_statement.set_options(**{StatementOptions.BATCH_ROWS.value: str(_BATCH_ROWS)})
            cursor.execute(scan.sql(bounds))
            for batch in cursor.fetch_record_batch():
                batch.validate(full=True)
                parts.append(kept_rows(_typed(batch, scan), scan.source, scan.keep))
                rows += batch.num_rows
                if rows > scan.most_rows:
                    raise endless(scan.path, scan.table)
                if stopped.is_set():
                    break
    except (adbc_driver_manager.Error, pyarrow.ArrowException, OSError) as error:
        raise _Irregular from error
    return parts


def _typed(batch: ArrowBatch, scan: _Scan) -> pl.DataFrame:
    """The batch with the types we want; `_Irregular` where the driver saw others."""
    frame = pl.DataFrame(batch)
    for name, kind in scan.present:
        seen = frame.schema[name]
        if seen not in {POLARS_TYPE[kind], pl.Int64 if kind != "text" else pl.String}:
            raise _Irregular
    try:
        return frame.cast({name: POLARS_TYPE[kind] for name, kind in scan.present})
    except pl.exceptions.InvalidOperationError as error:
        raise _Irregular from error


def _expression(name: str, kind: ColumnKind) -> str:
    """Text is never null here: a first batch of nulls would make the driver take the column for integers."""
    if kind == "text":
        return f'COALESCE(substr(CAST("{name}" AS TEXT), 1, {TEXT_CHARACTERS}), \'\') AS "{name}"'
    if kind == "real":
        return f'CASE WHEN typeof("{name}") IN (\'integer\', \'real\') THEN CAST("{name}" AS REAL) END AS "{name}"'
    return f'"{name}"'


_SECONDS_TO_LOOK = 60.0
_PLAIN_TABLE = "CREATE TABLE "  # as SQLite itself spells it, whatever was typed
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


@dataclass(frozen=True, slots=True)
class Database:
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
            notes += unread_note([name for name in sorted(plain - KNOWN) if _has_rows(connection, name)])
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what SQLite says may quote bytes of the file
        raise UnreadableTrace(path, f"SQLite cannot read the schema ({error})", remedy=EXPORT_AGAIN) from error
    for name in refused:
        if name in INDISPENSABLE:
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
        raise UnreadableTrace(path, f"not a SQLite database: it begins with {head[:16]!r}", remedy=EXPORT_AGAIN)
    for suffix, what in (("-wal", "write-ahead log"), ("-journal", "rollback journal")):
        beside = path.with_name(path.name + suffix)
        if beside.is_file() and beside.stat().st_size:
            raise UnreadableTrace(
                path,
                f"a {what} lies beside it ({beside.name}, {beside.stat().st_size} bytes): part of the data is there",
                remedy=f"close the program that writes it, run sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)', "
                "and try again",
            )
    stated, actual = size_of(path)
    if actual < stated:
        message = f"the file is cut off: {actual} of {stated} bytes are there; rows on missing pages are lost"
        notes.append(ImportNote(NoteKind.DAMAGE, message))


@contextmanager
def _looking(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(uri_of(path), uri=True)) as connection:
        for pragma in pragmas_for(path):
            connection.execute(pragma)
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
