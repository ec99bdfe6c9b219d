"""Collectives of small messages per step and GPU, and how much of them is exposed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.collective_waits import collective_waits
from timesink.measures.per_step import per_step_ns, period_ns, step_windows
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class SmallPart:
    """One GPU's collectives below a size: `per_step` of them, `p50_ns` their median transfer, `exposed` where nothing
    hides it."""

    per_step: float
    p50_ns: float
    exposed: Intervals
    exposed_step_ns: float
    exposed_ratio: float


@dataclass(frozen=True, slots=True, eq=False)
class SmallCollectives:
    """`calls`: rank, device, bytes, start_ns (of the transfer: after the last arrival, where that is known), end_ns."""

    trace: Trace
    calls: pl.DataFrame
    exposed: pl.DataFrame

    @property
    def devices(self) -> list[Device]:
        """GPUs with collectives."""
        return [(rank, device) for rank, device in self.calls.select("rank", "device").unique().sort("*").rows()]

    def of(self, device: Device, below_bytes: int) -> SmallPart:
        """The part of one GPU."""
        mine = (pl.col("rank") == device[0]) & (pl.col("device") == device[1])
        small = self.calls.filter(mine & (pl.col("bytes") < below_bytes))
        start, end = small["start_ns"].to_numpy(), small["end_ns"].to_numpy()
        exposed = Intervals.of(self.exposed.filter(mine)) & Intervals.union_of(start, end)
        begin, over = step_windows(self.trace, device)
        inside = np.searchsorted(np.sort(start), over) - np.searchsorted(np.sort(start), begin)
        step_ns, period = per_step_ns(self.trace, device, exposed), period_ns(self.trace, device)
        return SmallPart(
            per_step=float(inside.mean()) if inside.size else 0.0,
            p50_ns=float(np.median(end - start)) if small.height else 0.0,
            exposed=exposed,
            exposed_step_ns=step_ns,
            exposed_ratio=step_ns / period if period else 0.0,
        )


def small_collectives(trace: Trace) -> SmallCollectives:
    """Collectives with the transfer they contain."""
    waits = collective_waits(trace)
    key = ["rank", "device", "start_ns", "end_ns", "stream"]
    waited = waits.calls.unique(key, keep="first").select(*key, "wait_ns")
    calls = waits.job.calls.join(waited, on=key, how="left", maintain_order="left", nulls_equal=True)
    begun = pl.col("start_ns") + pl.col("wait_ns").fill_null(0)
    calls = calls.select("rank", "device", "bytes", begun.alias("start_ns"), "end_ns")
    return SmallCollectives(trace, calls, waits.job.exposed)
