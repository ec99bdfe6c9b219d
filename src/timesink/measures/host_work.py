"""Idle time in which the host worked towards the next launch, and idle time in which it did something else.

Time between operators and calls in which nothing was traced is both: framework dispatch (module calls, wrappers, and
all of it where no operators were recorded) takes microseconds at a time, so short stretches count as dispatch and long
ones as Python.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from timesink.measures.blamed_time import BlamedTime, blamed_time
from timesink.model.trace import Trace
from timesink.units import NS_PER_US

# An eager operator costs the host 5 to 20 us (science 2.3); three of them in a row make no more than this.
DISPATCH_MOST_NS: Final = 60 * NS_PER_US

_DISPATCH: Final = ("dispatch", "cuda_call", "launch_latency", "untraced")
_PYTHON: Final = ("python", "untraced", "logging", "checkpoint")
_WHOLE: Final = (*_DISPATCH, "python", "optimizer")


def launching_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in framework dispatch, CUDA calls and launch latency, outside input and waits.

    Where that is more than what Python takes, it is the launching of the whole step that the device waits for, its
    Python and its optimizer included: a CUDA graph takes the place of all three.
    """
    dispatch = blamed_time(trace, _DISPATCH, preparing=False, wanted=~_untraced_python())
    python = {part.device: part.per_step_ns for part in python_time(trace)}
    whole = {part.device: part for part in blamed_time(trace, _WHOLE, preparing=False)}
    return tuple(whole[part.device] if part.per_step_ns > python[part.device] else part for part in dispatch)


def python_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in Python and other host work that launches nothing, outside input and waits."""
    known = pl.col("cause") != "untraced"
    return blamed_time(trace, _PYTHON, preparing=False, wanted=known | _untraced_python())


def _untraced_python() -> pl.Expr:
    """Whether an untraced stretch is Python rather than dispatch."""
    return (pl.col("cause") == "untraced") & (pl.col("end_ns") - pl.col("start_ns") >= DISPATCH_MOST_NS)
