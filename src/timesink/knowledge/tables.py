"""Rows of the two tables that people edit as text: GPUs' peaks and assumptions.

The first line holds the heads of the columns. Cells stand two blanks apart or more; ``-`` is what there is none of. A
damaged row is an error that names the file, the line and what to write instead.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from timesink.errors import TimesinkError, UsageError
from timesink.records import Record

_ABSENT: Final = "-"
_APART: Final = re.compile(" {2,}")


def damaged(table: Path, line: int, what: str, remedy: str) -> TimesinkError:
    """The error for a row, or for the whole table where the line is 0."""
    return UsageError(f"{table}, line {line}: {what}" if line else f"{table}: {what}", remedy=remedy)


class TableRow(Record):
    """The cells of one row by the heads of their columns, and where it stands."""

    table: Path
    line: int
    cells: Mapping[str, str]

    def damaged(self, what: str, remedy: str) -> TimesinkError:
        """The error for this row."""
        return damaged(self.table, self.line, what, remedy)

    def text(self, column: str, form: str = ".+", *, may_lack: bool = False) -> str:
        """The text of a cell, of that form; '' where there is none and there may be none."""
        cell = self.cells[column]
        if cell == _ABSENT and may_lack:
            return ""
        if cell == _ABSENT or not re.fullmatch(form, cell):
            raise self.damaged(f"{cell!r} is no {column}", f"write one that matches {form}{', or -' * may_lack}")
        return cell

    def number(self, column: str) -> float:
        """The number in a cell, which must hold one: a whole one stays whole."""
        cell = self.cells[column]
        try:
            number = int(cell) if cell.isdecimal() else float(cell)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.damaged(f"{cell!r} is no {column}", "write a number")
        return number

    def figure(self, column: str) -> float | None:
        """The number in a cell; None where there is none."""
        return None if self.cells[column] == _ABSENT else self.number(column)


def read_rows(table: Path, columns: tuple[str, ...]) -> Iterator[TableRow]:
    """Every row of a table that must have exactly these columns."""
    head, *rows = table.read_text(encoding="utf-8").splitlines()
    heads = tuple(_APART.split(head))
    if heads != columns:
        wrong = next((name for name in heads if name not in columns), head)
        raise damaged(table, 1, f"{wrong!r} is no head here", f"write the heads {', '.join(columns)}, two blanks apart")
    for line, row in enumerate(rows, start=2):
        cells = _APART.split(row.strip())
        if len(cells) != len(columns):
            remedy = f"write {len(columns)} cells, two blanks apart, with - where there is nothing"
            raise damaged(table, line, f"{len(cells)} cells under {len(columns)} heads", remedy)
        yield TableRow(table, line, dict(zip(columns, cells, strict=True)))
