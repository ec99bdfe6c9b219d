"""An export in SQLite, opened so that nothing in the file can act: only plain tables that we know by name are read.

The schema is looked at through Python's `sqlite3` with an authorizer; the driver that reads in bulk has none, so it is
pointed only at tables whose query the authorizer has let through.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.bulk import read_table
from timesink.readers.nsys.export import EVENT_TABLE, KNOWN, Keep, Source, unread_note
from timesink.readers.nsys.opened import EXPORT_AGAIN, HEADER_BYTES, INDISPENSABLE, MAGIC, pragmas_for, size_of, uri_of

_SECONDS_TO_LOOK = 60.0
_PLAIN_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})


@dataclass(frozen=True, slots=True)
class Database:
    """A SQLite export; `tables` holds the plain tables that passed the look at the schema."""

    path: Path
    tables: Mapping[str, frozenset[str]]
    notes: list[ImportNote] = field(default_factory=list)

    def read(self, source: Source, keep: Keep | None = None) -> pl.DataFrame:
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
        head = stream.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
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
        notes.append(ImportNote(NoteKind.DATA_LOSS, message))


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
    """Tables that have pages of their own, and the known names that stand for something else: a view, say."""
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
    return isinstance(page, int) and page > 0 and isinstance(sql, str) and _PLAIN_TABLE.match(sql) is not None


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
