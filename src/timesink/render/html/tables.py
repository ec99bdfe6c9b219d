"""The tables of the report: kernels, operators, steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from timesink.views.figures import Report, StepSeries
from timesink.views.page import Column, Sheet

SHOWN_STEPS = 200

_RANK = Column("rank", "rank", unit="1")
_KERNELS = (
    _RANK,
    Column("device", "GPU", unit="1"),
    Column("name", "kernel", is_name=True),
    Column("work", "work"),
    Column("time_ratio", "share", unit="ratio", has_bar=True),
    Column("total_ns", "total", unit="ns"),
    Column("count", "launches", unit="1"),
    Column("mean_ns", "mean", unit="ns"),
    Column("max_ns", "longest", unit="ns"),
)
_OPERATORS = (
    _RANK,
    Column("name", "operator", is_name=True),
    Column("self_device_ns", "self GPU", unit="ns", has_bar=True),
    Column("total_device_ns", "total GPU", unit="ns"),
    Column("calls", "calls", unit="1"),
    Column("kernels", "kernels", unit="1"),
    Column("self_host_ns", "self host", unit="ns"),
)
_STEPS = (
    _RANK,
    Column("step", "step", unit="1"),
    Column("period_ns", "time", unit="ns"),
    Column("spike", "stands out, because of"),
)


def kernel_sheet(report: Report) -> Sheet | None:
    """The costliest kernels; None where there are none."""
    if not report.kernels:
        return None
    rows = tuple(
        (k.rank, k.device, k.name, k.work or None, k.time_ratio, k.total_ns, k.count, k.mean_ns, k.max_ns)
        for k in report.kernels
    )
    note = (
        "share: of the kernel durations of the device, summed; kernels that ran at once count in full; "
        "work: as far as the name tells"
    )
    return _told_apart(Sheet("kernels", "Kernels", _KERNELS, rows, note + _left(report.kernel_count, len(rows))))


def operator_sheet(report: Report) -> Sheet | None:
    """The operators that cost most GPU time; None where there are none."""
    if not report.operators:
        return None
    rows = tuple(
        (row.rank, row.name, row.self_device_ns, row.total_device_ns, row.calls, row.kernels, row.self_host_ns)
        for row in report.operators
    )
    note = "self: launched by the operator itself, without the operators inside it"
    return _told_apart(
        Sheet("operators", "Operators", _OPERATORS, rows, note + _left(report.operator_count, len(rows)))
    )


def step_sheet(series: Sequence[StepSeries]) -> Sheet | None:
    """The times behind the step picture: all of them, or the slowest."""
    causes = {(line.rank, step): cause.replace("_", " ") for line in series for step, cause in line.spikes}
    rows = [
        (line.rank, step, period, causes.get((line.rank, step)))
        for line in series
        for step, period in zip(line.numbers, line.period_ns, strict=True)
    ]
    if not rows:
        return None
    if len(rows) <= SHOWN_STEPS:
        return _told_apart(Sheet("steps", "Step times", _STEPS, tuple(rows)))
    slowest = sorted(rows, key=lambda row: (-row[2], row[0], row[1]))[:SHOWN_STEPS]
    note = f"the {SHOWN_STEPS} slowest of {len(rows)} steps"
    return _told_apart(Sheet("steps", "Step times", _STEPS, tuple(slowest), note))


def _told_apart(sheet: Sheet) -> Sheet:
    """Without the columns that tell ranks and GPUs apart where there is one of each, and without empty ones."""
    kept = [
        at
        for at, column in enumerate(sheet.columns)
        if len(seen := {row[at] for row in sheet.rows}) > 1 or not (column.key in ("rank", "device") or seen == {None})
    ]
    return replace(
        sheet,
        columns=tuple(sheet.columns[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in sheet.rows),
    )


def _left(count: int, shown: int) -> str:
    return f"; the {shown} costliest of {count}" if count > shown else ""
