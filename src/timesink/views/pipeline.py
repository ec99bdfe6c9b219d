"""The tables of `timesink pipeline`: what logged stages say of the period, item by item and against another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from timesink.errors import UsageError
from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.communication.pipelines import OverlapScore
from timesink.measures.communication.stage_logs import Part, StageLogs, read_stage_logs
from timesink.measures.steps.steps import step_times
from timesink.units import time_text
from timesink.views.page import Cell, Field, Page, Sheet

_FULL, _NONE = 0.95, 0.05  # scores that are called the longest stage, and the sum
_ITEMS_SHOWN: Final = 12  # of a text, so that it stays on one screen
_TIME = ("p50_ns", "p90_ns", "p99_ns")
_QUANTILES = tuple(Field(key, key.removesuffix("_ns"), unit="ns") for key in _TIME)


@dataclass(frozen=True, slots=True)
class PipelineGate:
    """What a pipeline must reach: an OverlapScore of `least_score`, and a median period of `most_period_ns` or less."""

    least_score: float
    most_period_ns: float | None = None

    def failures(self, logs: StageLogs) -> list[str]:
        """A sentence for each limit that the logs miss; a single stage has no score and fails."""
        missed = []
        if logs.score is None:
            missed.append("one stage alone has no OverlapScore")
        elif logs.score < self.least_score:
            missed.append(f"OverlapScore {logs.score:.2f} is below {self.least_score:g}")
        period_ns = logs.overlap.period_ns
        if self.most_period_ns is not None and period_ns > self.most_period_ns:
            missed.append(f"the period of {time_text(period_ns)} is above {time_text(self.most_period_ns)}")
        return missed


def logged_page(
    paths: Sequence[Path], gate: PipelineGate, unit: str = "s", columns: str = "", skip: int = 0
) -> tuple[Page, bool]:
    """The answer in a sentence, the stages, the quantities per item as quantiles, and each item; and whether it passes.

    `columns` names parts, ``encode=t_in..t_out,send=t_out..t_sent``; '' for those that are named by custom.
    """
    logs = read_stage_logs(paths, unit, parts_of(columns), skip)
    missed = gate.failures(logs)
    title = f"{statement(logs)}{_failed(missed)}"
    sheets = (_stages(logs), _overlap(logs, gate, not missed), _quantities(logs), _items(logs))
    return Page(title, sheets, notes(logs)), not missed


def _failed(missed: Sequence[str]) -> str:
    return f"; FAILED: {', '.join(missed)}" if missed else ""


def parts_of(columns: str) -> list[Part]:
    """The parts that a text names. Raises `UsageError` for what names none."""
    parts = []
    for text in filter(None, columns.split(",")):
        name, _, ends = text.partition("=")
        begin, _, end = ends.partition("..")
        if not (name.strip() and begin.strip() and end.strip()):
            raise UsageError(f"--columns: {text!r} is no part", remedy="write NAME=BEGIN..END, several with commas")
        parts.append(Part(name.strip(), begin.strip(), end.strip()))
    return parts


def statement(logs: StageLogs) -> str:
    """``period 450 ms at depth=2 is the longest stage (rank 0 (A + decode), 450 ms): OverlapScore 1.00``."""
    return period_statement(logs.overlap, logs.score, logs.facts)


def period_statement(overlap: OverlapScore, score: float | None, facts: Mapping[str, str]) -> str:
    """What the period of a pipeline is, by its usual stages and its score."""
    at = ", ".join(f"{name}={value}" for name, value in facts.items())
    period = f"period {time_text(overlap.period_ns)}{f' at {at}' if at else ''}"
    longest = f"the longest stage ({overlap.longest.name}, {time_text(overlap.longest.time_ns)})"
    if score is None:
        return f"{period}: one stage alone, {time_text(overlap.longest.time_ns)}, overlaps with nothing"
    if score >= _FULL:
        return f"{period} is {longest}: OverlapScore {score:.2f}"
    serial = f"the sum of the stages ({time_text(overlap.serial_ns)})"
    if overlap.period_ns > overlap.serial_ns:
        waits = time_text(overlap.period_ns - overlap.serial_ns)
        return f"{period} is {serial} and {waits} of transfers and waiting: OverlapScore {score:.2f}"
    if score <= _NONE:
        return f"{period} is {serial}: OverlapScore {score:.2f}"
    return f"{period} lies between {longest} and {serial}: OverlapScore {score:.2f}"


def notes(logs: StageLogs) -> tuple[str, ...]:
    """What the figures do not hold."""
    said = ["OverlapScore: 0 one stage after another, 1 the period is the longest stage; parts of a rank are one stage"]
    if not logs.one_clock:
        said.append("the ranks have clocks of their own, which are not compared: when no stage works is not known")
    if logs.left_out:
        said.append(f"{logs.left_out} items that not every rank logged are left out")
    return tuple(said)


def _stages(logs: StageLogs) -> Sheet:
    """The longest sets the pace, so it stands first."""
    columns = (Field("stage", "stage", is_name=True), *_QUANTILES, Field("idle_ns", "idle p50", unit="ns"))
    longest_first = sorted(logs.ranks, key=lambda rank: -_median(logs.series[f"stage{rank.rank}_ns"]))
    rows = tuple(
        (
            rank.name,
            *_quantiles(logs.series[f"stage{rank.rank}_ns"]),
            _median(logs.series[f"idle{rank.rank}_ns"]),
        )
        for rank in longest_first
    )
    return Sheet("stages", "stages", columns, rows, "all that a rank works on an item")


def _overlap(logs: StageLogs, gate: PipelineGate, passed: bool) -> Sheet:
    overlap = logs.overlap
    columns = (
        Field("period_ns", "period", unit="ns"),
        Field("serial_ns", "one after another", unit="ns"),
        Field("headroom_ns", "headroom", unit="ns"),
        Field("bubble_ratio", "bubble", unit="ratio"),
        Field("overlap_score", "OverlapScore", unit="1"),
        Field("min_overlap", "at least", unit="1"),
        Field("max_period_ns", "period at most", unit="ns"),
        Field("passed", "passed", is_name=True),
    )
    row = (
        overlap.period_ns,
        overlap.serial_ns,
        overlap.headroom_ns,
        overlap.bubble_ratio,
        None if logs.score is None else round(logs.score, 4),  # digits that mean something
        gate.least_score,
        gate.most_period_ns,
        "yes" if passed else "no",
    )
    return Sheet("overlap", "overlap", columns, (row,), "headroom: what perfect overlap takes off the period")


def _quantities(logs: StageLogs) -> Sheet:
    """Per item: how often which value."""
    rows = [(words, *_quantiles(logs.series[column])) for column, words in _timed(logs)]
    columns = (Field("quantity", "per item", is_name=True), *_QUANTILES)
    note = f"{logs.series.height} items; p90 from {assumed.P90_NEEDS.whole} on, p99 from {assumed.P99_NEEDS.whole}"
    return Sheet("quantities", "per item", columns, tuple(rows), note)


def _timed(logs: StageLogs) -> Iterator[tuple[str, str]]:
    """Columns of the series that hold times of the whole pipeline, and what they are called."""
    for column, words in (
        ("period_ns", "period"),
        ("hidden_ns", "hidden"),
        ("transfer_ns", "transfer"),
        ("away_ns", "transfer and waiting"),
        ("mesh_idle_ns", "no stage works"),
    ):
        if logs.series[column].count():
            yield column, words


def _items(logs: StageLogs) -> Sheet:
    """A row per item, whole in JSON and CSV."""
    shown = [(column, words) for column, words in _timed(logs)]
    stages = [(f"stage{rank.rank}_ns", f"rank {rank.rank}") for rank in logs.ranks]
    idle = [(f"idle{rank.rank}_ns", f"rank {rank.rank} idle") for rank in logs.ranks]
    fields = [Field(column, words, unit="ns") for column, words in (shown[0], *stages, *shown[1:], *idle)]
    columns = (Field("item", "item", unit="1"), *fields, Field("bubble_ratio", "bubble", unit="ratio"))
    rows = tuple(logs.series.select(column.key for column in columns).iter_rows())
    return Sheet("items", "items", columns, rows)


def in_text(page: Page) -> Page:
    """The page with the first items only, for readers of text."""
    return replace(page, sheets=tuple(_first(sheet) if sheet.key == "items" else sheet for sheet in page.sheets))


def _first(items: Sheet) -> Sheet:
    more = len(items.rows) - _ITEMS_SHOWN
    return replace(items, rows=items.rows[:_ITEMS_SHOWN], note=f"{more} more with -f csv") if more > 0 else items


def _quantiles(values: pl.Series) -> tuple[Cell, ...]:
    """p50, p90 and p99; None where there are too few values."""
    times = step_times(values.drop_nulls())
    return times.p50_ns, times.p90_ns, times.p99_ns


def _median(values: pl.Series) -> float:
    return float(values.quantile(0.5, "linear") or 0.0)


def compared_page(
    paths: Sequence[Path],
    against: Sequence[Path],
    gate: PipelineGate,
    unit: str = "s",
    columns: str = "",
    skip: int = 0,
) -> tuple[Page, bool]:
    """What changed from one run to another: the period first, then what it is made of; and whether that passes."""
    before, after = (read_stage_logs(logs, unit, parts_of(columns), skip) for logs in (paths, against))
    missed = gate.failures(after)
    old, new = before.overlap.period_ns, after.overlap.period_ns
    change = f"{100 * (new / old - 1):+.1f} %" if old else "–"
    title = f"period {time_text(old)} -> {time_text(new)} ({change}), OverlapScore {_score(before)} -> {_score(after)}"
    title += f": now {statement(after).split(' is ', 1)[-1]}" if " is " in statement(after) else ""
    fields = (
        Field("quantity", "p50 of items", is_name=True),
        Field("before_ns", "before", unit="ns"),
        Field("after_ns", "after", unit="ns"),
        Field("change_ns", "change", unit="ns", is_change=True),
    )
    rows = tuple(_changes(before, after))
    said = (f"before: {statement(before)}", *notes(after))
    return Page(f"{title}{_failed(missed)}", (Sheet("changes", "changes", fields, rows),), said), not missed


def _score(logs: StageLogs) -> str:
    return "–" if logs.score is None else f"{logs.score:.2f}"


def _changes(before: StageLogs, after: StageLogs) -> Iterator[tuple[Cell, ...]]:
    shown = dict(_timed(before))
    named = {
        **{column: words for column, words in _timed(after) if column in shown},
        **{f"stage{rank.rank}_ns": rank.name for rank in after.ranks},
        **{f"idle{rank.rank}_ns": f"rank {rank.rank} idle" for rank in after.ranks},
    }
    for column, words in named.items():
        if column in before.series.columns:
            old, new = _median(before.series[column]), _median(after.series[column])
            yield words, old, new, new - old
