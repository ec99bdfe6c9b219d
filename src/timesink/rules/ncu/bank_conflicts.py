"""Lanes of a warp meet in the same bank of shared memory.

## What it detects
Shared-memory accesses that take more passes through the L1 data pipe than their bytes need.

## Why it matters
Shared memory has 32 banks of 4 bytes. Lanes that want different words of one bank are served one after another: a
column of a tile 32 words wide takes 32 passes instead of one, and the pipe is shared by all warps of the SM.

## How it is measured
Passes (wavefronts) of shared accesses against the passes an access without conflicts needs, as a share of all passes of
the data pipe. Where that pipe is the busiest unit the share is its; of the waiting time, the part that warps wait on
shared memory counts in proportion. Conflicts of shared atomics are told apart: they belong to `atomics`.

## What to do
Pad the tile by one word per row, swizzle its columns (index exclusive-or row), or let lanes read neighbouring words.
With wide loads, 16 bytes per lane need four passes in any case.

## When it misleads
Copies through TMA and matrix loads (ldmatrix) with a hardware swizzle have no conflicts to remove although they take
several passes; their ideal is counted accordingly by profilers of 2024 and later only.
"""

from __future__ import annotations

from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import WASTE_RATIO, Explanation, cause_rule, counted


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    access = limits.waste.access
    actual, ideal = access.shared_wavefronts or 0.0, access.ideal_shared_wavefronts or 0.0
    how = f"{actual:.0f} passes of shared accesses, {ideal:.0f} without conflicts"
    ratio = actual / ideal if ideal else 0.0
    return Explanation(
        "on passes that shared memory repeats because lanes meet in one bank",
        counted(limits, ("passes per pass needed", ratio, "passes", how)),
        "Pad each row of the shared tile by one word, or swizzle the column by the row, so that the lanes of a warp "
        "touch 32 different banks.",
    )


RULE = cause_rule(
    "NCU102",
    Cause.BANK_CONFLICTS,
    explain,
    ("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#shared-memory-and-memory-banks",),
    {"time_ratio": WASTE_RATIO},
)
