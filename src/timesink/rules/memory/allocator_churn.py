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

from timesink.diagnosis.rule import Limits, Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Clear,
    Evidence,
    Finding,
    Found,
    Limit,
    NotApplicable,
    Quantity,
    Verdict,
    Where,
)
from timesink.measures.memory.allocator import allocator_views
from timesink.measures.memory.ledger import memory_steps
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS, MEMORY_SEGMENTS
from timesink.model.trace import Trace
from timesink.rules.memory._family import CAPTURE
from timesink.units import bytes_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    limit, findings, clear = limits["calls_per_step"], [], []
    for (rank, device), one in memory_steps(trace).items():
        if one.steps < 3:
            continue
        fact = Evidence(
            "segments taken and given back per step",
            Quantity(one.driver_calls_per_step, "calls"),
            f"{one.driver_calls} events in {one.steps - 2} steps after the second",
            Quantity(limit, "calls"),
            MEMORY_EVENTS.name,
        )
        if one.driver_calls_per_step <= limit:
            clear.append(fact)
            continue
        view = allocator_views(trace).get((rank, device))
        retries = Evidence(
            "releases to make room",
            Quantity(view.retries if view else 0, "calls"),
            "releases before a new segment or oom",
        )
        findings.append(
            Finding(
                message=f"device {device}'s allocator takes and gives back {one.driver_calls_per_step:.3g} segments a "
                f"step, {bytes_text(one.driver_bytes)} over {one.steps - 2} steps (limit {limit:g} per step)",
                bottleneck=Bottleneck.ALLOCATOR,
                where=Where(rank=rank, device=device),
                evidence=(fact, retries),
                advice="Remove empty_cache from the loop, keep sizes constant, and leave the allocator room.",
                verify="Take the snapshot again: steps after the second take and give back no segment.",
            )
        )
    if findings:
        return Found(tuple(findings))
    return Clear(tuple(clear)) if clear else NotApplicable("the record holds fewer than three training steps")


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
