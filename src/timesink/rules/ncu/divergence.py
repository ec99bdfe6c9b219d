"""Instructions run for a part of the warp's lanes.

## What it detects
Kernels whose instructions have fewer than 32 active lanes, where instruction issue or an arithmetic pipe sets the pace.

## Why it matters
An instruction occupies its pipe for the whole warp, however many lanes take part. Lanes that took another branch, left
the loop early or never had work are time paid for nothing.

## How it is measured
Active lanes per executed instruction, mean over the kernel. Where issue slots or an arithmetic pipe are the busiest
unit, idle lanes are that share of its busy time; of the waiting time they count in the same proportion. Where
predicates switch off more than half of the active lanes, those count as idle too.

## What to do
Sort or bucket the work so that the lanes of a warp take the same branch and loop equally often; give a long item to a
whole warp; replace short branches by selection; let all lanes work on one element of the row each.

## When it misleads
Lanes are also idle in the last, partly filled warp of a block: a block size that is no multiple of 32 shows here.
"""

from __future__ import annotations

from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import WASTE_RATIO, Explanation, cause_rule, counted


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    lanes = limits.waste.active_lanes or 0.0
    how = "threads executed (not switched off, where most are) over warp instructions; a warp has 32"
    return Explanation(
        "on lanes that are idle while their warp executes",
        counted(limits, ("active lanes", lanes, "lanes", how)),
        "Deal the work so that the lanes of a warp take the same branch and loop equally often: sort or bucket it, or "
        "spread one item over the lanes of a warp.",
    )


RULE = cause_rule(
    "NCU104",
    Cause.DIVERGENCE,
    explain,
    ("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#branching-and-divergence",),
    {"time_ratio": WASTE_RATIO},
)
