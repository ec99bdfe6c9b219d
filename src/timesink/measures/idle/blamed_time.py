"""Idle time of the steady steps by cause, with the place that accounts for most of it.

Idle time in which the host worked towards the next launch (`launching_time`) is told apart from idle time in which it
did something else (`python_time`). Untraced time between operators and calls can be either: framework dispatch (module
calls, wrappers, and all of it where no operators were recorded) takes microseconds at a time, so short stretches count
as dispatch and long ones as Python.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import polars as pl

from timesink.knowledge.assumptions import idle as assumed
from timesink.measures.idle.blame import idle_blame, intervals_of
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.idle.places import NOWHERE, READ, placed
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.measures.timeline.start_up import start_up
from timesink.model.intervals import Intervals
from timesink.model.nesting import slice_of
from timesink.model.schema import picked
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass

_DISPATCH: Final = ("dispatch", "cuda_call", "launch_latency", "untraced")
_PYTHON: Final = ("python", "untraced", "logging", "checkpoint")


@dataclass(frozen=True, slots=True, eq=False)
class BlamedTime:
    """Idle time of one device for a set of causes: its intervals, its mean per step, and its share of the step.

    The step is the recorded window where there are no steps. `host` holds the same time per (process, thread) that kept
    the device waiting. `thread`, `call`, `host_op`, `range`, `frame` name the place with the most of that time (None
    where no name was recorded); `file` and `line` are the program's own frame around it, where stacks were recorded.
    Names are untrusted text. `rows` are rows of `device_ops` that ended the longest stretches.
    """

    device: Device
    intervals: Intervals
    per_step_ns: float
    step_ns: float
    host: Mapping[tuple[int, int], Intervals]
    thread: int | None
    call: str | None
    host_op: str | None
    range: str | None
    frame: str | None
    rows: tuple[int, ...]
    file: str | None = None
    line: int | None = None

    @property
    def share(self) -> float:
        """Share of the step, 0 to 1."""
        return self.per_step_ns / self.step_ns if self.step_ns else 0.0


def blamed_time(trace: Trace, causes: Collection[str], wanted: pl.Expr | None = None) -> tuple[BlamedTime, ...]:
    """Per device that did any work, in order: the idle stretches of these causes, and of them those `wanted`."""
    if wanted is not None:
        return _blame_devices(trace, causes, wanted)
    known, key = _by_causes(trace), tuple(causes)
    if key not in known:
        known[key] = _blame_devices(trace, causes)
    return known[key]


@remembered
def _by_causes(_: Trace) -> dict[tuple[str, ...], tuple[BlamedTime, ...]]:
    return {}


def _blame_devices(trace: Trace, causes: Collection[str], wanted: pl.Expr | None = None) -> tuple[BlamedTime, ...]:
    chosen = pl.col("cause").is_in(list(causes))
    stretches = idle_blame(trace).stretches
    rows = stretches.select(chosen if wanted is None else chosen & wanted).to_series()
    stretches = picked(stretches[READ], rows)
    by_device = intervals_of(stretches)
    blamed = []
    for device in device_timeline(trace).by_device:
        first, last = slice_of(stretches, ("rank", "device"), device)
        blamed.append(_blamed(trace, device, stretches[first:last], by_device.get(device, Intervals.none())))
    return tuple(blamed)


@remembered
def launching_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in framework dispatch, CUDA calls and launch latency, outside input, waits and start-up.

    Where that is more than what Python takes, it is the launching of the whole step that the device waits for, its
    Python and its optimizer included: a CUDA graph takes the place of all three.
    """
    later = pl.lit(~start_up(trace).holds(idle_blame(trace).stretches))
    dispatch = blamed_time(trace, _DISPATCH, later & ~_untraced_python())
    python_ns = {part.device: part.per_step_ns for part in python_time(trace)}
    if all(part.per_step_ns <= python_ns[part.device] for part in dispatch):
        return dispatch
    launching = {part.device: part for part in blamed_time(trace, LAUNCHING_CAUSES, later)}
    return tuple(launching[part.device] if part.per_step_ns > python_ns[part.device] else part for part in dispatch)


@remembered
def python_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in Python and other host work that launches nothing, outside input and waits."""
    return blamed_time(trace, _PYTHON, (pl.col("cause") != "untraced") | _untraced_python())


def system_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in calls into the operating system, and between those that move data, outside input."""
    return blamed_time(trace, ("os_call",))


def _untraced_python() -> pl.Expr:
    """Whether an untraced stretch is Python rather than dispatch."""
    return (pl.col("cause") == "untraced") & (pl.col("end_ns") - pl.col("start_ns") >= assumed.DISPATCH_MOST_US.ns)


def _blamed(trace: Trace, device: Device, stretches: pl.DataFrame, intervals: Intervals) -> BlamedTime:
    """The time of one device: the part of its stretches inside `intervals`."""
    return BlamedTime(
        device=device,
        intervals=intervals,
        per_step_ns=per_step_ns(trace, device, intervals),
        step_ns=period_ns(trace, device),
        **(placed(trace, stretches, intervals) if len(intervals) else NOWHERE),
    )
