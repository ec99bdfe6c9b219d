"""Lanes of a warp reach for scattered words.

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

from timesink.diagnosis.rule import Facts, Limits, Rule
from timesink.diagnosis.verdicts import Card, Limit, Verdict
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.rules.ncu._family import CAPTURE, READS, Words, fact, judged


def check(facts: Facts, limits: Limits) -> Verdict:
    """Found per kernel that this limits, or takes a share of above the limit."""
    return judged(facts, Cause.UNCOALESCED, words, limits["time_ratio"])


def words(limits: KernelLimits) -> Words:
    """What there is to say of a kernel that this limits."""
    access = limits.waste.access
    facts = []
    if access.excess_ratio is not None and access.sectors is not None:
        how = f"{access.sectors:.0f} sectors touched by global loads and stores"
        facts.append(fact("sectors beyond the ideal", access.excess_ratio, "ratio", how, limits))
    elif access.wavefronts_per_request is not None:
        how = "utilisation of the L1 data pipe over that of its requests"
        facts.append(fact("L1 passes per request", access.wavefronts_per_request, "passes", how, limits))
    return Words(
        "on sectors that coalesced accesses would not touch",
        tuple(facts),
        "Let neighbouring threads touch neighbouring addresses: swap the roles of the indices, stage through shared "
        "memory, store the field as an array of its own, or sort the indices first.",
    )


RULE = Rule(
    card=Card(
        code="NCU101",
        name="uncoalesced",
        summary="a kernel's warps touch more memory sectors than their bytes need",
        doc=__doc__ or "",
        since="0.1.0",
        references=("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#coalesced-access-to-global-memory",),
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
