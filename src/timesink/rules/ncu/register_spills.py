"""A kernel keeps values in local memory instead of registers.

## What it detects
Loads and stores of local memory: spilled registers, and arrays that the compiler could not keep in registers.

## Why it matters
A register costs nothing to read. A spilled one is a load through L1, and for a full SM the spills of all threads
(2048 x 4 bytes each) soon exceed L1 and go to L2 and DRAM.

## How it is measured
Local loads and stores as a share of executed instructions, of passes through the L1 data pipe, and of L2 sectors;
whichever resource is the busiest decides which share counts.

## What to do
Raise or drop the bound in `__launch_bounds__` and `-maxrregcount`; shorten live ranges; process fewer values per
thread; index small arrays by constants (unroll the loop), or put an array that must be indexed by data into shared
memory.

## When it misleads
Local memory is also the stack of functions that are not inlined. With fewer registers more warps fit: where occupancy
hides the latency of the spills, removing them gains less than their share.
"""

from __future__ import annotations

from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import WASTE_RATIO, Explanation, cause_rule, counted


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    registers = limits.kernel.get("launch__registers_per_thread")
    return Explanation(
        "on local memory",
        counted(
            limits,
            ("local instructions", limits.waste.local_instructions, "ratio", "of the instructions executed"),
            ("registers per thread", registers, "registers", "as launched"),
        ),
        "Allow more registers (launch bounds, -maxrregcount), keep fewer values alive, unroll loops over small arrays "
        "so that their indices are constants, or move the array to shared memory.",
    )


RULE = cause_rule(
    "NCU103",
    Cause.REGISTER_SPILLS,
    explain,
    ("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#local-memory",),
    {"time_ratio": WASTE_RATIO},
)
