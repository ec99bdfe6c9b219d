"""Gradient accumulation: how many forward and backward passes one optimizer step takes.

The optimizer is told by its own range or operator ("Optimizer.step#AdamW.step"). Where it runs in every k-th step, the
marks are micro-batches; where a step holds it once, backward passes in it are counted, if ranges name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.memo import remembered
from timesink.measures.step_marks import found_steps
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS, RANGES
from timesink.model.trace import Trace

OPTIMIZER: Final = r"^Optimizer\.step#"
BACKWARD: Final = r"(?i)(^|[^a-z])backward([^a-z]|$)"
NO_BACKWARD: Final = r"::|Backward\d|autograd"


@dataclass(frozen=True, slots=True)
class Accumulation:
    """One rank. `marks_per_update`: steps from one optimizer step to the next, None where they are uneven or no
    optimizer is named. `backwards_per_mark`: named backward passes in a step, None where none is named."""

    rank: int
    marks_per_update: int | None
    backwards_per_mark: float | None

    @property
    def micro_batches(self) -> int | None:
        """Micro-batches per optimizer step; 1 without accumulation, None where it cannot be told."""
        if self.marks_per_update is None:
            return None
        return round(self.marks_per_update * max(self.backwards_per_mark or 1.0, 1.0))


@remembered
def accumulation(trace: Trace) -> tuple[Accumulation, ...]:
    """Per rank with steps."""
    marks = found_steps(trace).frame
    updates, passes = _starts(trace, OPTIMIZER, None), _starts(trace, BACKWARD, NO_BACKWARD)
    found = []
    for (rank,), mine in sorted(marks.partition_by("rank", as_dict=True).items()):
        begins = np.sort(mine["host_start_ns"].to_numpy())
        in_step = np.unique(_steps_of(updates, rank, begins))
        apart = np.diff(in_step)
        even = apart.size > 0 and int(apart.min()) == int(apart.max())
        backwards = _steps_of(passes, rank, begins)
        each = backwards.size / max(np.unique(backwards).size, 1)
        found.append(Accumulation(int(rank), int(apart[0]) if even else None, each if backwards.size else None))
    return tuple(found)


def _starts(trace: Trace, pattern: str, unlike: str | None) -> pl.DataFrame:
    parts = []
    for table in (RANGES, HOST_OPS):
        frame = trace.get(table)
        wanted = matches(frame["name"], pattern)
        if unlike is not None:
            wanted &= ~matches(frame["name"], unlike)
        parts.append(frame.filter(wanted).select("rank", "start_ns").unique())
    return max(parts, key=lambda part: part.height)


def _steps_of(starts: pl.DataFrame, rank: object, begins: np.ndarray) -> np.ndarray:
    at = np.searchsorted(begins, starts.filter(pl.col("rank") == rank)["start_ns"].to_numpy(), side="right") - 1
    return at[at >= 0]
