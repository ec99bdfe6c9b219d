"""From a trace and its diagnosis to the plain data that a report for a browser shows."""

from __future__ import annotations

import polars as pl

from timesink.findings import Diagnosis
from timesink.measures.attribution import attribution
from timesink.measures.kernels import kernels
from timesink.model.kernel_names import KernelFamily, decode
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.report_data import KernelTime, OperatorTime, Report, Window
from timesink.report_model.budgets import step_budget_parts
from timesink.report_model.series import step_series
from timesink.report_model.windows import window_of

SHOWN_WINDOWS = 8
SHOWN_NAMES = 40


def report_of(trace: Trace, diagnosis: Diagnosis) -> Report:
    """Everything the report shows. Timelines are drawn for the costliest finding of each rule, eight at most."""
    windows: dict[int, Window] = {}
    seen: set[str] = set()
    for position, (card, finding) in enumerate(diagnosis.findings):
        if card.code in seen or len(windows) == SHOWN_WINDOWS:
            continue
        seen.add(card.code)
        found = window_of(trace, finding)
        if found is not None:
            windows[position] = found
    kernel_rows, operator_rows = _kernels(trace), _operators(trace)
    return Report(
        diagnosis=diagnosis,
        budgets=step_budget_parts(trace),
        series=step_series(trace),
        windows=windows,
        kernels=tuple(
            KernelTime(**row, work=_work(row["name"])) for row in kernel_rows.head(SHOWN_NAMES).iter_rows(named=True)
        ),
        kernel_count=kernel_rows.height,
        operators=tuple(OperatorTime(**row) for row in operator_rows.head(SHOWN_NAMES).iter_rows(named=True)),
        operator_count=operator_rows.height,
    )


def _kernels(trace: Trace) -> pl.DataFrame:
    wanted = ("rank", "device", "name", "count", "total_ns", "mean_ns", "max_ns", "time_ratio")
    frame = kernels(trace).frame.select(wanted) if DEVICE_OPS in trace else pl.DataFrame()
    return _by_cost(frame, "total_ns")


def _work(name: str) -> str:
    """Family and arithmetic type, as far as the name tells: `gemm bf16`."""
    known = decode(name)
    if known.family is KernelFamily.OTHER:
        return known.math or ""
    return " ".join([known.family.value.replace("_", " "), *([known.math] if known.math else [])])


def _operators(trace: Trace) -> pl.DataFrame:
    wanted = ("rank", "name", "calls", "kernels", "self_device_ns", "total_device_ns", "self_host_ns")
    frame = attribution(trace).operators.select(wanted) if HOST_OPS in trace else pl.DataFrame()
    return _by_cost(frame, "self_device_ns")


def _by_cost(frame: pl.DataFrame, cost: str) -> pl.DataFrame:
    if frame.is_empty():
        return frame
    places = [name for name in ("rank", "device", "name") if name in frame.columns]
    text = frame.with_columns(pl.col("name").cast(pl.String))
    return text.sort([cost, *places], descending=[True] + [False] * len(places))
