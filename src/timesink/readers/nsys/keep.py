"""Which rows of an export's table are wanted, said twice: in SQL, which leaves out what surely lies outside and spares
reading it, and as a filter of each batch, which decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from timesink.model.cut import touching
from timesink.readers.nsys.export import Source

Rows = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Keep:
    """`rows` takes the wanted rows out of a batch, which has those of the source's columns that the export has. A row
    for which `outside` (SQL, empty for none) is true is not wanted; it must not be true for a value of another type.
    """

    rows: Rows
    outside: str = ""


def within(source: Source, start: int, end: int) -> Keep:
    """The rows that touch the half-open window on the export's own clock, and those with no end that begin before it
    closes: nsys writes no end where a range was open when the recording stopped.
    """
    if "timestamp" in source.columns:
        return Keep(lambda batch: batch.filter(_moment("timestamp", start, end)), _not_between("timestamp", start, end))
    if "end" not in source.columns:
        return Keep(lambda batch: batch.filter(_moment("start", start, end)), _not_between("start", start, end))
    touches = touching(start, end, ("start", "end"))
    still_open = pl.col("end").is_null() & (pl.col("start") < end)
    return Keep(lambda batch: batch.filter(touches.fill_null(False) | still_open), outside(start, end))


def outside(start: int, end: int) -> str:
    """SQL that is true for rows whose interval surely lies outside. SQLite orders text behind all numbers, so types
    are asked for first.
    """
    integers = "typeof(\"start\") = 'integer' AND typeof(\"end\") = 'integer'"
    return f'{_after("start", end)} OR ({integers} AND "end" <= {start} AND "start" < {start})'


def _not_between(column: str, start: int, end: int) -> str:
    return f'{_after(column, end)} OR (typeof("{column}") = \'integer\' AND "{column}" < {start})'


def _after(column: str, end: int) -> str:
    return f'(typeof("{column}") = \'integer\' AND "{column}" >= {end})'


def _moment(column: str, start: int, end: int) -> pl.Expr:
    return (pl.col(column) >= start) & (pl.col(column) < end)


def turns(start: int, end: int) -> Keep:
    """The scheduling events of the window, and of each thread those around it: an interval lies between two events.

    Every batch keeps its own last before and first after, so some more than needed stay.
    """

    def rows(batch: pl.DataFrame) -> pl.DataFrame:
        ordered = batch.with_row_index("row").sort("start", "row")
        before = ordered.filter(pl.col("start") < start).group_by("globalTid").agg(pl.col("row").last())
        after = ordered.filter(pl.col("start") >= end).group_by("globalTid").agg(pl.col("row").first())
        around = pl.concat([before["row"], after["row"]])
        inside = pl.col("start").is_between(start, end, closed="left")
        wanted = batch.with_row_index("row").filter(inside.fill_null(False) | pl.col("row").is_in(around.implode()))
        return wanted.drop("row")

    return Keep(rows)
