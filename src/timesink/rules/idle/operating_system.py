"""The device waits while the host reads, writes, sleeps or waits in the operating system.

## What it detects
Idle time of a device while the launching thread is in a call into the operating system that is no part of a CUDA call
or of an operator (write, read, open, poll, fsync, sleep, a wait for another thread), or between two calls that move
data, less than 2 ms apart, with nothing launched between them.

## Why it matters
The step is longer by all of it: nothing is launched meanwhile, and a disk or a socket may take thousands of times
longer than the data takes to make.

## How it is measured
Calls into the operating system that the profiler recorded (`nsys --trace=osrt`), over the steady steps; not while input
is prepared, which another rule names. Time between two calls that read or write counts as theirs: there the program
formats or serialises what they move.

## What to do
Write from another thread or process, or every so many steps; write binary instead of text, and many values at once.

## When it misleads
nsys records calls longer than a microsecond only. What is between two writes may be other Python that launches nothing.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.idle.blamed_time import system_time
from timesink.model.tables import API_CALLS, DEVICE_OPS, OS_CALLS
from timesink.rules.idle._family import IdlePattern, pattern_rule

PATTERN = IdlePattern(
    time=system_time,
    bottleneck=Bottleneck.OPERATING_SYSTEM,
    label="idle time in the operating system",
    how="idle stretches in calls into the operating system, or between two that move data, over the steady steps",
    subject="the host's calls into the operating system and what it prepares between them",
    advice="Write from another thread or process, or every so many steps; binary instead of text, many values at once.",
    verify="Leave the writing or reading out for a few steps: the step shortens by at most this time.",
)

RULE = pattern_rule(
    "IDL108",
    __name__,
    PATTERN,
    Limit.ratio(0.03, "a step may log a line, and poll for what is ready", HEALTHY),
    "https://docs.nvidia.com/nsight-systems/UserGuide/index.html#os-runtime-libraries-trace",
    needs=(DEVICE_OPS, API_CALLS, OS_CALLS),
)
