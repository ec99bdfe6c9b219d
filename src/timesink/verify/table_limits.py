"""Limits on numbers of a trace's tables, alone or against another trace's: ``kernels.mean_ns[name~gemm] <= 1.05x``.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from timesink.errors import UsageError, did_you_mean, unknown
from timesink.export import holdings
from timesink.knowledge.kernel_names import short_names
from timesink.knowledge.metric_names.patterns import FILTER, LIMIT, NUMBER
from timesink.model.names import pattern_fault
from timesink.model.tables import KERNEL_METRICS
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.verify.outcomes import (
    Better,
    ChangeVerdict,
    GateResult,
    GateRow,
    How,
    Outcome,
    Reason,
    inconclusive,
    invalid,
)

_FOLDS: Final[Mapping[str, Callable[[pl.Series], object]]] = {
    "sum": pl.Series.sum, "mean": pl.Series.mean, "min": pl.Series.min, "max": pl.Series.max,
}  # fmt: skip
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
_NAMES_SHOWN: Final = 5
_SHEETS: Final = "kernel_sheets"
_OF_KERNELS: Final = ("kernels", _SHEETS, "device_ops", "kernel_profiles")


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


class _Value(NamedTuple):
    """What rows of one name give: the number, None where a row holds none, and how many rows there were."""

    number: float | None
    rows: int


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
    for name in (*_FOLDS, "each"):
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
        if "~" in sign and (fault := pattern_fault(wanted)):
            raise UsageError(f"{text!r}: {wanted!r} is not a regular expression: {fault}")
        filters.append((name, sign, wanted))
        rest = rest[one.end() :]
    return TableNumber(text.strip(), table, column, tuple(filters), fold)


def gate_tables(limits: Sequence[TableLimit], new: Trace, old: Trace | None, suite: str = "") -> GateResult:
    """One row per limit, or per limit and name. `UsageError` for a table, a column or rows that are not there."""
    rows, notes = [], []
    for limit in limits:
        if limit.needs_other and old is None:
            raise UsageError(f"{limit.text!r} is relative", remedy="give the other file with --baseline")
        rows += _judge_names(limit, new, old if limit.needs_other else None)
        if limit.needs_other and limit.number.unit == "ns":
            notes.append(f"{limit.number.text}: one recording a side; times of one program differ from run to run")
    return GateResult(suite, "table limits", tuple(rows), notes=tuple(dict.fromkeys(notes)))


def _judge_names(limit: TableLimit, new: Trace, old: Trace | None) -> list[GateRow]:
    """A row for each name that the number has on either side; `old` where the limit is relative to it."""
    number = limit.number
    now, then = _read_numbers(number, new), _read_numbers(number, old) if old is not None else {}
    if len(now) == len(then) == 1:  # a kernel may have been renamed
        then = dict(zip(now, then.values(), strict=True))
    short = short_names([*now, *then]) if number.table in _OF_KERNELS else {}
    better = Better.HIGHER if limit.sign in (">=", ">") else Better.LOWER
    how = How.SHARE if number.unit in ("ratio", "%") else How.EXACT
    shown, rows = limit.text.removeprefix(number.text).strip(), []
    for name in dict.fromkeys([*now, *then]):
        is_said = not name or ("name", "=", name) in number.filters
        label = number.text if is_said else f"{number.text} of {short.get(name, name)}"
        before, after = (side[name].number if name in side else None for side in (then, now))
        verdict = _judge(limit, now.get(name), then.get(name), is_alone=old is None)
        rows.append(GateRow(label, number.unit, before, after, verdict, better, how, limit=shown))
    return rows


def _judge(limit: TableLimit, now: _Value | None, then: _Value | None, *, is_alone: bool) -> ChangeVerdict:
    """Whether the number of now keeps to the limit, `is_alone` or relative to that of the other trace."""
    if now is not None and then is None and not is_alone:
        return inconclusive(0.0, Reason.MISSING_BASELINE, "there is no such row before", "filter the rows")
    if fault := _fault(now, "now") or ("" if is_alone else _fault(then, "before")):
        return invalid(0.0, Reason.NOT_MEASURED, fault, "record it, or filter the rows")
    before = then.number if then is not None else None
    if before is not None and before < 0 and limit.is_relative:
        why = "no limit is relative to a number below 0"
        return invalid(0.0, Reason.BAD_VALUES, why, "write +- and an amount")
    assert now is not None
    assert now.number is not None
    sides = [(side, when) for side, when in ((now, "now"), (then, "before")) if side]
    counted = ", ".join(f"{side.rows} rows {when}" for side, when in sides)
    fold = limit.number.fold if limit.number.fold in _FOLDS else "mean"
    explanation = f"{fold} of {counted}" if any(side.rows > 1 for side, _ in sides) else ""
    outcome = Outcome.NO_DIFFERENCE if limit.holds(now.number, before) else Outcome.SLOWER
    return ChangeVerdict(outcome, 0.0, explanation=explanation)


def _fault(value: _Value | None, side: str) -> str:
    """Why a side gives no number, or ''."""
    if value is None:
        return f"there is no such row {side}"
    return f"not every one of the {value.rows} rows holds a number {side}" if value.number is None else ""


def _read_numbers(number: TableNumber, trace: Trace) -> dict[str, _Value]:
    """The number by name; under '' where it is one number, by its fold or as the table has no names."""
    frame = _filter_rows(number, _find_table(number, trace), trace)
    if number.fold != "each" or "name" not in frame.columns:
        if number.fold == "each" and frame.height > 1:
            remedy = f"say which, as in mean({number.text}), sum(), min() or max(), or filter them"
            raise UsageError(f"{number.text}: {frame.height} rows of {trace.source}", remedy=remedy)
        return {"": _fold_cells(number, frame[number.column])}
    parts = frame.partition_by("name", as_dict=True, maintain_order=True)
    return {str(name): _fold_cells(number, part[number.column]) for (name,), part in parts.items()}


def _fold_cells(number: TableNumber, cells: pl.Series) -> _Value:
    values = cells.cast(pl.Float64)
    if values.null_count() or not values.is_finite().all():
        return _Value(None, len(cells))
    folded = _FOLDS.get(number.fold, pl.Series.mean)(values)
    return _Value(float(folded) if isinstance(folded, (int, float)) and math.isfinite(folded) else None, len(cells))


def _find_table(number: TableNumber, trace: Trace) -> pl.DataFrame:
    """The table with the column as numbers; a counter of ncu becomes a column of its kernels."""
    held = {one.name: one for one in holdings(trace)}
    if "kernels" not in held and _SHEETS in held:
        held["kernels"] = held[_SHEETS]
    if number.table not in held:
        raise _name_file(trace, unknown("table", number.table, list(held)))
    frame, is_of_ncu = held[number.table].frame, held[number.table].name == _SHEETS
    if is_of_ncu:
        frame = frame.rename({"kernel": "name"})
    if is_of_ncu and number.column not in frame.columns:
        metrics = trace[KERNEL_METRICS].filter(pl.col("metric").cast(pl.String) == number.column)
        if metrics.height:
            value = metrics.select("rank", "profile", pl.col("value").alias(number.column))
            frame = frame.join(value, on=["rank", "profile"], how="left")
    if number.column not in frame.columns:
        raise _name_file(trace, unknown(f"column of {number.table}", number.column, frame.columns))
    if not frame.schema[number.column].is_numeric():
        numeric = [name for name, kind in frame.schema.items() if kind.is_numeric()]
        what = f"{number.table}.{number.column} holds no numbers"
        raise UsageError(what, remedy=f"choose from: {', '.join(numeric)}")
    return frame


def _filter_rows(number: TableNumber, frame: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    for column, sign, wanted in number.filters:
        if column not in frame.columns:
            raise _name_file(trace, unknown(f"column of {number.table}", column, frame.columns))
        cells = frame[column].cast(pl.String)
        matched = cells.str.contains(wanted) if "~" in sign else cells == wanted
        kept = frame.filter(matched.fill_null(False) ^ sign.startswith("!"))
        if not kept.height:
            known = cells.drop_nulls().unique(maintain_order=True).to_list()
            left = len(known) - _NAMES_SHOWN
            shown = ", ".join(known[:_NAMES_SHOWN]) + (f" and {left} more" if left > 0 else "")
            remedy = did_you_mean(wanted, {name: name for name in known}) or f"there is {shown or 'none'}"
            what = f"{trace.source}: no row has {number.table}.{column}{sign}{wanted}"
            raise UsageError(what, remedy=remedy)
        frame = kept
    if not frame.height:
        raise UsageError(f"{trace.source}: the table {number.table} has no row", remedy="record one, or leave it out")
    return frame


def _name_file(trace: Trace, error: UsageError) -> UsageError:
    """The error with the file that it is about."""
    return UsageError(f"{trace.source}: {error.message}", remedy=error.remedy)
