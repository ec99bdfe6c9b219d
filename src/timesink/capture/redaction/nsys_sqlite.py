"""An Nsight Systems export, written anew: of known tables the known columns, of known strings those that are in use.

Nothing of the old file is copied but cells: no schema, no free page, no view, no table or column that no reader knows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from timesink.capture.errors import failure
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import kept_texts, nsys_tables, private_texts

_STRINGS, _NVTX, _DIAGNOSTICS = nsys_tables.STRINGS.name, nsys_tables.NVTX.name, nsys_tables.DIAGNOSTICS.name
_TYPES = {"int64": "INTEGER", "int32": "INTEGER", "real": "REAL", "text": "TEXT"}
_WORTH_TELLING = "CAST(severity AS INTEGER) IN (2, 3)"  # warnings and errors: what nsys says of lost events
_PLAIN_TABLES = "SELECT name FROM old.sqlite_master WHERE type = 'table' AND substr(sql, 1, 18) NOT LIKE '%VIRTUAL%'"
_OTHERS = "SELECT name FROM old.sqlite_master WHERE type <> 'index' AND substr(name, 1, 7) <> 'sqlite_'"
_KINDS = {"environment": private_texts.ENVIRONMENT, "setting": private_texts.SETTINGS}
# Strings that payloads of ranges name by their number: those of frames.
_OF_FRAMES = (
    f"SELECT value FROM main.{_NVTX}, json_tree(CASE WHEN json_valid(jsonText) THEN jsonText ELSE 'null' END) "
    "WHERE key IN ('File', 'Function') AND type = 'integer'"
)


def redact_sqlite(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Of known tables the known columns."""
    target.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(target.resolve().as_uri(), uri=True)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("ATTACH ? AS old", (f"{unpacked.path.resolve().as_uri()}?mode=ro&immutable=1",))
            db.create_function("at", 2, partial(_at, cleaner), deterministic=True)
            _rewrite(db, cleaner)
            db.commit()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        remedy = "make room" if "full" in str(error) else "export the report again"
        raise failure(f"{unpacked.path.name} cannot be redacted: {error}", remedy) from error


def _at(cleaner: Cleaner, place: str, cell: object) -> str | bool | None:
    """A cell, which SQLite lets be anything, by its place; of a kind of texts whether it is one."""
    text = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)
    kind = _KINDS.get(place)
    return None if cell is None else cleaner.at(place, text) if kind is None else kind.search(text) is not None


def _rewrite(db: sqlite3.Connection, cleaner: Cleaner) -> None:
    """Copy the known tables, strings last: those that kept rows refer to."""
    known: dict[str, dict[str, str]] = {}
    for one in nsys_tables.DECLARED:
        known.setdefault(one.name, {}).update((name, _TYPES[kind]) for name, kind in one.columns.items())
    plain = {name for (name,) in db.execute(_PLAIN_TABLES)} & known.keys()
    wanted: dict[str, list[str]] = {"payload": ["SELECT NULL"], "symbol": ["SELECT NULL"]}
    for table in sorted(plain, key=lambda table: (table == _STRINGS, table)):
        # columns of the old table, of which no expressions
        found = [row[1] for row in db.execute(f"PRAGMA old.table_xinfo({_quote(table)})") if not row[6]]
        columns = {name: known[table][name] for name in found if name in known[table]}
        if columns:
            _copy(db, table, columns, *map(" UNION ".join, wanted.values()))
        for name in columns.keys() & kept_texts.NSYS_TEXTS.keys():
            wanted[kept_texts.NSYS_TEXTS[name]].append(f"SELECT {_quote(name)} FROM main.{_quote(table)}")
        wanted["payload"] += [_OF_FRAMES] * (table == _NVTX and "jsonText" in columns)
    if others := {name for (name,) in db.execute(_OTHERS)} - plain:
        cleaner.removed["tables, views and triggers that no reader takes"] += len(others)


def _copy(db: sqlite3.Connection, table: str, columns: dict[str, str], labels: str, symbols: str) -> None:
    db.execute(
        f"CREATE TABLE main.{_quote(table)} ({', '.join(f'{_quote(name)} {columns[name]}' for name in columns)})"
    )
    cells = []
    for name, kind in columns.items():
        cell, text = _quote(name), f"CAST({_quote(name)} AS BLOB)"
        if table == _STRINGS and name == "value":
            place = f"CASE WHEN id IN ({labels}) THEN 'payload' ELSE 'symbol' END"
            # nsys keeps the environment of every process among the strings: one is left out whoever refers to it
            cells.append(f"CASE WHEN NOT at('environment', {text}) THEN at({place}, {text}) END")
        elif kind == "TEXT":
            cells.append(f"at('{'payload' if name == 'jsonText' else 'words'}', {text})")
        else:  # text in a column of numbers is no number
            cells.append(f"CASE WHEN typeof({cell}) IN ('integer', 'real') THEN {cell} END")
    where = "1"
    if table == _STRINGS:
        where = f"id IN ({labels} UNION {symbols})" if set(columns) == {"id", "value"} else "0"
    elif columns.get("value") == "TEXT":  # settings
        where = "at('setting', CAST(name AS BLOB))"
    elif table == _DIAGNOSTICS and "severity" in columns:
        where = _WORTH_TELLING
    db.execute(f"INSERT INTO main.{_quote(table)} SELECT {', '.join(cells)} FROM old.{_quote(table)} WHERE {where}")
    if table == _STRINGS:
        db.execute(f"DELETE FROM main.{table} WHERE value IS NULL")


def _quote(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
