"""A kernel keeps in memory what should be in registers.

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

from timesink.diagnosis.rule import Facts, Limits, Rule
from timesink.diagnosis.verdicts import Card, Limit, Verdict
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.model.tables import KERNEL_METRICS, KERNEL_PROFILES
from timesink.rules.ncu._family import CAPTURE, READS, Words, fact, judged


def check(facts: Facts, limits: Limits) -> Verdict:
    """Found per kernel that this limits, or takes a share of above the limit."""
    return judged(facts, Cause.REGISTER_SPILLS, words, limits["time_ratio"])


def words(limits: KernelLimits) -> Words:
    """What there is to say of a kernel that this limits."""
    registers = limits.kernel.get("launch__registers_per_thread")
    facts = [
        fact("local instructions", limits.waste.local_instructions, "ratio", "of the instructions executed", limits)
    ]
    if registers is not None:
        facts.append(fact("registers per thread", registers, "registers", "as launched", limits))
    return Words(
        "on local memory",
        tuple(facts),
        "Allow more registers (launch bounds, -maxrregcount), keep fewer values alive, unroll loops over small arrays "
        "so that their indices are constants, or move the array to shared memory.",
    )


RULE = Rule(
    card=Card(
        code="NCU103",
        name="register-spills",
        summary="a kernel keeps values in local memory instead of registers",
        doc=__doc__ or "",
        since="0.1.0",
        references=("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#local-memory",),
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
