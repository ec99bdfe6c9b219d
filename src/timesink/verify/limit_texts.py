"""Limits as they are typed.

::

    NUMBER LIMIT
    NUMBER   [sum|mean|min|max|each](TABLE.COLUMN[FILTER, ...])     the table may be left out: it is `kernels` then
    FILTER   COLUMN=TEXT  COLUMN!=TEXT  COLUMN~REGEX  COLUMN!~REGEX    TEXT and REGEX in "" where they hold , or ]
    LIMIT    <= 3 ms  >= 80 %  == 0      as the number stands, in the column's unit or one that fits it
             >= 0.95x  <= 1.05x          relative to the other trace
             +- 2 points  +- 0.05x       no further from the other trace, either way

Without a word before it every name of the table is held to the limit on its own (`each`). A number that is not there,
or is none, never passes.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

from timesink.errors import UsageError
from timesink.knowledge.metric_names.patterns import FILTER, LIMIT, NUMBER
from timesink.model.patterns import plain_fault
from timesink.records import Record

FOLDS: Final = ("sum", "mean", "min", "max", "each")
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip
_UNITS: Final = {
    "ns": {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "bytes": {"bytes": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "ratio": {"%": 0.01, "points": 0.01},
    "%": {"%": 1.0, "points": 1.0},
}
_HELP: Final = "write it as 'kernels.mean_ns[name~gemm] <= 1.05x', 'steps.period_ns <= 3 ms' or 'dram_pct >= 0.95x'"


class TableNumber(Record):
    """Which number: the column of the rows that pass every filter (column, sign, text), folded into one."""

    text: str
    table: str
    column: str
    filters: tuple[tuple[str, str, str], ...] = ()
    fold: str = "each"

    @property
    def unit(self) -> str:
        """Of the column, as its name says: ns, bytes, ratio, % or none."""
        if ".pct" in self.column:  # a counter of ncu
            return "%"
        suffix = self.column.rpartition("_")[2]
        return {"ns": "ns", "bytes": "bytes", "ratio": "ratio", "pct": "%"}.get(suffix, "")


class TableLimit(Record):
    """A number and what it must keep to: `amount` in the number's unit, or (`is_relative`) times the other trace's.

    The sign ``+-`` bounds the distance from the other trace, by the amount or by that share of it.
    """

    number: TableNumber
    sign: str
    amount: float
    is_relative: bool
    text: str

    @property
    def needs_other(self) -> bool:
        """Whether it says nothing without another trace."""
        return self.is_relative or self.sign == "+-"

    def holds(self, now: float, then: float | None) -> bool:
        """Whether the number keeps to it. A NaN never does."""
        if self.sign == "+-":
            assert then is not None
            return abs(now - then) <= self.amount * (abs(then) if self.is_relative else 1.0)
        return _SIGNS[self.sign](now, self.amount * (then or 0.0) if self.is_relative else self.amount)


def parse_limit(text: str) -> TableLimit:
    """The limit that a text means. `UsageError` for what it cannot mean."""
    found = LIMIT.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a limit", remedy=_HELP)
    number, unit = _parse_number(found["number"]), found["unit"]
    sign = "+-" if found["sign"] == "±" else found["sign"]
    try:
        amount = float(found["amount"])
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise UsageError(f"{text!r}: {found['amount']!r} is not a number", remedy=_HELP)
    if unit == "x":
        if sign == "==" or amount < 0:
            raise UsageError(f"{text!r}: no number is held to that", remedy="write +- 0.05x for at most 5 % either way")
        return TableLimit(number, sign, amount, True, text.strip())
    other_unit = "%" if sign == "+-" else "points"  # a distance is in points, a share in per cent
    units = {name: size for name, size in _UNITS.get(number.unit, {}).items() if name != other_unit}
    if unit and unit not in units:
        fitting = f"{number.column} is in {number.unit}" if number.unit else f"{number.column} has no unit"
        remedy = f"write {', '.join([*units, 'x'])}, or nothing"
        raise UsageError(f"{text!r}: {fitting}, and the limit in {unit}", remedy=remedy)
    return TableLimit(number, sign, amount * units.get(unit, 1.0), False, text.strip())


def _parse_number(text: str) -> TableNumber:
    inner, fold = text.strip(), "each"
    for name in FOLDS:
        if inner.startswith(f"{name}(") and inner.endswith(")"):
            inner, fold = inner[len(name) + 1 : -1].strip(), name
    found = NUMBER.fullmatch(inner)
    if found is None:
        raise UsageError(f"{text!r} names no number of a table", remedy=_HELP)
    table, column = found["table"] or "kernels", found["column"]
    if "__" in table:  # a counter of ncu, whose name has dots
        table, column = "kernels", f"{table}.{column}"
    filters, rest = [], found["filters"] or ""
    while rest:
        one = FILTER.match(rest)
        if one is None:
            remedy = 'write column=text or column~regex, with commas between; in "" what holds , or ]'
            raise UsageError(f"{text!r}: {rest!r} is not a filter", remedy=remedy)
        name, sign, quoted, plain = one.groups()
        wanted = plain if quoted is None else quoted
        if "~" in sign and (fault := plain_fault(wanted)):
            raise UsageError(f"{text!r}: {wanted!r} is not a regular expression: {fault}")
        filters.append((name, sign, wanted))
        rest = rest[one.end() :]
    return TableNumber(text.strip(), table, column, tuple(filters), fold)


def needs_other(limit: TableLimit) -> UsageError:
    """Why a limit says nothing without another trace."""
    return UsageError(f"{limit.text!r} is relative", remedy="give the other file with --baseline")
