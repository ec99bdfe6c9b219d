"""One declaration of a table serves storage, validation and its reference page; and the columns many tables share."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import polars as pl

from timesink._native import give_back
from timesink.errors import SchemaViolation
from timesink.model.arrays import WEIGHTY
from timesink.records import Record

DType = type[pl.DataType] | pl.DataType
ColumnValues = dict[str, Any]
"""What `Table.build` takes: by the name of a column its values, one value for all rows, or None for null."""
SHOWN_ROWS: Final = 5
"""Rows of a table that evidence points to: as many as people look at."""


class Column(Record, eq=False):
    """One column: its Polars type, what it means, its unit, whether it may be null, and the column it refers to.

    `within` is the least and the greatest value that any hardware or clock has: what a file says beyond is damage.
    """

    dtype: DType
    doc: str
    unit: str | None = None
    nullable: bool = False
    refers_to: str | None = None
    within: tuple[float, float] | None = None


class Table(Record, eq=False):
    """A canonical table. Two tables are the same only if they are the same object; `str(table)` is its name."""

    name: str
    doc: str
    columns: Mapping[str, Column]
    sorted_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Table({self.name})"

    @property
    def schema(self) -> pl.Schema:
        """The Polars schema a frame of this table has."""
        return _without_rows(self).schema

    def empty(self) -> pl.DataFrame:
        """The table with no rows: recorded, and none happened."""
        return _without_rows(self).clone()

    def build(self, columns: Mapping[str, Any]) -> pl.DataFrame:
        """A checked, sorted frame from whatever columns a reader has.

        Nullable columns that are left out become null; a scalar fills its column. Raises `SchemaViolation` for an
        unknown column, a missing one, or a value the declaration forbids.
        """
        unknown = sorted(set(columns) - set(self.columns))
        if unknown:
            raise SchemaViolation(f"table {self.name} has no column {', '.join(unknown)}")
        lengths = {name: len(value) for name, value in columns.items() if _is_sequence(value)}
        height = max(lengths.values(), default=0)
        series = [self._series(name, columns.get(name), height, name in lengths) for name in self.columns]
        frame = pl.DataFrame(series)
        if self.sorted_by and not _is_sorted(frame, self.sorted_by):
            frame = frame.sort(self.sorted_by, maintain_order=True)
        return self._sound(frame)  # its columns and types are those declared, by construction

    def check(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame itself if it obeys the declaration, else `SchemaViolation` saying where it does not."""
        if frame.schema != self.schema:
            raise SchemaViolation(f"table {self.name}: {_schema_difference(self.schema, frame.schema)}")
        self._sound(frame)
        if self.sorted_by and not _is_sorted(frame, self.sorted_by):
            raise SchemaViolation(f"table {self.name} is not sorted by {', '.join(self.sorted_by)}")
        return frame

    def _sound(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The same but for columns, types and the order of rows."""
        for series, (name, column) in zip(frame.get_columns(), self.columns.items(), strict=True):
            if not column.nullable and (nulls := series.null_count()):
                raise SchemaViolation(f"table {self.name}: {nulls} nulls in {name}, which may not be null")
        if "start_ns" in self.columns and "end_ns" in self.columns:
            backwards = int((frame["end_ns"] < frame["start_ns"]).sum() or 0)
            if backwards:
                raise SchemaViolation(f"table {self.name}: {backwards} rows end before they start")
        return frame

    def _series(self, name: str, value: Any, height: int, is_sequence: bool) -> pl.Series:
        column = self.columns[name]
        if value is None:
            if not column.nullable:
                raise SchemaViolation(f"table {self.name}: column {name} is missing and may not be null")
            return nulls(column.dtype, height, name)
        if not is_sequence:
            return _texts(name, [value]).cast(column.dtype).new_from_index(0, height).alias(name)
        series = value.alias(name) if isinstance(value, pl.Series) else _texts(name, value)
        return series if series.dtype == column.dtype else series.cast(column.dtype)


def _texts(name: str, values: Any) -> pl.Series:
    """The values as a column. What no text can hold, such as a byte of a file's name that is no UTF-8, becomes `?`."""
    try:
        return pl.Series(name, values)
    except UnicodeEncodeError:
        whole = (one.encode("utf-8", "replace").decode() if isinstance(one, str) else one for one in values)
        return pl.Series(name, list(whole))


@cache
def _without_rows(table: Table) -> pl.DataFrame:
    return pl.DataFrame(schema={name: column.dtype for name, column in table.columns.items()})


@cache
def _null(dtype: DType) -> pl.Series:
    return pl.Series([None], dtype=dtype)


def nulls(dtype: DType, rows: int, name: str = "") -> pl.Series:
    """A column of nulls, out of pages that nothing was written to: it takes no memory."""
    return _null(dtype).new_from_index(0, rows).alias(name)


def has_one_value(series: pl.Series) -> bool:
    """Whether all rows have the same value, and none is null."""
    return not series.null_count() and bool(series.min() == series.max())


def _is_sequence(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _is_sorted(frame: pl.DataFrame, by: tuple[str, ...]) -> bool:
    tie: pl.Series | bool = True
    for name in by:
        column = frame[name]
        if has_one_value(column):
            continue
        before, after = column[:-1], column[1:]
        if ((after < before) & tie).any():
            return False
        tie = (after == before) & tie
    return True


def _schema_difference(wanted: pl.Schema, got: pl.Schema) -> str:
    lines = [f"column {n} missing" for n in wanted if n not in got]
    lines += [f"column {n} unexpected" for n in got if n not in wanted]
    lines += [f"column {n} is {got[n]}, not {wanted[n]}" for n in wanted if n in got and got[n] != wanted[n]]
    return "; ".join(lines) or "columns are in another order"


# Far beyond any machine, so that nothing real is lost, and small enough that sums of rows stay within 64 bits.
CLOCK: Final = (-(1 << 61), 1 << 61)  # ns: 73 years around the clock's zero
BLOCKS: Final = (0, (1 << 31) - 1)  # of a grid along one axis
_SIZES: Final = (0, 1 << 50)  # bytes: a pebibyte
RANGES_OF_VALUES: Final[Mapping[str, tuple[float, float]]] = {
    "CLOCK": CLOCK,
    "SIZES": _SIZES,
    "CHANGES": (-_SIZES[1], _SIZES[1]),  # of a size
    "BLOCKS": BLOCKS,
    "PER_BLOCK": (0, 1_024),  # of a block along one axis
}
"""What `tables.txt` calls the least and the greatest value that a column may have."""


def stacked(parts: Iterable[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    """The rows of all parts, each column in one piece; every part has the columns of `schema`.

    Hand over an iterator: parts that somebody else holds stay in memory until the end.
    """
    columns: list[list[pl.Series]] = [[] for _ in schema]
    for part in parts:
        for column, series in zip(columns, part.get_columns(), strict=True):
            column.append(series)
    stacked_columns = []
    for (name, dtype), column in zip(schema.items(), columns, strict=True):
        series = pl.concat(column, rechunk=True) if column else pl.Series(name, [], dtype=dtype)
        column.clear()
        if len(series) > WEIGHTY:
            give_back()  # else a table would be held twice, once as memory that is free and lies between other blocks
        stacked_columns.append(lean(series))
    return pl.DataFrame(stacked_columns)


def lean(series: pl.Series) -> pl.Series:
    """The same values. A column of nulls or of zeros is made anew, out of pages that nothing was written to: the
    operating system gives those no memory, and a column that a profiler leaves empty then costs none."""
    if not len(series):
        return series
    if series.null_count() == len(series):
        return nulls(series.dtype, len(series), series.name)
    if series.dtype.is_integer() and series[0] == 0 and has_one_value(series):
        return pl.Series(series.name, [0], dtype=series.dtype).new_from_index(0, len(series))
    return series


def picked(frame: pl.DataFrame, chosen: pl.Series) -> pl.DataFrame:
    """The chosen rows. A column of nulls alone, of what was not recorded, is made anew and takes no memory either."""
    height = int(chosen.sum())
    if height == frame.height:
        return frame
    return pl.DataFrame(
        [
            nulls(column.dtype, height, column.name) if column.null_count() == frame.height else column.filter(chosen)
            for column in frame
        ]
    )
