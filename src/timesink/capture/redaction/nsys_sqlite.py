"""An Nsight Systems export without environment, command lines, paths, host and user names. In place, and compacted."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.redaction.cleaner import Cleaner
from timesink.knowledge import private_texts

_DROPPED = re.compile(private_texts.NSYS_TABLES)
_PEOPLE = re.compile(private_texts.NSYS_PEOPLE)
_SERIALS = re.compile(private_texts.NSYS_SERIALS)
_REFERRING = re.compile(private_texts.NSYS_TEXT_COLUMNS)
_ENVIRONMENT = re.compile(private_texts.ENVIRONMENT, re.DOTALL)
_WORTH_TELLING = "(2, 3)"  # warnings and errors: what nsys says of lost events


def redact_sqlite(path: Path, cleaner: Cleaner | None = None) -> list[str]:
    """Rewrite the file; returns one phrase per kind of thing removed."""
    try:
        with closing(sqlite3.connect(path.resolve().as_uri(), uri=True)) as db:
            return _redact(db, cleaner or Cleaner())
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise CaptureError(
            Fault.FAILED, f"{path.name} cannot be redacted: {error}", remedy="export the report again"
        ) from error


def _redact(db: sqlite3.Connection, cleaner: Cleaner) -> list[str]:
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA trusted_schema = OFF")
    removed = [*_drop_programs(db)]
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    _learn_people(db, tables, cleaner)
    removed += [*_drop_tables(db, tables), *_trim_settings(db, tables), *_empty_serials(db, tables)]
    removed += _drop_strings(db, tables)
    for table in tables:
        _clean_texts(db, table, cleaner)
    db.commit()
    db.execute("VACUUM")
    return [*removed, *cleaner.summary()]


def _drop_programs(db: sqlite3.Connection) -> Iterator[str]:
    """Triggers and views: nsys writes none, and what they would do to the rows as they change is not ours to run."""
    kinds = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY type, name"
    for kind, name in db.execute(kinds).fetchall():
        db.execute(f"DROP {kind.upper()} IF EXISTS {_quoted(name)}")
        yield f"{kind} {name}"


def _learn_people(db: sqlite3.Connection, tables: list[str], cleaner: Cleaner) -> None:
    """Learn hosts and users from the settings that name them, to find them wherever else they occur."""
    for table in (name for name in private_texts.NSYS_SETTINGS_KEPT if name in tables):
        named = db.execute(f"SELECT name, value FROM {table} WHERE value IS NOT NULL").fetchall()
        for name, value in named:
            cleaner.learn_from(_text(value))
            if _PEOPLE.fullmatch(_text(name)):
                cleaner.learn([_text(value)])


def _drop_tables(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    for table in [name for name in tables if _DROPPED.fullmatch(name)]:
        (rows,) = db.execute(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()
        db.execute(f"DROP TABLE {_quoted(table)}")
        tables.remove(table)
        if rows:
            yield f"table {table}, rows: {rows}"
    if "DIAGNOSTIC_EVENT" in tables:
        gone = db.execute(f"DELETE FROM DIAGNOSTIC_EVENT WHERE severity NOT IN {_WORTH_TELLING}").rowcount
        if gone:
            yield f"messages of nsys that are no warnings: {gone}"


def _trim_settings(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    """Environment, command line, folder, host and user are among the settings: keep a list, drop the rest."""
    for table, kept in private_texts.NSYS_SETTINGS_KEPT.items():
        if table in tables:
            names = [name for (name,) in db.execute(f"SELECT DISTINCT name FROM {table}")]
            unwanted = [name for name in names if not re.fullmatch(kept, _text(name))]
            db.executemany(f"DELETE FROM {table} WHERE name IS ?", [(name,) for name in unwanted])
            if unwanted:
                yield f"settings of {table}: {len(unwanted)} (environment, command line, folders, host, user)"


def _empty_serials(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    for table in tables:
        for column, kind in _columns(db, table):
            if _SERIALS.fullmatch(column):
                blank = "''" if "TEXT" in kind else "0"
                rows = db.execute(
                    f"UPDATE {_quoted(table)} SET {_quoted(column)} = {blank} WHERE {_quoted(column)} <> {blank}"
                ).rowcount
                if rows:
                    yield f"column {table}.{column}"


def _drop_strings(db: sqlite3.Connection, tables: list[str]) -> Iterator[str]:
    """Strings no row refers to: nsys keeps the environment of every process and what it printed among them. And strings
    that look like an environment, whoever refers to them.
    """
    if "StringIds" not in tables:
        return
    used: set[int] = set()
    for table in tables:
        declared = {row[3] for row in db.execute(f"PRAGMA foreign_key_list({_quoted(table)})") if row[2] == "StringIds"}
        named = {column for column, _ in _columns(db, table) if _REFERRING.fullmatch(column)}
        for column in sorted(declared | named):
            used |= {
                key
                for (key,) in db.execute(f"SELECT DISTINCT {_quoted(column)} FROM {_quoted(table)}")
                if isinstance(key, int)
            }
    strings = db.execute("SELECT id, value FROM StringIds").fetchall()
    unused = [(key,) for key, text in strings if key not in used or _ENVIRONMENT.search(_text(text))]
    db.executemany("DELETE FROM StringIds WHERE id = ?", unused)
    if unused:
        yield f"strings that nothing kept refers to, environments among them: {len(unused)}"


def _clean_texts(db: sqlite3.Connection, table: str, cleaner: Cleaner) -> None:
    """Every text that is left: `/home/ann/x/train.py` becomes `train.py`, hosts and users become ***."""
    for column, kind in _columns(db, table):
        if kind and "TEXT" not in kind and "CHAR" not in kind:
            continue
        for (found,) in db.execute(f"SELECT DISTINCT {_quoted(column)} FROM {_quoted(table)}").fetchall():
            if isinstance(found, (str, bytes)) and (clean := cleaner.clean(_text(found))) != found:
                db.execute(
                    f"UPDATE {_quoted(table)} SET {_quoted(column)} = ? WHERE {_quoted(column)} = ?", (clean, found)
                )


def _text(cell: object) -> str:
    """A cell of a column of texts, which SQLite lets hold anything."""
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else "" if cell is None else str(cell)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _columns(db: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    return [(row[1], row[2].upper()) for row in db.execute(f"PRAGMA table_info({_quoted(table)})")]
