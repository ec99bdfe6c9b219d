"""One table of a trace as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from timesink.errors import UsageError, unknown
from timesink.model.tables import ALL
from timesink.model.trace import Trace
from timesink.untrusted.scrub import defuse_lines, scrub, starts_formula

SUFFIXES = (".parquet", ".csv", ".json")
# Controls, line ends, characters of no width or other direction; and what a log takes for a command: asked of whole
# columns, so an expression of the engine.
_ACTING = r"\p{C}|\p{Zl}|\p{Zp}|##\w*\[|^\s*::"


def table_named(trace: Trace, name: str) -> pl.DataFrame:
    """The table of that name. `UsageError` names those alike."""
    for table in ALL:
        if table.name == name and table in trace:
            return trace[table]
    if any(table.name == name for table in ALL):
        raise UsageError(f"the trace has no table {name!r}", remedy="`timesink tables TRACE` lists those it has")
    raise unknown("table", name, (table.name for table in ALL if table in trace), "timesink tables TRACE")


def _visible(texts: pl.Series) -> pl.Series:
    """Texts in which nothing acts on a terminal or a log. Those that are harmless, nearly all, are not touched."""
    acting = texts.filter(texts.str.contains(_ACTING)).unique().to_list()
    return texts.replace(acting, [defuse_lines(scrub(name, len(name))) for name in acting]) if acting else texts


def _inert(texts: pl.Series) -> pl.Series:
    """Texts behind an apostrophe where a spreadsheet would take them for a formula."""
    acting = [text for text in texts.unique().drop_nulls() if text[:1] in "\t\r" or starts_formula(text)]
    return texts.replace(acting, [f"'{text}" for text in acting]) if acting else texts


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Parquet keeps every value; CSV and JSON (one object per line) write categories as text."""
    text = frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    match path.suffix.lower():
        case ".parquet":
            text.write_parquet(path)
        case ".json":
            text.write_ndjson(path)
        case ".csv":
            names = [name for name, dtype in text.schema.items() if dtype == pl.String]
            shown = text.with_columns(_visible(text[name]) for name in names)
            shown.with_columns(_inert(shown[name]) for name in names).write_csv(path)
        case suffix:
            raise UsageError(f"no table is written as {suffix!r}", remedy=f"choose one of: {', '.join(SUFFIXES)}")
