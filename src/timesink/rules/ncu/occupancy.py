"""Too few warps are resident to keep the GPU busy.

## What it detects
Kernels whose busiest unit waits because SMs have no block, or too few warps to cover the latency of those they have.

## Why it matters
An SM hides latency by switching warps. Small grids leave SMs without work; a last wave of few blocks holds the whole
kernel; registers, shared memory or tiny blocks limit the warps an SM can hold.

## How it is measured
Of the time in which even the busiest unit waits: the part in which SMs are without a block, and of the rest the share
of warp slots that are empty, as far as warps wait for something that other warps would hide (loads, fixed latencies;
not barriers, fences, full queues). A kernel at its memory or arithmetic roof waits little: occupancy counts little
there.

## What to do
Small grid: more, smaller blocks, or split the reduction (split-K). Last wave: a block count that fills whole waves, or
persistent blocks. Limited by registers or shared memory: fewer of them per block. Blocks of one warp: larger blocks.

## When it misleads
Kernels built on deep pipelines (wgmma, TMA) run best with few warps: judge them by their tensor pipe. Kernels that wait
and are shorter than the limit `alone_us` are one finding together, whatever they wait for: nothing done to one of them
alone matters. Of kernels under 10 us, the launch itself is part of the time without blocks.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import Explanation, cause_rule, counted, operands_advice
from timesink.rules.ncu._tiny import ALONE_US, FUSE, is_tiny


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    occupancy, kernel = limits.occupancy, limits.kernel
    limited = f"limited by {' and '.join(occupancy.limited_by)}" if occupancy.limited_by else "not limited"
    evidence = counted(
        limits,
        ("blocks in the grid", kernel.blocks, "blocks", "as launched"),
        ("achieved occupancy", occupancy.achieved, "ratio", "while an SM was active"),
        ("theoretical occupancy", occupancy.theoretical, "ratio", limited),
        ("SMs without a block", occupancy.sm_idle, "ratio", "mean over SMs and the kernel"),
        ("waves", occupancy.waves, "waves", "times the grid fills the GPU"),
    )
    return Explanation("waiting with empty warp slots", evidence, _advice(limits))


def _advice(limits: KernelLimits) -> str:
    if is_tiny(limits):
        return FUSE
    occupancy, kernel = limits.occupancy, limits.kernel
    idle, achieved = occupancy.sm_idle or 0.0, occupancy.achieved or 0.0
    sms = f" on {occupancy.sm_count:.0f} SMs" if occupancy.sm_count else ""
    if idle > 1 - achieved or (occupancy.waves or 1.0) < 1:
        return (
            "Launch enough blocks for whole waves (smaller tiles, split-K, persistent blocks with a queue): the grid "
            f"has {kernel.blocks} blocks{sms}."
        )
    if operands := operands_advice(limits):
        return operands
    limited = " and ".join(occupancy.limited_by) or "the blocks that are running"
    return (
        f"Let more warps in: {limited} limits them; or keep more loads in flight per warp (unroll, wider loads, "
        "asynchronous copies)."
    )


RULE = cause_rule(
    "NCU106",
    Cause.OCCUPANCY,
    explain,
    ("https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#occupancy",),
    {
        "alone_us": ALONE_US,
        "time_ratio": Limit.ratio(
            0.3,
            "launch, ramp-up and the last blocks leave a tenth to a quarter of a short kernel's time without work",
            "18 PyTorch kernels on H200: well-tuned ones spend 0.01-0.27 of their time so",
        ),
    },
)
