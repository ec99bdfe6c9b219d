"""The caching allocator takes or gives back segments in every step.

## What it detects
Segments allocated and released after the second step, per step.

## Why it matters
Taking a segment is a `cudaMalloc`, giving one back a `cudaFree`, which waits for the whole device. An allocator that
releases cached segments to find room (a retry) does both, at the edge of running out of memory.

## How it is measured
`segment_alloc`, `segment_map`, `segment_free` and `segment_unmap` events from the third step on, over those steps.

## What to do
Remove `torch.cuda.empty_cache()` from the loop; keep sizes constant; free memory, so that nothing has to be given
back.

## When it misleads
The first steps warm up: a record of three steps can show what the tenth no longer does.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.memory.allocator import allocator_views
from timesink.measures.memory.ledger import MemorySteps, memory_steps
from timesink.measures.timeline.device_timeline import Device
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS, MEMORY_SEGMENTS
from timesink.model.trace import Trace
from timesink.rules.memory._family import CAPTURE
from timesink.units import bytes_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    judged = (
        _judge(trace, device, counts, limits["calls_per_step"])
        for device, counts in memory_steps(trace).items()
        if counts.steps >= assumed.REPEATS.whole
    )
    return applicable(judged, "the record holds fewer than three training steps")


def _judge(trace: Trace, device: Device, counts: MemorySteps, limit: float) -> Finding | Evidence:
    evidence = Evidence(
        "segments taken and given back per step",
        Quantity(counts.driver_calls_per_step, "calls"),
        f"{counts.driver_calls} events in {counts.steps - 2} steps after the second",
        Quantity(limit, "calls"),
        MEMORY_EVENTS.name,
    )
    if not evidence.is_over:
        return evidence
    allocator = allocator_views(trace).get(device)
    retries = Quantity(allocator.retries if allocator else 0, "calls")
    return Finding(
        message=f"device {device[1]}'s allocator takes and gives back {counts.driver_calls_per_step:.3g} segments a "
        f"step, {bytes_text(counts.driver_bytes)} over {counts.steps - 2} steps",
        bottleneck=Bottleneck.ALLOCATOR,
        where=Where(rank=device[0], device=device[1]),
        evidence=(evidence, Evidence("releases to make room", retries, "releases before a new segment or oom")),
        advice="Remove empty_cache from the loop, keep sizes constant, and leave the allocator room.",
        verify="Take the snapshot again: steps after the second take and give back no segment.",
    )


RULE = Rule(
    "MEM102",
    check,
    needs=(MEMORY_EVENTS,),
    reads=(MEMORY_SEGMENTS, MEMORY_BLOCKS, MEMORY_MARKS),
    limits={
        "calls_per_step": Limit(
            2,
            "calls",
            "a warm cache serves a steady step without the driver; a late segment or two still happens",
            "measured programs make none after their second step (docs/explanation/memory-accuracy.md)",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",),
    capture=CAPTURE,
)
