"""Mutations of tables: cells, columns and rows of SQLite databases, Parquet and Arrow files."""

from __future__ import annotations

import contextlib
import io
import random
import sqlite3
from typing import Any

import polars as pl
import pyarrow
import pyarrow.parquet

from fuzz.trees import EXTREMES

_SQL_EXTREMES = tuple(
    value.encode() if isinstance(value, str) and "\ud800" in value.encode("utf-8", "replace").decode() else value
    for value in EXTREMES
    if value is None or isinstance(value, (float, str)) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63)
)
_UNREADABLE = (
    *(pl.exceptions.PolarsError, pyarrow.ArrowException, OSError),
    *(LookupError, ArithmeticError, TypeError, ValueError),
)
_TYPES = (pl.Int8, pl.UInt64, pl.Float32, pl.String, pl.Boolean, pl.Date, pl.Null, pl.Decimal(10, 2), pl.Binary)


def mutated_database(data: bytes, rng: random.Random) -> bytes | None:
    """The database with cells, columns or tables changed by SQL; None where it cannot be opened."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        try:
            db.deserialize(data)
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            _change(db, rng.choice(names), rng)
            db.commit()
            return db.serialize()
        except (sqlite3.Error, IndexError, OverflowError, UnicodeError, ValueError, MemoryError):
            return None


def _change(db: sqlite3.Connection, table: str, rng: random.Random) -> None:
    columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
    column, other = rng.choice(columns), rng.choice(columns)
    some = "rowid % ? = 0"
    match rng.randrange(9):
        case 0:
            db.execute(f'DROP TABLE "{table}"')
        case 1:
            db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        case 2:
            db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" LIMIT 40')
        case 3:
            db.execute(f'UPDATE "{table}" SET "{column}" = "{other}" WHERE {some}', (rng.randrange(1, 4),))
        case 4:
            db.execute(f'ALTER TABLE "{table}" RENAME TO hidden')
            db.execute(f'CREATE VIEW "{table}" AS SELECT * FROM hidden')
        case 5:
            factor = rng.choice((-1, 0, 10**6, 1 << 40))
            db.execute(f'UPDATE "{table}" SET "{column}" = "{column}" * ? WHERE {some}', (factor, rng.randrange(1, 9)))
        case _:
            value: Any = rng.choice(_SQL_EXTREMES)
            db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {some}', (value, rng.randrange(1, 20)))


def mutated_frame(data: bytes, rng: random.Random) -> bytes | None:
    """A Parquet or Arrow file with a column changed; None where it cannot be read."""
    is_parquet = data.startswith(b"PAR1")
    try:
        # Read by Arrow: Polars panics at some damage.
        table = pyarrow.parquet.read_table(io.BytesIO(data)) if is_parquet else pyarrow.ipc.open_file(data).read_all()
        table.validate(full=True)
        frame = pl.DataFrame(table)
        frame = _changed(frame, rng)
        made = io.BytesIO()
        frame.write_parquet(made) if is_parquet else frame.write_ipc(made)
        return made.getvalue()
    except (
        pl.exceptions.PolarsError,
        pyarrow.ArrowException,
        OSError,
        IndexError,
        OverflowError,
        TypeError,
        ValueError,
    ):
        return None


def _changed(frame: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    name = rng.choice(frame.columns)
    match rng.randrange(7):
        case 0:
            return frame.drop(name)
        case 1:
            return frame.with_columns(pl.col(name).cast(rng.choice(_TYPES), strict=False))
        case 2:
            return pl.concat([frame, frame.head(40)])
        case 3:
            return frame.with_columns(frame[rng.choice(frame.columns)].alias(name))
        case 4:
            return frame.clear()
        case _:
            value = rng.choice(EXTREMES)
            hit = pl.int_range(pl.len()) % rng.randrange(1, 20) == 0
            return frame.with_columns(pl.when(hit).then(pl.lit(value)).otherwise(pl.col(name)).alias(name))
