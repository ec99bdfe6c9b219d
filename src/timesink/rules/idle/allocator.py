"""The device waits for memory to be allocated or released.

## What it detects
Idle time of a device during `cudaMalloc`, `cudaFree`, `cudaHostAlloc` and their kin within the steady steps.

## Why it matters
PyTorch's allocator keeps memory so that a steady step makes none of these calls. They take tens of microseconds to
milliseconds, and several of them wait for the whole device.

## How it is measured
Idle stretches inside such a call on the launching thread, and those behind a call that drained the device by freeing
memory, over the steady steps.

## What to do
Remove `torch.cuda.empty_cache()` from the step; keep workspaces; set `expandable_segments:True` where sizes vary;
lower the batch where the allocator frees and retries because memory is full.

## When it misleads
The first steps of any program allocate. A step in which sizes grow for the last time allocates once, and not again.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.idle.blamed_time import drained_time
from timesink.rules.idle._family import IdlePattern, pattern_rule

PATTERN = IdlePattern(
    time=lambda trace: drained_time(trace, "allocator", "allocator"),
    bottleneck=Bottleneck.ALLOCATOR,
    label="idle time in allocator calls",
    how="idle stretches inside or behind a call that allocates or frees device or pinned memory, over the steady steps",
    subject="memory to be allocated or released",
    advice="Keep memory across steps: no empty_cache in the loop, workspaces allocated once, expandable segments for "
    "sizes that vary.",
    verify="Capture again: the steady steps make no cudaMalloc and no cudaFree.",
)

RULE = pattern_rule(
    "IDL106",
    __name__,
    PATTERN,
    Limit.ratio(
        0.02,
        "a steady step of a caching allocator makes no such call",
        "benchmarks/faults: healthy programs make none",
    ),
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
)
