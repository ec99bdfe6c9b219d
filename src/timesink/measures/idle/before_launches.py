"""Idle time before launches: of the launching itself, and of host work that is long by itself.

Calls that take long, and operators that take long for what they launch, are told apart: a GPU that waits for these is
not slowed by the number of its launches, and fewer of them change nothing.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.calls import LAUNCH, POLLS
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time, in_computing, python_time, unrecorded_python
from timesink.measures.idle.causes import CAUSES, LAUNCHING_CAUSES, calls_inside
from timesink.measures.timeline import Device, of_device
from timesink.measures.timeline.start_up import start_up
from timesink.model.arrays import BoolArray
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.units import NS_PER_MS

_DISPATCH: Final = ("dispatch", "cuda_call", "launch_latency", "unrecorded_code")
_LAUNCHING: Final = ("dispatch", "cuda_call", "launch_latency", "optimizer")
_MOST: Final = 0.5  # of the time before launches: less is the ordinary mixture of a step of many launches


@remembered
def in_slow_calls(trace: Trace) -> pl.Series:
    """Which stretches of `IdleBlame.stretches` are of a call that takes far longer than a launch does, or of one that
    only asks whether work is done; the program's start aside."""
    calls, stretches = trace.get(API_CALLS), idle_blame(trace).stretches
    length_ns = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    slow = (length_ns >= assumed.START_UP_FIRST_LAUNCH_MS.value * NS_PER_MS) | matches(calls["name"], POLLS).to_numpy()
    return (
        (stretches["cause"] == "cuda_call") & _of_rows(stretches["call_row"], slow) & ~start_up(trace).holds(stretches)
    )


@remembered
def slow_calls(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in such calls."""
    return blamed_time(trace, ("cuda_call",), pl.lit(in_slow_calls(trace)))


@remembered
def slow_operators(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in operators that compute on the CPU, or take long for what they launch, where that is most
    of the time before launches."""
    stretches = idle_blame(trace).stretches
    computing, launching = in_computing(trace), stretches["cause"].is_in(list(_LAUNCHING))
    slow = launching & _of_rows(stretches["host_op_row"], _slow_rows(trace)) & ~in_slow_calls(trace)
    all_ns = {part.device: part.per_step_ns for part in blamed_time(trace, CAUSES, pl.lit(launching | computing))}
    later = ~start_up(trace).holds(stretches)
    found = blamed_time(trace, CAUSES, pl.lit((computing | slow) & later))
    return tuple(part for part in found if part.per_step_ns > _MOST * all_ns[part.device])


def computing_share(trace: Trace, device: Device) -> float:
    """The share of a device's time in slow operators in which they compute on the CPU."""
    (found,) = (part for part in slow_operators(trace) if part.device == device)
    (all_of_it,) = (one for one in blamed_time(trace, CAUSES, pl.lit(in_computing(trace))) if one.device == device)
    return (all_of_it.intervals & found.intervals).total_ns / max(found.intervals.total_ns, 1)


def _in_slow_operators(trace: Trace) -> pl.Series:
    """Which stretches before launches are of `slow_operators`."""
    stretches, never = idle_blame(trace).stretches, pl.lit(False)
    own = pl.any_horizontal(never, *(of_device(part.device) for part in slow_operators(trace)))
    return stretches.select(own).to_series() & _of_rows(stretches["host_op_row"], _slow_rows(trace))


@remembered
def launching_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in framework dispatch, CUDA calls and launch latency, outside input, waits, start-up and
    what takes long by itself.

    Where that is more than what Python takes, it is the launching of the whole step that the device waits for, its
    Python and its optimizer included: a CUDA graph takes the place of all three.
    """
    long = in_slow_calls(trace) | _in_slow_operators(trace)
    later = pl.lit(~start_up(trace).holds(idle_blame(trace).stretches) & ~long)
    dispatch = blamed_time(trace, _DISPATCH, later & ~unrecorded_python(pl.col))
    python_ns = {part.device: part.per_step_ns for part in python_time(trace)}
    if all(part.per_step_ns <= python_ns[part.device] for part in dispatch):
        return dispatch
    launching = {part.device: part for part in blamed_time(trace, LAUNCHING_CAUSES, later)}
    return tuple(launching[part.device] if part.per_step_ns > python_ns[part.device] else part for part in dispatch)


@remembered
def _slow_rows(trace: Trace) -> BoolArray:
    """Which operators take far longer than dispatch for each of their launches, those of their parts included."""
    ops = trace.get(HOST_OPS)
    if not ops.height:
        return np.zeros(0, np.bool_)
    low, high = calls_inside(trace)
    launched = np.append(0, np.cumsum(matches(trace.get(API_CALLS)["name"], LAUNCH).to_numpy()))
    count = np.where(low >= 0, launched[np.maximum(high, 0)] - launched[np.maximum(low, 0)], 0)
    length_ns = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    return np.asarray(length_ns >= assumed.SLOW_OPERATOR_US.ns * np.maximum(count, 1), np.bool_)


def _of_rows(rows: pl.Series, chosen: BoolArray) -> pl.Series:
    """Whether each row is there and is one of the chosen."""
    at = rows.fill_null(-1).to_numpy()
    return pl.Series(np.append(chosen, False)[at], dtype=pl.Boolean)
