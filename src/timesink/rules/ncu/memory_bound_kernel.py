"""A kernel spends its time moving bytes it needs.

## What it detects
Kernels whose busiest unit is a memory level at work on accesses without known waste, and kernels left of the roofline's
ridge whose issue slots are the busiest unit. Kernels, too, whose loads queue for memory though no unit is busy.

## Why it matters
Arithmetic is free there: faster mathematics, tensor cores or more warps change nothing. Only fewer bytes through that
level do.

## How it is measured
Utilisation of the leaves of the profiler's throughput breakdown (not of its compute and memory summaries, which
overlap) and the roofline: bytes at each level over its peak, operations over theirs. What waste of known causes takes
is taken off first. Loads queue where a warp waits half as long again for one as an idle memory would let it, given the
hit rates (waiting cycles over loads); what is beyond that is work of the memory, as when many SMs ask for few lines.

## What to do
DRAM: fuse neighbouring element-wise kernels, store narrower types, read each byte once, keep the working set in L2.
L2: larger tiles, reuse through shared memory. L1 and shared memory: reuse in registers, wider loads (16 bytes per
lane), matrix loads. At the roof, a kernel is done: change the algorithm or the data.

## When it misleads
The bound assumes that none of the bytes were needed; the compulsory ones were. A kernel whose data fits L2 looks better
in a loop than in its program: the profiler flushes caches between passes unless told not to.
"""

from __future__ import annotations

from timesink.measures.counters.bounds import is_fp32_product
from timesink.measures.counters.counters import Resource
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import ALLOW_TF32, Explanation, busiest_unit, cause_rule, counted, operands_advice
from timesink.units import share_text

_LEVELS = {
    Resource.DRAM: "DRAM",
    Resource.L2: "the L2 cache",
    Resource.L1: "L1, shared memory or load-store",
    Resource.HIDDEN: "a memory unit the report does not name",
}
_REUSE = "Reuse through shared memory and registers: larger tiles, fewer passes over the same data."


def explain(limits: KernelLimits) -> Explanation:
    """What this cause means for one launch."""
    level, queue = _LEVELS.get(limits.top.resource, "memory, through its issue slots"), limits.queued_loads
    counters = [busiest_unit(limits)]
    if limits.roofline is not None and limits.roofline.nearest is not None:
        name, share = limits.roofline.nearest
        counters.append((f"nearest roof: {name}", share, "ratio", "of that roof, at the profiled clock"))
        counters += [
            (f"{roof.level} bytes", roof.bytes, "bytes", f"{share_text(roof.share)} of that level's peak")
            for roof in limits.roofline.memory
            if roof.bytes is not None
        ]
    if queue is not None:
        how = f"cycles of a warp, by stalls and loads; {queue.idle:.0f} in an idle memory"
        evidence = counted(limits, *counters, ("wait for a load", queue.waited, "cycles", how))
        return Explanation("in loads that queue for memory", evidence, _REUSE)
    return Explanation(f"moving bytes through {level}", counted(limits, *counters), _advice(limits))


def _advice(limits: KernelLimits) -> str:
    if limits.top.resource is Resource.L1 and is_fp32_product(limits.kernel):
        return ALLOW_TF32
    match limits.top.resource:
        case Resource.L1:
            return "Reuse in registers: larger tiles per thread, 16-byte loads per lane, matrix loads for tensor cores."
        case Resource.L2:
            return " ".join(filter(None, (_REUSE, operands_advice(limits))))
        case Resource.DRAM | Resource.HIDDEN:
            return "Move fewer bytes: fuse with the neighbouring kernels, store narrower types, read each byte once."
        case _:
            return (
                "Fewer instructions per byte, then fewer bytes: 16-byte loads per lane, packed arithmetic, fusion with "
                "the neighbouring kernels."
            )


RULE = cause_rule(
    "NCU108",
    Cause.MEMORY,
    explain,
    ("https://crd.lbl.gov/divisions/amcr/computer-science-amcr/par/research/roofline/",),
)
