"""Which call launched each device op. Identity is (rank, process, correlation): never order, never a list of names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.lookup import first_places
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True, eq=False)
class LaunchLinks:
    """For each row of `device_ops`, the row of `api_calls` that launched it, or -1 where none is in the window.

    `shared` marks ops whose call launched several: the kernels of one graph launch.
    """

    call: Int64Array
    shared: BoolArray

    @property
    def linked(self) -> BoolArray:
        """Which ops have a launch record."""
        return self.call >= 0

    @property
    def linked_count(self) -> int:
        """How many ops have a launch record."""
        return int(np.count_nonzero(self.call >= 0))

    def launching(self, height: int) -> BoolArray:
        """Which of the `height` rows of `api_calls` launched any device op."""
        flags = np.zeros(height, np.bool_)
        flags[self.call[self.linked]] = True
        return flags


@remembered
def launch_links(trace: Trace) -> LaunchLinks:
    """Join device ops to the calls that launched them.

    Where several calls carry one correlation (a driver call inside a runtime call), the first row, which encloses the
    others, is the launch.
    """
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    call = np.full(ops.height, -1, np.int64)
    if ops.height and calls.height:
        op_ids, call_ids = _ids(ops), _ids(calls)
        call_slices = dict(_groups(calls))
        for key, rows in _groups(ops):
            if key in call_slices:
                mine = call_slices[key]
                place = first_places(op_ids[rows], call_ids[mine])
                call[rows] = np.where(place >= 0, mine[place], -1)
    return LaunchLinks(call=call, shared=_shared(call, calls.height))


def _ids(frame: pl.DataFrame) -> Int64Array:
    """Correlations, with -1 for null: no profiler numbers a launch so."""
    return frame["correlation"].fill_null(-1).to_numpy()


def _groups(frame: pl.DataFrame) -> Iterator[tuple[tuple[int, int], Int64Array]]:
    """Row numbers of each (rank, process)."""
    keys = frame.select("rank", "process")
    distinct = keys.unique().sort("rank", "process").rows()
    if len(distinct) == 1:
        yield (distinct[0][0], distinct[0][1]), np.arange(frame.height)
        return
    rows = keys.with_row_index("row").group_by("rank", "process").agg(pl.col("row").cast(pl.Int64))
    for rank, process, numbers in rows.sort("rank", "process").iter_rows():
        yield (rank, process), np.asarray(numbers, np.int64)


def _shared(call: Int64Array, height: int) -> BoolArray:
    linked = call >= 0
    owned = np.bincount(call[linked], minlength=max(height, 1))
    return np.asarray(linked & (owned[np.where(linked, call, 0)] > 1))
