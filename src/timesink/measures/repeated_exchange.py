"""Steps that exchange the same gradients several times: once per forward pass instead of once per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.job import job
from timesink.measures.steps import steps
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS, RANGES
from timesink.model.trace import Trace

_FORWARD: Final = r"^DistributedDataParallel\.forward$"


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedExchange:
    """One GPU whose steady steps all exchange `times` times the same list of sizes, `step_bytes` in all.

    `exposed`: where exchanges before the last of their step run with no computation beside them.
    """

    device: Device
    times: int
    step_bytes: float
    exposed: Intervals


def repeated_exchanges(trace: Trace) -> tuple[RepeatedExchange, ...]:
    """GPUs with that pattern in every steady step, by rank and device."""
    forwards = _forwards(trace)
    if not forwards.height:
        return ()
    whole = job(trace)
    found = []
    for (rank, device), windows in steps(trace).windows.partition_by("rank", "device", as_dict=True).items():
        mine = (pl.col("rank") == rank) & (pl.col("device") == device)
        calls = whole.calls.filter(mine & (pl.col("kind") == "allreduce")).sort("start_ns", "end_ns")
        times = _forwards_per_step(trace, forwards, rank)
        if times < 2:
            continue
        parts = [_first_blocks(calls, start, end, times) for start, end in windows.select("start_ns", "end_ns").rows()]
        if not parts or any(part is None for part in parts):
            continue
        early = pl.concat([part for part in parts if part is not None])
        exposed = Intervals.of(whole.exposed.filter(mine)) & Intervals.of(early)
        step_bytes = float(early["bytes"].sum()) * times / (times - 1) / len(parts)
        found.append(RepeatedExchange((rank, device), times, step_bytes, exposed))
    return tuple(sorted(found, key=lambda part: part.device))


def _forwards(trace: Trace) -> pl.DataFrame:
    parts = [
        trace[table].filter(matches(trace[table]["name"], _FORWARD)).select("rank", "start_ns", "end_ns")
        for table in (HOST_OPS, RANGES)
        if table in trace
    ]
    return pl.concat(parts).unique() if parts else pl.DataFrame(schema=["rank", "start_ns", "end_ns"])


def _forwards_per_step(trace: Trace, forwards: pl.DataFrame, rank: int) -> int:
    """How many forward passes begin in each kept step; 0 where steps differ."""
    begun = np.sort(forwards.filter(pl.col("rank") == rank)["start_ns"].to_numpy())
    kept = steps(trace).kept.filter(pl.col("rank") == rank)
    first = np.searchsorted(begun, kept["host_start_ns"].to_numpy())
    after = np.searchsorted(begun, kept["host_end_ns"].to_numpy())
    counts = np.unique(after - first)
    return int(counts[0]) if counts.size == 1 else 0


def _first_blocks(calls: pl.DataFrame, start_ns: int, end_ns: int, times: int) -> pl.DataFrame | None:
    """The step's exchanges but the last, or None where its all-reduces are not `times` times the same list."""
    inside = calls.filter(
        pl.col("start_ns").is_between(start_ns, end_ns, closed="left") & pl.col("bytes").is_not_null()
    )
    if not inside.height or inside.height % times:
        return None
    blocks = inside["bytes"].to_numpy().reshape(times, -1)
    return inside.head(inside.height - inside.height // times) if (blocks == blocks[0]).all() else None
