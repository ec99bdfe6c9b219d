"""Which call launched which device operation: profilers give both the same number, the correlation.

Correlations are numbered process by process, so identity is (rank, process, correlation): never the order of rows, and
never a list of names.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from timesink.model.arrays import Int64Array

_AT_ONCE = 1 << 18  # keeps what is looked up at once within a few MB
_DENSE = 8  # a look-up table may be this many times longer than what it serves; sparser ids are searched instead


def first_places(wanted: Int64Array, known: Int64Array) -> Int64Array:
    """For each wanted id, the first place in `known` that holds it; -1 where none does, and for negative ids.

    Both are int64 arrays of one dimension, in any order; so wanted = [7, 5, -1] and known = [5, 7, 7] give [1, 0, -1].
    """
    valid = known >= 0
    if not valid.any() or not wanted.size:
        return np.full(wanted.size, -1, np.int64)
    low, high = int(np.min(known, where=valid, initial=np.iinfo(np.int64).max)), int(known.max())
    if high - low < _DENSE * (known.size + wanted.size):
        return _looked_up(wanted, known, low, high)
    rows = np.flatnonzero(valid)
    ids, first = np.unique(known[rows], return_index=True)
    at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[at] == wanted, rows[first[at]], -1)


def _looked_up(wanted: Int64Array, known: Int64Array, low: int, high: int) -> Int64Array:
    """By a table of the first place of each id, slice by slice: it and the result are all the memory that is needed."""
    first_of_id = np.full(high - low + 1, -1, np.int32)
    for begin in reversed(range(0, known.size, _AT_ONCE)):
        ids = known[begin : begin + _AT_ONCE][::-1]  # the last to be written is the first there is
        rows = np.arange(begin + ids.size - 1, begin - 1, -1, dtype=np.int32)
        valid = ids >= 0
        first_of_id[ids[valid] - low] = rows[valid]
    positions = np.full(wanted.size, -1, np.int64)
    for begin in range(0, wanted.size, _AT_ONCE):
        ids = wanted[begin : begin + _AT_ONCE]
        inside = (ids >= low) & (ids <= high)
        positions[begin : begin + _AT_ONCE][inside] = first_of_id[ids[inside] - low]
    return positions


def launching_calls(ops: pl.DataFrame, calls: pl.DataFrame) -> Int64Array:
    """For each row of `device_ops`, the row of `api_calls` that launched it, or -1 where the recording holds none.

    Where several calls carry one correlation (a driver call inside a runtime call), the first row, which encloses the
    others, is the launch. Operations of several processes, and the calls with the same correlations::

        ops    process  correlation      calls  process  correlation      launching calls
        0      1        7                0      1        7                0
        1      1        8                1      1        7  (inside 0)    -1
        2      2        7                2      2        7                2
    """
    call = np.full(ops.height, -1, np.int64)
    if ops.height and calls.height:
        op_ids, call_ids = _correlations(ops), _correlations(calls)
        calls_of = dict(_rows_by_process(calls))
        for process, op_rows in _rows_by_process(ops):
            if process in calls_of:
                call_rows = calls_of[process]
                position = first_places(op_ids[op_rows], call_ids[call_rows])
                call[op_rows] = np.where(position >= 0, call_rows[position], -1)
    return call


def _correlations(frame: pl.DataFrame) -> Int64Array:
    """Correlations, with -1 for null: no profiler numbers a launch so."""
    return frame["correlation"].fill_null(-1).to_numpy()


def _rows_by_process(frame: pl.DataFrame) -> Iterator[tuple[tuple[int, int], Int64Array]]:
    """Row numbers of each (rank, process)."""
    keys = frame.select("rank", "process")
    distinct = keys.unique().sort("rank", "process").rows()
    if len(distinct) == 1:
        yield (distinct[0][0], distinct[0][1]), np.arange(frame.height)
        return
    rows = keys.with_row_index("row").group_by("rank", "process").agg(pl.col("row").cast(pl.Int64))
    for rank, process, numbers in rows.sort("rank", "process").iter_rows():
        yield (rank, process), np.asarray(numbers, np.int64)
