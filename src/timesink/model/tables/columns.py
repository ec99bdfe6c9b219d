"""Columns that many tables share, declared once so that they mean the same everywhere."""

from __future__ import annotations

import polars as pl

from timesink.model.schema import Column

RANK = Column(pl.Int32, "rank of the process in its job; 0 where the file does not say")
DEVICE = Column(pl.Int32, "GPU ordinal as the profiled process numbers it", refers_to="devices.device")
PROCESS = Column(pl.Int64, "operating-system process id; 0 where the file does not say")
THREAD = Column(pl.Int64, "operating-system thread id", refers_to="threads.thread")
NAME = Column(pl.Categorical(), "name as the profiler wrote it; untrusted text")
START = Column(pl.Int64, "first instant of the half-open interval", unit="ns")
END = Column(pl.Int64, "first instant after the interval", unit="ns")
TIME = Column(pl.Int64, "instant", unit="ns")
CORRELATION = Column(
    pl.Int64,
    "links a call to the device work it caused, within one process",
    nullable=True,
    refers_to="api_calls.correlation",
)
EXTERNAL_ID = Column(
    pl.UInt64,
    "id of the framework operator that was innermost at the launch",
    nullable=True,
    refers_to="host_ops.external_id",
)


def optional(dtype: type[pl.DataType] | pl.DataType, doc: str, unit: str | None = None) -> Column:
    """A column that is null where the profiler did not record it."""
    return Column(dtype, doc, unit=unit, nullable=True)
