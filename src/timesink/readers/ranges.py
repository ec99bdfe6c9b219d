"""Values that no machine has: declared per column (`Column.within`), looked for once in whatever a reader read."""

from __future__ import annotations

import polars as pl

from timesink.model.record import replace
from timesink.model.schema import Column, Table
from timesink.model.trace import ImportNote, NoteKind, Trace


def within_ranges(trace: Trace) -> Trace:
    """The trace without values beyond what its columns declare, and a note for each column that held some.

    A value that may be missing becomes null; a row that cannot be without it is left out.
    """
    tables, notes = dict(trace.tables), []
    for table, frame in trace.tables.items():
        for name, column in table.columns.items():
            if column.within is not None and frame.height and not _all_within(frame[name], column.within):
                tables[table], note = _without(tables[table], table, name, column)
                notes.append(note)
    return replace(trace, tables=tables, notes=(*trace.notes, *notes)) if notes else trace


def _all_within(values: pl.Series, within: tuple[float, float]) -> bool:
    least, most = values.min(), values.max()
    return least is None or bool(within[0] <= least and most <= within[1])  # type: ignore[operator]


def _without(frame: pl.DataFrame, table: Table, name: str, column: Column) -> tuple[pl.DataFrame, ImportNote]:
    assert column.within is not None
    least, most = column.within
    fine = pl.col(name).is_between(least, most) | pl.col(name).is_null()
    if column.dtype == pl.Float64:
        fine |= pl.col(name).is_nan()  # a pass that failed, and says so
    count = frame.height - frame.select(fine.sum()).item()
    if column.nullable:
        kept, done = frame.with_columns(pl.when(fine).then(pl.col(name)).alias(name)), "not used"
    else:
        kept, done = frame.filter(fine), "rows left out"
    unit = f" {column.unit}" if column.unit else ""
    message = f"{count} values of {table.name}.{name} outside {least:,} to {most:,}{unit}: {done}"
    return kept, ImportNote(NoteKind.DATA_LOSS, message, count, table.name)
