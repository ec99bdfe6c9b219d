"""The device waits for Python that launches nothing, or for host code that nothing recorded.

## What it detects
Idle time of a device while the launching thread runs code that is neither a framework operator nor a CUDA call: Python
between operators, logging, a metric computed on the host.

## Why it matters
Python runs one thread at a time and hundreds of times slower than the device; what it computes between launches
lengthens the step by its full time unless the device has work queued.

## How it is measured
Idle stretches in which the launching thread was in a Python frame, in a logging call, or in nothing the profiler
traced, over the steady steps; not after a blocking wait, and not while input is prepared, which other rules name.

## What to do
Move the work out of the step (every k steps, another process), vectorise it with NumPy or put it on the device. A
capture with Python stacks names the line.

## When it misleads
Where nothing shows that the program is Python (a capture of Nsight Systems with neither operators nor kernels of a
Python framework), the code is called untraced, and the gain is a bound. Without stacks, time in which nothing was
traced may be a lock, another thread's Python, or the operating system rather than code of this thread. A profiler with
stacks makes Python itself several times slower.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from timesink.diagnosis.rule import HEALTHY, Limit, Limits
from timesink.diagnosis.verdicts import Bottleneck, Verdict
from timesink.knowledge.kernel_traits import OF_PYTHON
from timesink.knowledge.ranges import OPERATOR
from timesink.measures.idle.blamed_time import python_time
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, FRAMES, HOST_OPS, RANGES, SOURCES
from timesink.model.trace import Trace
from timesink.rules.idle._family import IdlePattern, idle_rule, pattern_verdict

PATTERN = IdlePattern(
    time=python_time,
    bottleneck=Bottleneck.HOST_PYTHON,
    label="idle time in Python",
    how="idle stretches in Python, logging or untraced host time, over the steady steps",
    subject="host code that launches nothing (Python, or code that nothing recorded)",
    advice="Compute it once every so many steps, on the device, or vectorised; a capture with stacks names the line.",
    verify="Skip the work for a few steps: the step shortens by at most this time.",
)


UNTRACED = replace(
    PATTERN,
    bottleneck=Bottleneck.HOST_UNTRACED,
    label="idle time in untraced host code",
    subject="host code that nothing recorded",
    advice="See what the host does: ranges around its parts, nsys with --trace=osrt and CPU samples; then move it "
    "out of the step.",
    replayed=False,
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit. Of a program that nothing shows to be Python the code, and so the gain, is not
    known: at most all of it."""
    return pattern_verdict(PATTERN if _is_python(trace) else UNTRACED, trace, limits["idle_ratio"])


def _is_python(trace: Trace) -> bool:
    """Whether operators, frames, ranges or kernels of Python's frameworks were recorded; of a profiler of theirs only
    what ran on the host counts, which its user may have left out."""
    if trace.get(HOST_OPS).height or trace.get(FRAMES).height:
        return True
    is_nsys = trace.get(SOURCES)["format"].cast(pl.String).str.starts_with("nsys").all()
    return is_nsys and bool(
        matches(trace.get(DEVICE_OPS)["name"], OF_PYTHON).any() or matches(trace.get(RANGES)["name"], OPERATOR).any()
    )


RULE = idle_rule(
    "IDL104",
    check,
    limits={
        "idle_ratio": Limit.ratio(0.03, "a step has some per cent of ordinary Python between its operators", HEALTHY)
    },
    references=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
    symptom=True,
)
