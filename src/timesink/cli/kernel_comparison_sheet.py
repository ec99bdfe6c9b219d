"""The tables of `timesink kernels --against`: exact counts always, times only where they may be compared."""

from __future__ import annotations

from timesink.measures.kernel_comparison import Comparison, compared
from timesink.model.trace import Trace
from timesink.reporters.sheets import Cell, Column, Page, Sheet

_TIMES = (
    Column("id", "id", "1"),
    Column("kernel", "kernel", is_name=True),
    Column("before_ns", "before", "ns"),
    Column("after_ns", "after", "ns"),
    Column("time_ratio", "after / before", "ratio"),
)
_COUNTS = (
    Column("id", "id", "1"),
    Column("kernel", "kernel", is_name=True),
    Column("count", "count"),
    Column("before", "before", "1"),
    Column("after", "after", "1"),
)


def comparison_page(before: Trace, after: Trace) -> Page:
    """The two reports side by side."""
    result = compared(before, after)
    times: tuple[tuple[Cell, ...], ...] = tuple(
        (pair.after.profile, pair.after.function, pair.before.duration_ns, pair.after.duration_ns, pair.time_ratio)
        for pair in result.pairs
    )
    counts: tuple[tuple[Cell, ...], ...] = tuple(
        (pair.after.profile, pair.after.function, label, old, new)
        for pair in result.pairs
        for label, (old, new) in pair.counts.items()
    )
    counted = Sheet("counts", "counts that changed", _COUNTS, counts, "exact: they depend on program and input only")
    shown = (counted,) if result.obstacles else (Sheet("times", "times", _TIMES, times, "as profiled"), counted)
    return Page("two reports", shown, tuple(_notes(result)))


def _notes(result: Comparison) -> list[str]:
    notes = [f"times are not compared: {obstacle}" for obstacle in result.obstacles]
    for label, lonely in (("only before", result.only_before), ("only after", result.only_after)):
        notes += [f"{label}: {kernel.function} (launch {kernel.profile})" for kernel in lonely]
    return notes
