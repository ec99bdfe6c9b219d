"""The window of time in which a finding shows: its typical step, narrowed to where the finding is."""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.findings import Finding
from timesink.measures.per_step import step_windows
from timesink.measures.steps import steps
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.report_data import Window
from timesink.report_model.lanes import lanes_of

AROUND = 60  # a window is at most this many times as long as the longest stretch claimed in it ...
SHORTEST_NS = 1_000_000  # ... but not shorter than this


def window_of(trace: Trace, finding: Finding) -> Window | None:
    """The window of a finding's typical step; None where the finding claims no device time or names no device."""
    device = _device(finding)
    if device is None or device not in device_timeline(trace).by_device:
        return None
    claimed = finding.claim.intervals.get(device, Intervals.none())
    starts, ends = step_windows(trace, device)
    at = _typical(claimed.covered_ns(starts, ends))
    start, end = _narrowed(claimed, int(starts[at]), int(ends[at]))
    shown = claimed.clip(start, end)
    return Window(
        *device,
        start_ns=start,
        end_ns=end,
        step=_step_number(trace, device, int(starts[at])),
        claimed=tuple(zip(shown.start_ns.tolist(), shown.end_ns.tolist(), strict=True)),
        lanes=lanes_of(trace, device, start, end),
    )


def _device(finding: Finding) -> tuple[int, int] | None:
    """The device with the most claimed time; else the one the finding names."""
    claimed = finding.claim.intervals
    if any(len(part) for part in claimed.values()):
        return max(sorted(claimed), key=lambda device: claimed[device].total_ns)
    rank, device = finding.where.rank, finding.where.device
    return None if rank is None or device is None else (rank, device)


def _typical(claimed_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    """The step whose claimed time is nearest to the median of the steps that have any; the first of equals."""
    some = claimed_ns[claimed_ns > 0]
    return int(np.argmin(np.abs(claimed_ns - np.median(some)))) if some.size else claimed_ns.size // 2


def _narrowed(claimed: Intervals, start_ns: int, end_ns: int) -> tuple[int, int]:
    """The step, cut to a neighbourhood of its longest claimed stretch where that is much shorter."""
    inside = claimed.clip(start_ns, end_ns)
    if not len(inside):
        return start_ns, end_ns
    longest = int(np.argmax(inside.lengths_ns))
    width = min(max(AROUND * int(inside.lengths_ns[longest]), SHORTEST_NS), end_ns - start_ns)
    middle = (int(inside.start_ns[longest]) + int(inside.end_ns[longest])) // 2
    first = min(max(middle - width // 2, start_ns), end_ns - width)
    return first, first + width


def _step_number(trace: Trace, device: tuple[int, int], start_ns: int) -> int | None:
    here = (pl.col("rank") == device[0]) & (pl.col("device") == device[1]) & (pl.col("start_ns") == start_ns)
    found = steps(trace).windows.filter(here)
    return int(found["step"][0]) if found.height else None
