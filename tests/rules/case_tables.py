"""Markdown tables of a case file, turned into checked frames of the canonical tables.

The first header cell names the table; the first cell of a row is a free label for the reader. Times may be headed
`start_us`, `start_ms` or `start_s` instead of `start_ns`; sizes may carry a unit (`4 MB`). `times` and `every_us`
repeat one row. Columns that are left out take the plain value in `DEFAULTS`, or null.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import polars as pl

from timesink.model.schema import Column, Table
from timesink.model.tables import ALL, DEVICE_OPS, RANGES

TABLES: Mapping[str, Table] = {table.name: table for table in ALL}
TIMES = ("start_ns", "end_ns", "time_ns")
IDS = ("correlation", "external_id", "record_correlation", "sequence", "sequence_number")
ID_STRIDE = 100_000
DEFAULTS: Mapping[str, Any] = {"rank": 0, "device": 0, "process": 1, "thread": 1, "stream": 7, "depth": 0}
KIND_DEFAULTS = {DEVICE_OPS: "kernel", RANGES: "push_pop"}
UNITS = {
    "ns": Decimal(1),
    "us": Decimal(10**3),
    "ms": Decimal(10**6),
    "s": Decimal(10**9),
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
}
_NUMBER = re.compile(r"^([-+]?[0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?) ?([A-Za-z]*)$")


class BadCase(AssertionError):
    """The case file itself is wrong; the message names the line."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Rows occur `count` times, one every `every_ns`; `{n}` in a name is the number of the repetition."""

    count: int = 1
    every_ns: int = 0


@dataclass(frozen=True, slots=True)
class TextTable:
    """A markdown table as written: its table, its column heads, its rows, and how often it is repeated."""

    table: Table
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    repeat: Repeat
    line: int


def parse_table(lines: list[str], line: int, repeat: Repeat) -> TextTable:
    """The markdown table in `lines`, of which the first stands at `line` of the file."""
    if len(lines) < 2 or not re.fullmatch(r"[|:\- ]+", lines[1]):
        raise BadCase(f"line {line}: a table needs a head, a row of dashes and its rows")
    name, *heads = _cells(lines[0])
    if name not in TABLES:
        raise BadCase(f"line {line}: no table is called {name!r}; there are {', '.join(TABLES)}")
    rows = []
    for offset, text in enumerate(lines[2:], start=2):
        _, *cells = _cells(text)
        if len(cells) != len(heads):
            raise BadCase(f"line {line + offset}: {len(cells)} values under {len(heads)} column heads")
        rows.append(tuple(cells))
    return TextTable(TABLES[name], tuple(heads), tuple(rows), repeat, line)


def frames(parts: Iterable[TextTable]) -> dict[Table, pl.DataFrame]:
    """One checked frame per table named; parts of the same table are put together."""
    records: dict[Table, list[dict[str, Any]]] = {}
    for part in parts:
        records.setdefault(part.table, []).extend(_records(part))
    return {table: _frame(table, rows) for table, rows in records.items()}


def _cells(text: str) -> list[str]:
    inner = text.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _frame(table: Table, rows: list[dict[str, Any]]) -> pl.DataFrame:
    if not rows:
        return table.empty()
    if "depth" in table.columns and not any(row.get("depth") for row in rows):
        _fill_depth(rows)
    return table.build({name: pl.Series(name, [row.get(name) for row in rows]) for name in _used(table, rows)})


def _used(table: Table, rows: list[dict[str, Any]]) -> list[str]:
    return [name for name in table.columns if any(row.get(name) is not None for row in rows)]


def _records(part: TextTable) -> Iterator[dict[str, Any]]:
    for offset, cells in enumerate(part.rows):
        line = part.line + 2 + offset
        written = dict(zip(part.heads, cells, strict=True))
        row_repeat = _row_repeat(written, line)
        record = {**_defaults(part.table), **_values(part.table, written, line)}
        for outer in range(part.repeat.count):
            for inner in range(row_repeat.count):
                time_ns = outer * part.repeat.every_ns + inner * row_repeat.every_ns
                number = outer if part.repeat.count > 1 else inner
                yield _shifted(record, time_ns, outer * ID_STRIDE + inner, number)


def _row_repeat(written: dict[str, str], line: int) -> Repeat:
    """Take `times` and `every_*` out of a row as written."""
    count = int(_number(written.pop("times", "") or "1", line))
    every_ns = 0
    for head in [head for head in written if head.startswith("every_")]:
        every_ns = int(_number(written.pop(head) or "0", line) * UNITS[head.removeprefix("every_")])
    return Repeat(count, every_ns)


def _defaults(table: Table) -> dict[str, Any]:
    """Plain values for the columns that may not be null and seldom matter to a case."""
    plain = {name: value for name, value in DEFAULTS.items() if name in table.columns}
    plain = {name: value for name, value in plain.items() if not table.columns[name].nullable}
    return {**plain, "kind": KIND_DEFAULTS[table]} if table in KIND_DEFAULTS else plain


def _values(table: Table, written: Mapping[str, str], line: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for head, cell in written.items():
        name, scale = _column(table, head, line)
        if cell not in ("", "-"):
            values[name] = _value(table.columns[name], cell, scale, line)
    return values


def _column(table: Table, head: str, line: int) -> tuple[str, Decimal]:
    """The column a head names, and what its values are multiplied by: `start_ms` is `start_ns` times a million."""
    if head in table.columns:
        return head, Decimal(1)
    stem, _, unit = head.rpartition("_")
    if unit in UNITS and f"{stem}_ns" in table.columns:
        return f"{stem}_ns", UNITS[unit]
    raise BadCase(f"line {line}: table {table.name} has no column {head!r}; it has {', '.join(table.columns)}")


def _value(column: Column, cell: str, scale: Decimal, line: int) -> Any:
    dtype = column.dtype if isinstance(column.dtype, pl.DataType) else column.dtype()
    if dtype.is_integer():
        number = _number(cell, line) * scale
        if number != number.to_integral_value():
            raise BadCase(f"line {line}: {cell!r} is not a whole number of {column.unit or 'units'}")
        return int(number)
    if dtype.is_float():
        return float(_number(cell, line) * scale)
    if dtype == pl.Boolean():
        return cell == "true"
    if isinstance(dtype, pl.Enum) and cell not in dtype.categories:
        raise BadCase(f"line {line}: {cell!r} is none of {', '.join(dtype.categories)}")
    return cell


def _number(cell: str, line: int) -> Decimal:
    match = _NUMBER.match(cell)
    if not match or (match[2] and match[2] not in UNITS):
        raise BadCase(f"line {line}: {cell!r} is not a number, nor a number with one of {', '.join(UNITS)}")
    try:
        return Decimal(match[1].replace("_", "").replace(",", "")) * UNITS.get(match[2], Decimal(1))
    except InvalidOperation as error:
        raise BadCase(f"line {line}: {cell!r} is not a number") from error


def _shifted(record: dict[str, Any], time_ns: int, ids: int, number: int) -> dict[str, Any]:
    moved = dict(record)
    for name, value in record.items():
        if value is None:
            continue
        if name in TIMES:
            moved[name] = value + time_ns
        elif name in IDS:
            moved[name] = value + ids
        elif isinstance(value, str) and "{n}" in value:
            moved[name] = value.replace("{n}", str(number))
    return moved


def _fill_depth(rows: list[dict[str, Any]]) -> None:
    """Depth of a range: how many ranges of its thread enclose it. Of two equal ranges the first written is outer."""
    for index, row in enumerate(rows):
        row["depth"] = sum(_encloses(outer, row, at < index) for at, outer in enumerate(rows) if at != index)


def _encloses(outer: dict[str, Any], inner: dict[str, Any], written_first: bool) -> bool:
    if any(outer[name] != inner[name] for name in ("rank", "process", "thread")):
        return False
    if (outer["start_ns"], outer["end_ns"]) == (inner["start_ns"], inner["end_ns"]):
        return written_first
    return bool(outer["start_ns"] <= inner["start_ns"] and outer["end_ns"] >= inner["end_ns"])
