"""Tables of the host's time: ranges with the GPU work launched in them, CUDA calls, operating-system calls."""

from __future__ import annotations

import polars as pl

from timesink.errors import UsageError, did_you_mean
from timesink.measures.timeline.host_times import call_times, range_times
from timesink.measures.timeline.operator_kernels import operator_kernels
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, HOST_OPS, OS_CALLS, RANGES
from timesink.model.trace import Trace
from timesink.views.page import RANK, Field, Page, Sheet, figures, first_rows, rows_of

COUNT = Field("count", "count", unit="1")
_SHARE = (*figures(time_ratio="share", total_ns="total"), COUNT)
_SPREAD = figures(mean_ns="mean", median_ns="median", min_ns="shortest", max_ns="longest")
_GPU_WORK = (
    *figures(op_count="GPU ops", device_ns="GPU busy", device_ratio="GPU share"),
    *figures(idle_ns="GPU idle", backward_ns="its backward"),
)
_NO_OPERATORS = "record operators: timesink capture torch, or torch.autograd.profiler.emit_nvtx under nsys"


def ranges_page(trace: Trace, top: int, *, tree: bool) -> Page:
    """The ranges alone, by name or by path."""
    return Page(f"Ranges of {trace.source}", (first_rows(ranges_sheet(trace, tree=tree), top),))


def operator_kernels_page(trace: Trace, top: int, pattern: str) -> Page:
    """The kernels of the operators whose names match. `UsageError` where none of them launched any."""
    columns = (
        RANK,
        Field("operator", "operator", is_name=True),
        *figures(operator_ratio="of its time", total_ns="total"),
        COUNT,
        Field("mean_ns", "mean", unit="ns"),
        Field("name", "kernel", is_name=True, is_kernel=True),
    )
    frame = operator_kernels(trace, pattern)
    if not frame.height:
        called = trace.get(HOST_OPS)["name"].cast(pl.String).unique().sort().to_list()
        nearest = did_you_mean(pattern, {name: name for name in called})
        remedy = nearest or ("`timesink summary` lists operators with GPU work" if called else _NO_OPERATORS)
        raise UsageError(f"no operator that matches {pattern!r} launched GPU work", remedy=remedy)
    note = "what the operator launched, and what was launched inside it by operators that do not match"
    sheet = Sheet("operator_kernels", "Kernels of operators", columns, rows_of(frame, columns), note)
    return Page(f"Kernels of operators of {trace.source}", (first_rows(sheet, top),))


def calls_page(trace: Trace, top: int, *, by_thread: bool) -> Page:
    """The calls into CUDA and into the operating system alone."""
    sheets = tuple(first_rows(sheet, top) for sheet in calls_sheets(trace, by_thread=by_thread))
    return Page(f"Calls of {trace.source}", sheets)


def ranges_sheet(trace: Trace, *, tree: bool = False) -> Sheet:
    """Per name, or per path of nested names: host time, and the GPU's time between what was launched inside."""
    columns = (RANK, Field("name", "path" if tree else "range", is_name=True), *_SHARE, *_GPU_WORK, *_SPREAD)
    note = (
        "share: how much of the time from the first range to the last one of that name was open, on any thread; total: "
        "of all of them on all threads; GPU busy, its share of that time, and idle: between the first start and the "
        "last end of the work that was launched inside, by autograd too while the range waited for it, summed over the "
        "ranges; its backward: GPU work that autograd launched elsewhere for operators called inside"
    )
    if RANGES not in trace:
        note = "ranges were not recorded: capture with --auto-ranges, or mark them with timesink.annotate"
    return Sheet("ranges", "Ranges", columns, rows_of(range_times(trace, by_path=tree), columns), note)


def calls_sheets(trace: Trace, *, by_thread: bool = False) -> tuple[Sheet, ...]:
    """Calls into CUDA, and into the operating system where they were recorded."""
    sheets = [_calls(trace, API_CALLS, "api_calls", "CUDA calls", by_thread)]
    if OS_CALLS in trace:
        sheets.append(_calls(trace, OS_CALLS, "os_calls", "Operating-system calls", by_thread))
    return tuple(sheets)


def _calls(trace: Trace, table: Table, key: str, title: str, by_thread: bool) -> Sheet:
    thread = (Field("thread", "thread", unit="1"),) if by_thread else ()
    columns = (RANK, *thread, Field("name", "call", is_name=True), *_SHARE, *_SPREAD)
    frame = call_times(trace, table, by_thread=by_thread)
    return Sheet(key, title, columns, rows_of(frame, columns), "share: of all calls of the table")
