"""The tables of the report: kernels, operators, steps."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.report_data import Report, StepSeries
from timesink.reporters.sheets import Column, Sheet

SHOWN_STEPS = 200

_RANK = Column("rank", "rank", unit="1")
_KERNELS = (
    _RANK,
    Column("device", "GPU", unit="1"),
    Column("name", "kernel", is_name=True),
    Column("time_ratio", "share", unit="ratio"),
    Column("total_ns", "total", unit="ns"),
    Column("count", "launches", unit="1"),
    Column("mean_ns", "mean", unit="ns"),
    Column("max_ns", "longest", unit="ns"),
)
_OPERATORS = (
    _RANK,
    Column("name", "operator", is_name=True),
    Column("self_device_ns", "self GPU", unit="ns"),
    Column("total_device_ns", "total GPU", unit="ns"),
    Column("calls", "calls", unit="1"),
    Column("kernels", "kernels", unit="1"),
    Column("self_host_ns", "self host", unit="ns"),
)
_STEPS = (_RANK, Column("step", "step", unit="1"), Column("period_ns", "time", unit="ns"))


def kernel_sheet(report: Report) -> Sheet | None:
    """The costliest kernels; None where there are none."""
    if not report.kernels:
        return None
    rows = tuple(
        (row.rank, row.device, row.name, row.time_ratio, row.total_ns, row.count, row.mean_ns, row.max_ns)
        for row in report.kernels
    )
    note = "share: of the kernel durations of the device, summed; kernels that ran at once count in full"
    return Sheet("kernels", "Kernels", _KERNELS, rows, note + _left(report.kernel_count, len(rows)))


def operator_sheet(report: Report) -> Sheet | None:
    """The operators that cost most GPU time; None where there are none."""
    if not report.operators:
        return None
    rows = tuple(
        (row.rank, row.name, row.self_device_ns, row.total_device_ns, row.calls, row.kernels, row.self_host_ns)
        for row in report.operators
    )
    note = "self: launched by the operator itself, without the operators inside it"
    return Sheet("operators", "Operators", _OPERATORS, rows, note + _left(report.operator_count, len(rows)))


def step_sheet(series: Sequence[StepSeries]) -> Sheet | None:
    """The times behind the step picture: all of them, or the slowest."""
    rows = [
        (line.rank, step, period) for line in series for step, period in zip(line.numbers, line.period_ns, strict=True)
    ]
    if not rows:
        return None
    if len(rows) <= SHOWN_STEPS:
        return Sheet("steps", "Step times", _STEPS, tuple(rows))
    slowest = sorted(rows, key=lambda row: (-row[2], row[0], row[1]))[:SHOWN_STEPS]
    note = f"the {SHOWN_STEPS} slowest of {len(rows)} steps"
    return Sheet("steps", "Step times", _STEPS, tuple(slowest), note)


def _left(count: int, shown: int) -> str:
    return f"; the {shown} costliest of {count}" if count > shown else ""
