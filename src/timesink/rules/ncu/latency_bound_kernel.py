"""Warps are resident and wait while no unit is full.

## What it detects
Kernels with warps resident whose busiest unit still waits: for barriers, fences, instructions, or for one dependent
step after another.

## Why it matters
Neither bandwidth nor arithmetic limits such a kernel, so neither fewer bytes nor faster mathematics helps; only shorter
or fewer waits, or more independent work per warp.

## How it is measured
The time in which even the busiest unit waits, less what SMs without blocks, empty warp slots and waste (scattered
loads, conflicts, atomics, spills, idle lanes) explain. Empty warp slots explain no wait for asynchronous copies: stages
hide it. Where warps wait for barriers most, what they execute with every lane off is latency too. The stall reasons
come from counters, else from samples.

Two figures bound the gain. With the waits hidden, what the kernel does stays, and the busiest unit is the limit. Where
warps wait for loads or barriers most, a fix may also wait for fewer: loads then take along their way through the
caches, barriers what guards them and what is handed over between them in shared memory.

## What to do
By the largest reason: barrier: smaller blocks, balanced warps, warp-level primitives; membar: fewer fences;
no_instruction: less unrolling; long_scoreboard: more loads in flight; wait: independent instructions.

## When it misleads
Kernels of a few microseconds are mostly launch and ramp. The reasons are shares of warps' waiting, not of the kernel's
time: with many warps a reason can be large and harmless.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import Explanation, busiest_unit, cause_rule, counted, operands_advice
from timesink.rules.ncu._tiny import ALONE_US, FUSE, is_tiny

_ADVICE = {
    "barrier": "Synchronise less: balance the warps of a block, use smaller blocks, warp-level reductions, or barriers "
    "that split arrive from wait.",
    "membar": "Drop or weaken the fences: one at the end of a phase instead of one per store.",
    "no_instruction": "Unroll less and keep cold paths out of line: the code does not fit the instruction caches.",
    "no_instructions": "Unroll less and keep cold paths out of line: the code does not fit the instruction caches.",
    "long_scoreboard": "More loads in flight per warp: unroll, load ahead, copy asynchronously; reuse what was read.",
    "short_scoreboard": "Fewer and wider shared-memory accesses, fast-math versions of special functions.",
    "wait": "Give each warp independent work: several accumulators, unrolled loops.",
    "lg_throttle": "Fewer and wider global accesses; remove spills.",
    "mio_throttle": "Fewer and wider shared accesses; keep values in registers.",
    "imc_miss": "Read constants by an index that is the same for the whole warp, or from global memory.",
    "warpgroup_arrive": "Keep more asynchronous matrix groups in flight before waiting for one.",
    "gmma": "Keep more asynchronous matrix groups in flight before waiting for one.",
}
_STAGES = "More stages: ask for several asynchronous copies before the first is waited for."
_OTHERWISE = "Look at the instruction the warps stop at: the source page of the profile shows the samples per line."


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    counters = [busiest_unit(limits)]
    top = limits.stalls.top if limits.stalls is not None else None
    if limits.stalls is not None and top is not None:
        source = "samples" if limits.stalls.is_sampled else "counters"
        counters.append((f"waiting on {top[0]}", top[1], "ratio", f"of warps' waiting time, by {source}"))
    reason = f", mostly on {top[0]}" if top is not None else ""
    empty = limits.waste.of(Cause.LATENCY, limits.top.resource)
    if empty:
        how = f"of what {limits.top.name} does: warps without work run along to the next barrier"
        counters.append(("instructions with every lane off", empty, "ratio", how))
    return Explanation(
        f"in latency {'at barriers or running along to them' if empty else 'while no unit is full'}{reason}",
        counted(limits, *counters),
        _advice(limits, None if top is None else top[0]),
    )


def _advice(limits: KernelLimits, reason: str | None) -> str:
    if is_tiny(limits):
        return FUSE
    if limits.waste.copies_ahead and reason == "long_scoreboard":
        return operands_advice(limits) or _STAGES
    return operands_advice(limits) or _ADVICE.get(reason or "", _OTHERWISE)


RULE = cause_rule(
    "NCU107",
    Cause.LATENCY,
    explain,
    ("https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#statistical-sampler",),
    {
        "alone_us": ALONE_US,
        "time_ratio": Limit.ratio(
            0.3,
            "a third of the time without any unit at work is more than ramp-up and the last blocks explain",
            "18 PyTorch kernels on H200: tuned ones spend 0.01-0.27 of their time so",
        ),
    },
)
