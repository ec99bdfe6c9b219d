"""The cells of ncu's CSV pages: where the page begins, how its machine writes numbers, what a cell means."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable

HEADER_START = '"ID","Process ID","Process Name"'
_POINT = re.compile(r"\d\.\d{1,2}$|\d\.\d{4,}$|,\d{3}\.\d")
_COMMA = re.compile(r"\d,\d{1,2}$|\d,\d{4,}$|\.\d{3},\d")
_WITH_INSTANCES = re.compile(r"^(\S+) [({].*[)}]$", re.DOTALL)
_DIGITS = 10
ABSENT = ("", "n/a", "(!) n/a", "N/A", "no data")


def page_rows(text: str) -> tuple[list[str], list[list[str]], int]:
    """Header, rows of as many or fewer cells that carry a kernel number or units, and how many other lines there were.

    ncu prints a page amid its own ``==PROF==`` lines and the program's output, before the header and after it.
    """
    start = text.find(HEADER_START)
    lines = csv.reader(io.StringIO(text[start:]))
    header = next(lines, [])
    rows: list[list[str]] = []
    others = 0
    for row in lines:
        if len(row) > 1 and (row[0].isdigit() or (not rows and not row[0])):
            rows.append(row)
        else:
            others += bool(row)
    return header, rows, others


def writes_decimal_comma(cells: Iterable[str]) -> bool:
    """Whether the page's numbers use a comma for the decimal point, by the vote of the cells that leave no doubt."""
    votes = 0
    for cell in cells:
        votes += bool(_COMMA.search(cell)) - bool(_POINT.search(cell))
    return votes > 0


def number(cell: str, decimal_comma: bool) -> float | None:
    """The number in a cell, thousands separators removed; NaN for ``nan``; None where there is no number."""
    if cell in ABSENT:
        return None
    if not decimal_comma or "." not in cell:
        try:
            return float(cell)
        except ValueError:
            pass
    with_instances = _WITH_INSTANCES.match(cell)
    words = with_instances.group(1) if with_instances else cell
    if not words[:1].isdigit() and words[:1] not in "+-.":
        return math.nan if words.lower() in ("nan", "-nan") else None
    plain = words.replace(".", "").replace(",", ".") if decimal_comma else words.replace(",", "")
    try:
        return float(plain)
    except ValueError:
        return None


def three(cell: str) -> tuple[int, int, int] | None:
    """Of ``(384, 1, 1)`` the three numbers."""
    found = [whole(digits) for digits in re.findall(r"\d+", cell)]
    match found:
        case [int(x), int(y), int(z)]:
            return x, y, z
        case _:
            return None


def whole(cell: str) -> int | None:
    """The number of a cell that is digits and fits 32 bits, which is what every number of a launch has; else None."""
    if not (cell.isascii() and cell.isdigit() and len(cell) <= _DIGITS):
        return None
    number_of = int(cell)
    return number_of if number_of < 1 << 31 else None
