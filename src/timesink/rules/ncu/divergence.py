"""Instructions run for a part of the warp.

## What it detects
Kernels whose instructions have fewer than 32 active lanes, where instruction issue or an arithmetic pipe sets the pace.

## Why it matters
An instruction occupies its pipe for the whole warp, however many lanes take part. Lanes that took another branch, left
the loop early or never had work are time paid for nothing.

## How it is measured
Active lanes per executed instruction, mean over the kernel. Where issue slots or an arithmetic pipe are the busiest
unit, idle lanes are that share of its busy time; of the waiting time they count in the same proportion.

## What to do
Sort or bucket the work so that the lanes of a warp take the same branch and loop equally often; give a long item to a
whole warp; replace short branches by selection; let all lanes work on one element of the row each.

## When it misleads
Lanes are also idle in the last, partly filled warp of a block: a block size that is no multiple of 32 shows here. Lanes
that are predicated off count as active.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Facts, Limits, Rule
from timesink.diagnosis.verdicts import Card, Limit, Verdict
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.rules.ncu._family import CAPTURE, READS, Words, fact, judged


def check(facts: Facts, limits: Limits) -> Verdict:
    """Found per kernel that this limits, or takes a share of above the limit."""
    return judged(facts, Cause.DIVERGENCE, words, limits["time_ratio"])


def words(limits: KernelLimits) -> Words:
    """What there is to say of a kernel that this limits."""
    lanes = limits.waste.active_lanes or 0.0
    how = "threads executed over warp instructions executed; a warp has 32"
    return Words(
        "on lanes that are idle while their warp executes",
        (fact("active lanes", lanes, "lanes", how, limits),),
        "Deal the work so that the lanes of a warp take the same branch and loop equally often: sort or bucket it, or "
        "spread one item over the lanes of a warp.",
    )


RULE = Rule(
    card=Card(
        code="NCU104",
        name="divergence",
        summary="instructions run for a part of the warp's lanes",
        doc=__doc__ or "",
        since="0.1.0",
        references=("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#branching-and-divergence",),
    ),
    needs=(KERNEL_PROFILES, KERNEL_METRICS),
    reads=READS,
    check=check,
    limits={
        "time_ratio": Limit(
            default=0.2,
            unit="ratio",
            why="below a fifth of the kernel's time another cause is larger or the kernel is near its roof",
            source="34 kernels of known limiter (benchmarks/kernels)",
        )
    },
    capture=CAPTURE,
)
