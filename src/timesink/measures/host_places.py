"""Where in the program each CUDA call was made: the innermost operator and the innermost range around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.memo import remembered
from timesink.model.nesting import Nesting
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class HostPlaces:
    """For each row of `api_calls`: the row of the innermost operator and range of its thread that holds its start.

    -1 where there is none. Ranges are the push/pop ones, which nest; a start/end range belongs to no thread's stack.
    """

    host_op: npt.NDArray[np.int32]
    range_: npt.NDArray[np.int32]
    op_names: pl.Series
    range_names_: pl.Series

    def host_op_names(self, calls: Rows) -> pl.Series:
        """Names of the operators around these calls, null where none."""
        return _named(self.op_names, self.host_op[calls], "host_op")

    def range_names(self, calls: Rows) -> pl.Series:
        """Names of the ranges around these calls, null where none."""
        return _named(self.range_names_, self.range_[calls], "range")


@remembered
def host_nesting(trace: Trace) -> Nesting:
    """The framework operators as trees."""
    return Nesting.of(trace.get(HOST_OPS))


@remembered
def range_nesting(trace: Trace) -> Nesting:
    """The push/pop ranges as trees; rows are those of `push_pop_ranges`."""
    return Nesting.of(push_pop_ranges(trace))


def push_pop_ranges(trace: Trace) -> pl.DataFrame:
    """The ranges that nest on their thread."""
    ranges = trace.get(RANGES)
    return ranges.filter(ranges["kind"] == "push_pop")


@remembered
def host_places(trace: Trace) -> HostPlaces:
    """Place every API call."""
    calls = trace.get(API_CALLS)
    return HostPlaces(
        host_op=host_nesting(trace).innermost_of(calls).astype(np.int32),
        range_=range_nesting(trace).innermost_of(calls).astype(np.int32),
        op_names=trace.get(HOST_OPS)["name"],
        range_names_=push_pop_ranges(trace)["name"],
    )


def _named(names: pl.Series, rows: npt.NDArray[np.int32], label: str) -> pl.Series:
    index = pl.Series(np.where(rows >= 0, rows, 0)) if len(names) else pl.Series([], dtype=pl.Int64)
    if not len(names):
        return pl.Series(label, [None], dtype=pl.String).new_from_index(0, rows.size)
    held = names.gather(index).cast(pl.String).alias(label)
    return pl.select(pl.when(pl.Series(rows >= 0)).then(held).alias(label)).to_series()
