"""Collectives that the host waits for, and the idle time of the GPU behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.synchronisations import synchronisations
from timesink.measures.timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class AwaitedCollectives:
    """One GPU: `count` blocking calls, most of them `call`, each with idle time behind a collective."""

    device: Device
    count: int
    call: str
    idle: Intervals


def awaited_collectives(trace: Trace) -> tuple[AwaitedCollectives, ...]:
    """GPUs that ran dry as a collective ended while a blocking call waited, by rank and device."""
    waits = synchronisations(trace)
    lines = device_timeline(trace).by_device
    names = waits.calls.select("call", "name")
    found = []
    for key, part in waits.drains.partition_by("rank", "device", as_dict=True).items():
        device = (int(key[0]), int(key[1]))
        ends = lines[device].communication.end_ns
        start = part["start_ns"].to_numpy()
        place = np.minimum(np.searchsorted(ends, start), max(ends.size - 1, 0))
        behind = ends[place] == start if ends.size else np.zeros(start.size, bool)
        mine = part.filter(pl.Series(behind))
        if not mine.height:
            continue
        called = (
            mine.join(names, on="call", how="left")["name"]
            .value_counts()
            .sort("count", "name", descending=[True, False])
        )
        found.append(
            AwaitedCollectives(device, int(mine["call"].n_unique()), str(called["name"][0]), Intervals.of(mine))
        )
    return tuple(sorted(found, key=lambda part: part.device))
