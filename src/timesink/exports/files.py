"""One table of a trace as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from timesink.errors import UsageError
from timesink.model.tables import ALL
from timesink.model.trace import Trace

SUFFIXES = (".parquet", ".csv", ".json")
# A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = r"^[=+\-@\t\r]"


def table_named(trace: Trace, name: str) -> pl.DataFrame:
    """The table of that name. `UsageError` lists those the trace has."""
    for table in ALL:
        if table.name == name and table in trace:
            return trace[table]
    known = ", ".join(table.name for table in ALL if table in trace)
    raise UsageError(f"the trace has no table {name!r}", remedy=f"choose one of: {known}")


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Parquet keeps every value; CSV and JSON (one object per line) write categories as text."""
    text = frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    match path.suffix.lower():
        case ".parquet":
            text.write_parquet(path)
        case ".json":
            text.write_ndjson(path)
        case ".csv":
            text.with_columns(pl.col(pl.String).str.replace(_FORMULA, "'$0")).write_csv(path)
        case suffix:
            raise UsageError(f"no table is written as {suffix!r}", remedy=f"choose one of: {', '.join(SUFFIXES)}")
