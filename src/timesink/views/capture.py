"""The steps of a finished capture, with and without the profiler."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.measures.steps.steps import step_times
from timesink.units import NS_PER_MS
from timesink.views.page import Field, Sheet


def steps_sheet(alone_ms: Sequence[float], alone_step_ms: float | None, recorded_step_ms: float | None) -> Sheet:
    """Medians with and without the profiler, and percentiles of the steps without it where there are enough, in ms."""
    times = step_times([ms * NS_PER_MS for ms in alone_ms])
    overhead = recorded_step_ms / alone_step_ms - 1 if recorded_step_ms and alone_step_ms else None
    cells = [
        (Field("unprofiled_step_ms", "without profiler", "ms"), alone_step_ms),
        (Field("unprofiled_p90_ms", "its p90", "ms"), None if times.p90_ns is None else times.p90_ns / NS_PER_MS),
        (Field("unprofiled_p99_ms", "its p99", "ms"), None if times.p99_ns is None else times.p99_ns / NS_PER_MS),
        (Field("profiled_step_ms", "recorded", "ms"), recorded_step_ms),
        (Field("overhead_ratio", "longer by", "ratio"), overhead),
    ]
    known = [cell for cell in cells if cell[1] is not None]
    counted = f"{times.count} steps without the profiler; p90 from 10 on, p99 from 100; " if times.count else ""
    note = f"{counted}medians and percentiles; of several ranks the slowest"
    return Sheet("steps", "Step", tuple(field for field, _ in known), (tuple(value for _, value in known),), note)
