"""How much of a recorded run its host spent compiling, warm-up included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.memo import remembered
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace

COMPILING: Final = r"\(dynamo_timed\)|_compile\.compile_inner|entire_frame_compile"


@dataclass(frozen=True, slots=True)
class CompileTime:
    """One rank: time in which any thread compiled, of the recorded span from its first event to its last."""

    rank: int
    compile_ns: int
    span_ns: int

    @property
    def share(self) -> float:
        """Share of the span, 0 to 1."""
        return self.compile_ns / self.span_ns if self.span_ns else 0.0


@remembered
def compile_time(trace: Trace) -> tuple[CompileTime, ...]:
    """Per rank with device work."""
    tables = [trace.get(table).select("rank", "name", "start_ns", "end_ns") for table in (RANGES, HOST_OPS)]
    compiling = pl.concat([frame.filter(matches(frame["name"], COMPILING)) for frame in tables], how="vertical_relaxed")
    everything = [
        *tables,
        *(trace.get(table).select("rank", "start_ns", "end_ns") for table in (API_CALLS, DEVICE_OPS)),
    ]
    found = []
    for rank in trace.get(DEVICE_OPS)["rank"].unique().sort():
        mine = [part.filter(pl.col("rank") == rank) for part in everything]
        begins = np.concatenate([part["start_ns"].to_numpy() for part in mine])
        ends = np.concatenate([part["end_ns"].to_numpy() for part in mine])
        spent = Intervals.of(compiling.filter(pl.col("rank") == rank)).total_ns
        found.append(CompileTime(int(rank), spent, int(ends.max() - begins.min())))
    return tuple(found)
