"""An Nsight Systems export, written anew: of known tables the known columns, of known strings those that are in use.

Nothing of the old file is copied but cells: no schema, no free page, no view, no table or column that no reader knows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from timesink.capture.errors import failure
from timesink.capture.redaction.cleaner import Cleaner, json_in
from timesink.capture.redaction.packed import Unpacked
from timesink.knowledge import kept_texts, nsys_tables, private_texts

_STRINGS, _NVTX = nsys_tables.STRINGS.name, nsys_tables.NVTX.name
_TABLES = frozenset(table.name for table in nsys_tables.DECLARED)
_TYPES = {"int64": "INTEGER", "int32": "INTEGER", "real": "REAL", "text": "TEXT"}
_WORTH_TELLING = "CAST(severity AS INTEGER) IN (2, 3)"  # warnings and errors: what nsys says of lost events
_OF_FRAMES = ("File", "Function")


def redact_sqlite(unpacked: Unpacked, target: Path, cleaner: Cleaner) -> None:
    """Of known tables the known columns."""
    source = unpacked.path
    target.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(target.resolve().as_uri(), uri=True)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("ATTACH ? AS old", (f"{source.resolve().as_uri()}?mode=ro&immutable=1",))
            _Rewriting(db, cleaner).run()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        remedy = "make room" if "full" in str(error) else "export the report again"
        raise failure(f"{source.name} cannot be redacted: {error}", remedy) from error


class _Rewriting:
    def __init__(self, db: sqlite3.Connection, cleaner: Cleaner) -> None:
        self.db, self.cleaner = db, cleaner
        listed = db.execute("SELECT name, type, sql FROM old.sqlite_master").fetchall()
        plain = {name for name, kind, sql in listed if kind == "table" and not _is_virtual(sql)}
        self.columns = {name: self._columns(name) for name in sorted(plain & _TABLES)}
        self.left_out = {name for name, kind, _ in listed if kind != "index"} - {*self.columns}

    def run(self) -> None:
        """Copy everything, and count what is left out."""
        self._register()
        for table in (name for name in self.columns if name != _STRINGS):
            self._copy(table)
        if _STRINGS in self.columns:
            self._copy_strings()
        self.db.commit()
        if others := sum(not name.startswith("sqlite_") for name in self.left_out):
            self.cleaner.removed["tables, views and triggers that no reader takes"] += others

    def _columns(self, table: str) -> dict[str, str]:
        """The known columns that the old table has, with the kind of each. Its columns are no expressions."""
        named = (one.columns for one in nsys_tables.DECLARED if one.name == table)
        kinds = {name: _TYPES[kind] for columns in named for name, kind in columns.items()}
        found = [row[1] for row in self.db.execute(f"PRAGMA old.table_xinfo({_quote(table)})") if not row[6]]
        return {name: kinds[name] for name in found if name in kinds}

    def _register(self) -> None:
        def label(cell: Any) -> str | None:
            return None if cell is None else self.cleaner.words(_text(cell))

        def payload(cell: Any) -> str | None:
            return None if cell is None else self.cleaner.payload(_text(cell))

        def kept(name: Any) -> bool:
            return private_texts.SETTINGS.fullmatch(_text(name)) is not None

        for name, function in (("label", label), ("payload", payload), ("kept", kept)):
            self.db.create_function(name, 1, function, deterministic=True)

    def _copy(self, table: str) -> None:
        columns = self.columns[table]
        if not columns:
            return
        self._create(table, columns)
        cells = []
        for name, kind in columns.items():
            cell = _quote(name)
            if kind == "TEXT":
                cells.append(f"{'payload' if name == 'jsonText' else 'label'}(CAST({cell} AS BLOB))")
            else:  # text in a column of numbers is no number
                cells.append(f"CASE WHEN typeof({cell}) IN ('integer', 'real') THEN {cell} END")
        where = ""
        if table in kept_texts.NSYS_SETTINGS:
            where = " WHERE kept(CAST(name AS BLOB))"
        elif table == "DIAGNOSTIC_EVENT" and "severity" in columns:
            where = f" WHERE {_WORTH_TELLING}"
        self.db.execute(f"INSERT INTO main.{_quote(table)} SELECT {', '.join(cells)} FROM old.{_quote(table)}{where}")

    def _create(self, table: str, columns: dict[str, str]) -> None:
        declared = (f"{_quote(name)} {kind}" for name, kind in columns.items())
        self.db.execute(f"CREATE TABLE main.{_quote(table)} ({', '.join(declared)})")

    def _numbers_in_frames(self) -> set[int]:
        """Strings that payloads name by their number."""
        if "jsonText" not in self.columns.get(_NVTX, {}):
            return set()
        texts = self.db.execute(f"SELECT DISTINCT jsonText FROM main.{_NVTX} WHERE jsonText IS NOT NULL")
        return {number for (text,) in texts for number in _frames(json_in(text))}

    def _used(self, wanted: Iterable[tuple[str, str]]) -> set[int]:
        used: set[int] = set()
        for table, column in wanted:
            if column in self.columns.get(table, {}):
                cells = self.db.execute(f"SELECT DISTINCT {_quote(column)} FROM main.{_quote(table)}")
                used |= {key for (key,) in cells if isinstance(key, int)}
        return used

    def _copy_strings(self) -> None:
        """Strings that kept rows refer to. nsys keeps the environment of every process, and what it printed, among the
        others, and an environment is left out whoever refers to it."""
        columns = self.columns[_STRINGS]
        self._create(_STRINGS, columns)
        if set(columns) != {"id", "value"}:
            return
        labels = self._used((table, name) for table in self.columns for name in kept_texts.NSYS_LABELS)
        labels |= self._numbers_in_frames()
        symbols = self._used(kept_texts.NSYS_SYMBOLS) - labels
        strings = self.db.execute(f"SELECT id, CAST(value AS BLOB) FROM old.{_STRINGS}")
        kept = ((key, self._string(key, raw, symbols)) for key, raw in strings if key in labels or key in symbols)
        self.db.executemany(
            f"INSERT INTO main.{_STRINGS} (id, value) VALUES (:1, :2)", [row for row in kept if row[1] is not None]
        )

    def _string(self, key: int, raw: Any, symbols: set[int]) -> str | None:
        text = _text(raw)
        if raw is None or private_texts.ENVIRONMENT.search(text):
            return None
        if key in symbols:
            return self.cleaner.symbol(text)
        return self.cleaner.payload(text)


def _frames(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for inner in value:
            yield from _frames(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in _OF_FRAMES and isinstance(inner, int):
                yield inner
            else:
                yield from _frames(inner)


def _is_virtual(sql: object) -> bool:
    return "VIRTUAL" in str(sql).upper()[: len("CREATE VIRTUAL") + 4]


def _text(cell: object) -> str:
    """A cell of a column of texts, which SQLite lets hold anything."""
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else "" if cell is None else str(cell)


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
