"""What each steady step of one device holds: operations, idle stretches, bytes copied to the host.

One step laid beside another: where the first is longer, operation by operation, summing to the difference.

A step's operations on a device, in order of start, cut its window into segments: the idle time before an operation and
the time in which it was the last to run. The two sequences of kernel names are aligned by their longest common blocks;
operations of one step only stand against nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernels import op_class
from timesink.measures.idle.blame import idle_blame
from timesink.measures.steps.marks import step_of_ops
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.nesting import slice_of
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

_LONGEST: Final = 4_000  # operations; a longer step is aligned position by position, as far as names agree


@dataclass(frozen=True, slots=True, eq=False)
class StepOps:
    """One step on one device: what ran, in order of start. `row` are rows of `device_ops`; `end_ns` of the window is
    the start of the next step's first operation."""

    row: Int64Array
    token: Int64Array
    start_ns: Int64Array
    finish_ns: Int64Array
    window_ns: tuple[int, int]

    @property
    def idle_ns(self) -> Int64Array:
        """Idle time before each operation, and, last, at the end of the window: one longer than the operations."""
        reach = np.maximum.accumulate(np.concatenate(([self.window_ns[0]], self.finish_ns)))
        begins = np.append(np.minimum(self.start_ns, self.window_ns[1]), self.window_ns[1])
        return np.asarray(np.maximum(begins - reach, 0), np.int64)

    @property
    def busy_ns(self) -> Int64Array:
        """Time that each operation added to the busy time of the window."""
        reach = np.maximum.accumulate(np.concatenate(([self.window_ns[0]], self.finish_ns)))
        ends = np.minimum(reach, self.window_ns[1])
        begins = np.minimum(np.maximum(self.start_ns, ends[:-1]), self.window_ns[1])
        return np.asarray(np.maximum(ends[1:] - np.maximum(begins, ends[:-1]), 0), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Differences of one step from another, per operation of the longer one. `pair[i]` is the operation of the other
    that stands against it, -1 for none; `busy_ns` and `idle_ns` (one longer: the end of the window) are differences.
    They and `missing_ns`, what only the other step has (zero or less), sum to the difference of the windows."""

    pair: Int64Array
    busy_ns: Int64Array
    idle_ns: Int64Array
    missing_ns: int

    @property
    def total_ns(self) -> int:
        """The difference of the two windows."""
        return int(self.busy_ns.sum() + self.idle_ns.sum() + self.missing_ns)


def align(step: StepOps, other: StepOps) -> Alignment:
    """The first step against the second."""
    pair = _pairs(step.token, other.token)
    held = pair >= 0
    busy, idle = step.busy_ns.astype(np.int64), step.idle_ns.astype(np.int64)
    other_busy, other_idle = other.busy_ns, other.idle_ns
    busy[held] -= other_busy[pair[held]]
    idle[:-1][held] -= other_idle[:-1][pair[held]]
    idle[-1] -= other_idle[-1]
    alone = np.ones(other.token.size, bool)
    alone[pair[held]] = False
    missing = int(other_busy[alone].sum() + other_idle[:-1][alone].sum())
    return Alignment(pair, busy, idle, -missing)


def _pairs(first: Int64Array, second: Int64Array) -> Int64Array:
    if first.size == second.size and np.array_equal(first, second):
        return np.arange(first.size, dtype=np.int64)
    pair = np.full(first.size, -1, np.int64)
    if max(first.size, second.size) > _LONGEST:
        shorter = min(first.size, second.size)
        same = np.flatnonzero(first[:shorter] == second[:shorter])
        pair[same] = same
        return pair
    blocks = SequenceMatcher(None, first.tolist(), second.tolist(), autojunk=False).get_matching_blocks()
    for block in blocks:
        pair[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return pair


@dataclass(frozen=True, slots=True, eq=False)
class StepContents:
    """What the windows of one device hold: stretches of idle time, operations, bytes copied to the host."""

    windows: pl.DataFrame
    idle: pl.DataFrame
    operations: pl.DataFrame
    labels: pl.DataFrame

    @classmethod
    def of(cls, trace: Trace, key: Device, windows: pl.DataFrame) -> StepContents:
        """The windows of one device, as `steps` gives them."""
        low, high = slice_of(trace[DEVICE_OPS], ("rank", "device"), key)
        columns = ("row", "name", "start_ns", "end_ns", "bytes", "copy_kind", "op_class", "step")
        ops = trace[DEVICE_OPS][low:high].with_row_index("row", low)  # in order of start
        ops = ops.with_columns(op_class(ops), pl.Series("step", step_of_ops(trace)[low:high]))
        ops = ops.select(columns)
        labels = steps(trace).frame.filter(pl.col("rank") == key[0]).sort("host_start_ns")
        return cls(windows, idle_blame(trace).on(key), ops, labels)

    def window(self, at: int) -> tuple[int, int]:
        """First instant of the window and first after it."""
        return int(self.windows["start_ns"][at]), int(self.windows["end_ns"][at])

    def inside(self, at: int) -> pl.DataFrame:
        """Operations that begin in the window."""
        first, last = np.searchsorted(self.operations["start_ns"].to_numpy(), self.window(at))
        return self.operations.slice(int(first), int(last - first))

    def ops(self, at: int) -> StepOps:
        """The same, to be laid beside another step."""
        rows = self.inside(at)
        token = rows["name"].to_physical().cast(pl.Int64).to_numpy()
        columns = [rows[name].cast(pl.Int64).to_numpy() for name in ("start_ns", "end_ns")]
        return StepOps(rows["row"].cast(pl.Int64).to_numpy(), token, columns[0], columns[1], self.window(at))

    def stretches(self, at: int) -> pl.DataFrame:
        """Idle stretches cut to the window."""
        start, end = self.window(at)
        first = np.searchsorted(self.idle["end_ns"].to_numpy(), start, side="right")  # stretches do not overlap
        last = np.searchsorted(self.idle["start_ns"].to_numpy(), end)
        cut = self.idle.slice(int(first), max(int(last - first), 0)).with_columns(
            pl.col("start_ns").clip(start, end), pl.col("end_ns").clip(start, end)
        )
        cut = cut.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("length"), pl.col("cause").cast(pl.String))
        return cut.filter(pl.col("length") > 0)

    def idle_by_cause(self, at: int) -> dict[str, int]:
        """Idle time by cause, ns."""
        return dict(self.stretches(at).group_by("cause").agg(pl.col("length").sum()).sort("cause").iter_rows())

    def to_host_bytes(self, at: int) -> int:
        """Bytes copied to the host."""
        rows = self.inside(at).filter(pl.col("copy_kind") == "d2h")
        return int(rows["bytes"].fill_null(0).sum())

    def host_step(self, time_ns: int) -> tuple[int, str]:
        """Number and label of the step the host was in; the first step before it."""
        begins = self.labels["host_start_ns"].to_numpy()
        at = max(int(np.searchsorted(begins, time_ns, side="right")) - 1, 0)
        return int(self.labels["step"][at]), str(self.labels["label"][at])
