"""Rows of one SQLite table as columns, fast where the table is sound and carefully where it is not.

Fast: `adbc-driver-sqlite` over ranges of row ids, one thread and one connection each. It fixes a column's type from its
first batch, so a value of another type further down ends the fast way. Careful: Python's `sqlite3`, cell by cell, which
keeps what is sound, counts what is not, and keeps the rows before a damaged page.

The slow, distrustful way through a SQLite table: cell by cell, keeping what is sound.
"""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.lookup import stacked
from timesink.model.trace import ImportNote, NoteKind
from timesink.readers.nsys.export import POLARS_TYPE, Keep, Kind, Source
from timesink.readers.nsys.opened import (
    EXPORT_AGAIN,
    INDISPENSABLE,
    TEXT_CHARACTERS,
    completed,
    endless,
    kept,
    most_rows_in,
    nothing,
    pragmas_for,
    readable,
    spoiled_note,
    uri_of,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch as ArrowBatch

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
    present: tuple[tuple[str, Kind], ...]
    most_rows: int
    has_row_ids: bool
    source: Source
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
    path: Path, source: Source, columns: frozenset[str], notes: list[ImportNote], keep: Keep | None = None
) -> pl.DataFrame:
    """All sound rows of `source`, or those to keep, in the order of the file; absent columns are null. What is lost
    becomes a note.
    """
    if not readable(path, source, columns, notes):
        return nothing(source)
    present = tuple((name, kind) for name, kind in source.columns.items() if name in columns)
    row_ids = "_rowid_" not in {name.lower() for name in columns}  # a column of that name would hide them
    scan = _Scan(path, source.name, present, most_rows_in(path), row_ids, source, keep)
    try:
        frame = _fast(scan)
    except _Irregular:
        frame = kept(careful_rows(path, source, present, scan.most_rows, notes), source, keep)
    return completed(frame, source, notes)


def _fast(scan: _Scan) -> pl.DataFrame:
    ranges, stopped = _ranges(scan), Event()
    with ThreadPoolExecutor(max_workers=min(len(ranges), _most_workers())) as pool:
        scans = [pool.submit(_scan_range, scan, bounds, stopped) for bounds in ranges]
        try:
            while wait(scans, timeout=_ATTENTIVE_S, return_when=FIRST_EXCEPTION).not_done:
                if any(one.done() and one.exception() for one in scans):
                    break
        finally:
            stopped.set()  # whoever is interrupted need not wait for the threads to read on
    results = [one.result() for one in scans]
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
                parts.append(kept(_typed(batch, scan), scan.source, scan.keep))
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


def _expression(name: str, kind: Kind) -> str:
    """Text is never null here: a first batch of nulls would make the driver take the column for integers."""
    if kind == "text":
        return f'COALESCE(substr(CAST("{name}" AS TEXT), 1, {TEXT_CHARACTERS}), \'\') AS "{name}"'
    if kind == "real":
        return f'CASE WHEN typeof("{name}") IN (\'integer\', \'real\') THEN CAST("{name}" AS REAL) END AS "{name}"'
    return f'"{name}"'
