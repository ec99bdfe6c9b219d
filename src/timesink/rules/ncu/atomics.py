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

from timesink.diagnosis.rule import Facts, Limits, Rule
from timesink.diagnosis.verdicts import Card, Limit, Verdict
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.rules.ncu._family import CAPTURE, READS, Words, fact, judged


def check(facts: Facts, limits: Limits) -> Verdict:
    """Found per kernel that this limits, or takes a share of above the limit."""
    return judged(facts, Cause.ATOMICS, words, limits["time_ratio"])


def words(limits: KernelLimits) -> Words:
    """What there is to say of a kernel that this limits."""
    access = limits.waste.access
    facts = [fact("atomic requests", limits.waste.atomic_requests, "ratio", "of global memory requests", limits)]
    if access.shared_atomic_share:
        how = "of shared-memory instructions"
        facts.append(fact("shared atomics", access.shared_atomic_share, "ratio", how, limits))
    return Words(
        "on atomic updates",
        tuple(facts),
        "Combine before updating: within the warp by shuffles, within the block in shared memory, then one atomic per "
        "block; give each warp or lane its own copy of a small histogram.",
    )


RULE = Rule(
    card=Card(
        code="NCU105",
        name="atomics",
        summary="atomic updates queue for the same words",
        doc=__doc__ or "",
        since="0.1.0",
        references=("https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#memory-tables",),
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
