"""The slow, distrustful way through a SQLite table: cell by cell, keeping what is sound."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import POLARS_TYPE, Kind, Source
from timesink.readers.nsys.opened import EXPORT_AGAIN, TEXT_CHARACTERS, endless, pragmas_for, uri_of
from timesink.readers.nsys.sound import INDISPENSABLE, spoiled_note

_FETCH_ROWS = 4096
_LARGEST = {"int64": 1 << 63, "int32": 1 << 31}

Cell = int | float | bytes | None
Value = int | float | str | None


def careful_rows(
    path: Path, source: Source, present: tuple[tuple[str, Kind], ...], most_rows: int, notes: list[ImportNote]
) -> pl.DataFrame:
    """Every row before the first damaged page; a cell that is not what its column should hold is null, and counted."""
    wanted = ", ".join(f'"{name}"' for name, _ in present)
    columns: list[list[Value]] = [[] for _ in present]
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


def _value(cell: Cell, kind: Kind) -> Value:
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
