"""Sums by name that a profiler printed: kernels, copies, calls and ranges."""

from __future__ import annotations

import polars as pl

from timesink.model.tables import SUMS
from timesink.model.trace import Trace
from timesink.views.page import Page, declare, first_rows, sheet_of

SHARE = declare("time_ratio: share, total_ns: total, count")
SPREAD = declare("mean_ns: mean, median_ns: median, min_ns: shortest, max_ns: longest")
_SUMMED = {
    "kernel": ("kernels", "Kernels", "kernel [kernel]"),
    "copy": ("copies", "Copies and memsets", "direction [name]"),
    "api_call": ("api_calls", "Runtime calls", "call [name]"),
    "os_call": ("os_calls", "Operating-system calls", "call [name]"),
    "range": ("ranges", "Ranges", "range [name]"),
}
_SUMS_NOTE = (
    "as the profiler summed it: what ran at once or nests counts in full; idle time, steps and streams are not in it"
)


def sums_page(trace: Trace, top: int, *which: str) -> Page:
    """What a profiler printed of sums by name, `top` rows each at most; all tables that it has where none is named."""
    sheets = []
    for what, (key, title, name) in _SUMMED.items():
        rows = trace[SUMS].filter(pl.col("what") == what)
        if rows.height and (not which or what in which):
            columns = declare("rank", f"name: {name}", *SHARE, *SPREAD, *(["bytes: moved"] if what == "copy" else []))
            sheets.append(first_rows(sheet_of(key, title, rows, columns, _SUMS_NOTE), top))
    notes = tuple(f"{note.kind.value}: {note.message} ({note.count} rows)" for note in trace.notes)
    return Page(f"Sums of {trace.source}", tuple(sheets), notes)
