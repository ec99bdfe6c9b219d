"""The device waits while Python collects garbage.

## What it detects
Idle time of a device during a collection of Python's cyclic garbage collector on the launching thread.

## Why it matters
A collection stops all Python threads. It strikes at irregular steps, and on other steps in other ranks, so that with
many ranks some rank is late at every step.

## How it is measured
Idle stretches inside an event that names the collector ("Python GC" of the profiler, `gc.collect`), over the steady
steps.

## What to do
`gc.freeze()` after start-up, `gc.disable()` with `gc.collect()` every few hundred steps on all ranks at once, and
fewer long-lived containers.

## When it misleads
The profiler records collections only where it is asked to, or where stacks are on; a pause without such an event shows
as Python. One collection in a short capture says little about its rate.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.knowledge.ranges import GARBAGE_COLLECTION
from timesink.measures.idle.blamed_time import blamed_time
from timesink.rules.idle._family import IdlePattern, pattern_rule

PATTERN = IdlePattern(
    time=lambda trace: blamed_time(trace, ("garbage_collection",)),
    bottleneck=Bottleneck.GARBAGE_COLLECTION,
    label="idle time in garbage collection",
    how="idle stretches inside a garbage collection, over the steady steps",
    subject="the garbage collector",
    advice="Freeze the heap after start-up (gc.freeze) and collect every few hundred steps on all ranks at once.",
    whole=GARBAGE_COLLECTION,
    verify="Run with gc.disable(): the step shortens by at most this time.",
)

RULE = pattern_rule(
    "IDL105",
    __name__,
    PATTERN,
    Limit.ratio(0.02, "collections of the youngest generation cost less than 2 % of a step", HEALTHY),
    "https://docs.python.org/3/library/gc.html",
)
