"""Hardware counters sampled along the timeline: how busy the multiprocessors, tensor cores and memory of a GPU were.

Samples of Nsight Systems are taken at a fixed rate and hold the share of the peak since the sample before. They are of
the whole GPU: what ran at that time, whoever launched it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.knowledge.metric_names.patterns import SAMPLED
from timesink.measures.timeline.device_timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import GPU_METRICS
from timesink.model.trace import Trace

LEAST_SAMPLES = 10
"""Fewer say nothing of a mean."""


@dataclass(frozen=True, slots=True)
class SampledCounter:
    """The mean of one counter over some stretches of time, as a share of its peak (0 to 1), and its samples' number."""

    what: str
    share: float
    samples: int


def sampled(trace: Trace, device: Device, during: Intervals) -> tuple[SampledCounter, ...]:
    """The counters known here (`SAMPLED`, in that order) that were sampled often enough during these stretches."""
    rows = trace.get(GPU_METRICS)
    rows = rows.filter((pl.col("rank") == device[0]) & (pl.col("device") == device[1]))
    found = []
    for what, pattern in SAMPLED.items():
        counter = rows.filter(matches(rows["name"], pattern))
        if not counter.height:
            continue
        # A share is of the time before it is taken: the instant before it must be inside.
        time_ns = counter["time_ns"].to_numpy()
        inside = during.covered_ns(time_ns - 1, time_ns) > 0
        if np.count_nonzero(inside) >= LEAST_SAMPLES:
            percent = counter["value"].to_numpy()[inside]
            found.append(SampledCounter(what, float(np.mean(percent)) / 100, int(percent.size)))
    return tuple(found)
