"""Collectives of small messages per step and GPU, and how much of them is exposed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.collective_waits import collective_waits
from timesink.measures.links import launch_links
from timesink.measures.per_step import per_step_ns, period_ns, step_windows
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class SmallPart:
    """One GPU's collectives below a size: `per_step` of them, `p50_ns` their median transfer, `exposed` where nothing
    hides it; `launch_step_ns` is what the calls that launch them take the host per step."""

    per_step: float
    p50_ns: float
    exposed: Intervals
    exposed_step_ns: float
    exposed_ratio: float
    launch_step_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class SmallCollectives:
    """`calls`: rank, device, bytes, start_ns (of the transfer: after the last arrival, where that is known), end_ns,
    launch_ns (length of the call that launched it)."""

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
        per_step = float(inside.mean()) if inside.size else 0.0
        return SmallPart(
            per_step=per_step,
            p50_ns=float(np.median(end - start)) if small.height else 0.0,
            exposed=exposed,
            exposed_step_ns=step_ns,
            exposed_ratio=step_ns / period if period else 0.0,
            launch_step_ns=_mean(small["launch_ns"]) * per_step,
        )


def small_collectives(trace: Trace) -> SmallCollectives:
    """Collectives with the transfer they contain."""
    waits = collective_waits(trace)
    key = ["rank", "device", "start_ns", "end_ns", "stream"]
    waited = waits.calls.unique(key, keep="first").select(*key, "wait_ns")
    calls = waits.job.calls.join(waited, on=key, how="left", maintain_order="left", nulls_equal=True)
    begun = pl.col("start_ns") + pl.col("wait_ns").fill_null(0)
    calls = calls.join(_launches(trace, calls), on=key, how="left", maintain_order="left", nulls_equal=True)
    calls = calls.select("rank", "device", "bytes", begun.alias("start_ns"), "end_ns", "launch_ns")
    return SmallCollectives(trace, calls, waits.job.exposed)


def _launches(trace: Trace, collectives: pl.DataFrame) -> pl.DataFrame:
    """How long the call took that launched each device op that starts with a collective, where it is known."""
    key = ["rank", "device", "start_ns", "end_ns", "stream"]
    ops, calls, link = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace).call
    together = ops["start_ns"].is_in(collectives["start_ns"].unique().implode()).to_numpy()
    rows = np.flatnonzero(together & (link >= 0))
    call = calls[link[rows]]
    launched = ops.select(key)[rows].with_columns((call["end_ns"] - call["start_ns"]).alias("launch_ns"))
    return launched.unique(key, keep="first")


def _mean(values: pl.Series) -> float:
    known = values.drop_nulls().to_numpy()
    return float(known.mean()) if known.size else 0.0
