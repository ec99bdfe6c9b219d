"""Limits on numbers of a trace's tables, alone or against another trace's: ``kernels.mean_ns[name~gemm] <= 1.05x``,
as `limit_texts` reads them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from timesink.errors import UsageError, did_you_mean, unknown
from timesink.export.held import holdings
from timesink.knowledge.kernel_names import short_names
from timesink.model.patterns import pattern_fault
from timesink.model.tables import KERNEL_METRICS
from timesink.model.trace import Trace
from timesink.verify.limit_texts import TableLimit, TableNumber, needs_other
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
_NAMES_SHOWN: Final = 5
_SHEETS: Final = "kernel_sheets"
_OF_KERNELS: Final = ("kernels", _SHEETS, "device_ops", "kernel_profiles")


class _Value(NamedTuple):
    """What rows of one name give: the number, None where a row holds none, and how many rows there were."""

    number: float | None
    rows: int


def gate_tables(limits: Sequence[TableLimit], new: Trace, old: Trace | None, suite: str = "") -> GateResult:
    """One row per limit, or per limit and name. `UsageError` for a table, a column or rows that are not there."""
    rows, notes = [], []
    for limit in limits:
        for _, sign, wanted in limit.number.filters:
            if "~" in sign and (fault := pattern_fault(wanted)):
                raise UsageError(f"{limit.number.text!r}: {wanted!r} is not a regular expression: {fault}")
        if limit.needs_other and old is None:
            raise needs_other(limit)
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
