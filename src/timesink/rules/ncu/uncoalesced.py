"""A kernel's warps touch more memory sectors than their bytes need.

## What it detects
Global loads and stores whose warps touch more 32-byte sectors than their bytes need, and that thereby cost the kernel a
share of its time.

## Why it matters
Memory moves whole sectors. A warp that reads 32 neighbouring floats moves 4 sectors; one that reads every eighth float
moves 32, and L1, L2 and DRAM carry eight times the bytes.

## How it is measured
Sectors touched against the sectors an ideal access would touch (per instruction, summed). At L2 and DRAM only what
those levels really carried counts: excess that a cache absorbs costs them nothing. The share of the busiest unit's
time is split accordingly; of the waiting time, the part that warps wait on loads counts in proportion. Without sector
counts (a basic set), passes through the L1 data pipe per request stand in, for kernels that use no shared memory.

## What to do
Let neighbouring threads touch neighbouring addresses: swap the roles of the indices, transpose through shared memory,
store structures of arrays, sort indices before a gather, load 16 bytes per lane.

## When it misleads
A gather or scatter may be the algorithm. The ideal assumes that every lane's bytes can lie side by side.
"""

from __future__ import annotations

from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import WASTE_RATIO, Explanation, cause_rule, counted


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    access = limits.waste.access
    if access.excess_ratio is not None and access.sectors is not None:
        how = f"{access.sectors:.0f} sectors touched by global loads and stores"
        evidence = counted(limits, ("sectors beyond the ideal", access.excess_ratio, "ratio", how))
    else:
        how = "utilisation of the L1 data pipe over that of its requests"
        evidence = counted(limits, ("L1 passes per request", access.wavefronts_per_request, "passes", how))
    return Explanation(
        "on sectors that coalesced accesses would not touch",
        evidence,
        "Let neighbouring threads touch neighbouring addresses: swap the roles of the indices, stage through shared "
        "memory, store the field as an array of its own, or sort the indices first.",
    )


RULE = cause_rule(
    "NCU101",
    Cause.UNCOALESCED,
    explain,
    ("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#coalesced-access-to-global-memory",),
    {"time_ratio": WASTE_RATIO},
)
