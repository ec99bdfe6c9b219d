"""Which call launched which device operation: profilers give both the same number, the correlation.

Correlations are numbered process by process, so identity is (rank, process, correlation): never the order of rows, and
never a list of names.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from timesink._native import first_places
from timesink.model.arrays import Int32Array, Int64Array


def launching_calls(ops: pl.DataFrame, calls: pl.DataFrame) -> Int32Array:
    """For each row of `device_ops`, the row of `api_calls` that launched it, or -1 where the recording holds none.

    Where several calls carry one correlation (a driver call inside a runtime call), the first row, which encloses the
    others, is the launch. Operations of several processes, and the calls with the same correlations::

        ops    process  correlation      calls  process  correlation      launching calls
        0      1        7                0      1        7                0
        1      1        8                1      1        7  (inside 0)    -1
        2      2        7                2      2        7                2
    """
    call = np.full(ops.height, -1, np.int32)
    if ops.height and calls.height:
        op_ids, call_ids = _correlations(ops), _correlations(calls)
        if (process := _one_process(ops)) is not None and process == _one_process(calls):
            return first_places(op_ids, call_ids).astype(np.int32)
        calls_of = dict(_rows_by_process(calls))
        for process, op_rows in _rows_by_process(ops):
            if process in calls_of:
                call_rows = calls_of[process]
                position = first_places(op_ids[op_rows], call_ids[call_rows])
                call[op_rows] = np.where(position >= 0, call_rows[position], -1)
    return call


def _correlations(frame: pl.DataFrame) -> Int64Array:
    """Correlations, with -1 for null: no profiler numbers a launch so."""
    ids = frame["correlation"]
    return (ids.fill_null(-1) if ids.null_count() else ids).to_numpy()


def _one_process(frame: pl.DataFrame) -> tuple[int, int] | None:
    """The (rank, process) of all rows, None where they have several."""
    (rank, last_rank), (process, last) = ((frame[key].min(), frame[key].max()) for key in ("rank", "process"))
    return (rank, process) if (rank, process) == (last_rank, last) else None  # type: ignore[return-value]


def _rows_by_process(frame: pl.DataFrame) -> Iterator[tuple[tuple[int, int], Int64Array]]:
    """Row numbers of each (rank, process)."""
    if (process := _one_process(frame)) is not None:
        yield process, np.arange(frame.height)
        return
    numbered = frame.select("rank", "process").with_row_index("row")
    rows = numbered.group_by("rank", "process").agg(pl.col("row").cast(pl.Int64))
    for rank, process, numbers in rows.sort("rank", "process").iter_rows():
        yield (rank, process), np.asarray(numbers, np.int64)
