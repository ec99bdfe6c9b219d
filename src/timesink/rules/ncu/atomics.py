"""Atomic updates queue for the same words.

## What it detects
Kernels that wait for atomic operations, in L2 (global memory) or in shared memory.

## Why it matters
Updates of one word happen one after another, in the one L2 slice (or shared-memory bank) that holds it. The other
slices and the SMs wait; a counter that every thread increments makes a parallel kernel serial.

## How it is measured
Global: atomic and reduction sectors as a share of L2 sectors; where one slice is far busier than the mean and atomics
make up most requests, that slice is the kernel's busiest unit. Shared: conflicting passes of shared atomics as a share
of the data pipe. Of the waiting time, the part that warps wait on memory counts in proportion to the atomic requests.

## What to do
Combine before updating: within the warp (shuffles, `__reduce_add_sync`), within the block (shared memory), then one
atomic per block. Give every warp or lane its own copy of a small histogram and add the copies at the end.

## When it misleads
Spread over many words, atomics run at the rate of ordinary stores. Floating-point sums change their order, hence their
last digits, when combined differently.
"""

from __future__ import annotations

from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import WASTE_RATIO, Explanation, cause_rule, counted


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    shared = limits.waste.access.shared_atomic_share or None
    return Explanation(
        "on atomic updates",
        counted(
            limits,
            ("atomic requests", limits.waste.atomic_requests, "ratio", "of global memory requests"),
            (
                "shared atomics",
                shared,
                "ratio",
                "of shared-memory instructions",
            ),
        ),
        "Combine before updating: within the warp by shuffles, within the block in shared memory, then one atomic per "
        "block; give each warp or lane its own copy of a small histogram.",
    )


RULE = cause_rule(
    "NCU105",
    Cause.ATOMICS,
    explain,
    ("https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#memory-tables",),
    {"time_ratio": WASTE_RATIO},
)
