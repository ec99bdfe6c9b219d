"""What each steady step of one device holds: operations, idle stretches, bytes copied to the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.idle_blame import idle_blame
from timesink.measures.step_alignment import StepOps
from timesink.measures.step_marks import step_of_ops
from timesink.measures.steps import steps
from timesink.measures.timeline import Device
from timesink.model.nesting import slice_of
from timesink.model.op_class import op_class
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


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
