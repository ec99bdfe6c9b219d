"""Free memory lies in pieces inside segments that are in use.

## What it detects
Reserved memory that no tensor uses and that cannot be given back, because it lies inside segments with tensors in
them.

## Why it matters
An allocation needs one piece. "CUDA out of memory" with gigabytes reserved but unallocated is this: the sum would do,
no piece does.

## How it is measured
Free blocks of segments with at least one block in use, over all reserved memory, when the snapshot was taken.

## What to do
Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; keep sizes constant (padding to a few lengths); allocate what
lasts before what comes and goes.

## When it misleads
Between two steps, free pieces are what the next step will use again: take the snapshot at the peak or on out-of-
memory.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.measures.memory.allocator import AllocatorView, allocator_views
from timesink.measures.timeline.device_timeline import Device
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_SEGMENTS
from timesink.model.trace import Trace
from timesink.rules.memory._family import CAPTURE, size_evidence
from timesink.units import bytes_text, share_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    limit = limits["reserved_ratio"]
    return found_or_clear([_judge(device, view, limit) for device, view in allocator_views(trace).items()])


def _judge(device: Device, view: AllocatorView, limit: float) -> Finding | Evidence:
    share = view.split_free_bytes / view.reserved_bytes if view.reserved_bytes else 0.0
    evidence = Evidence(
        "free inside used segments",
        Quantity(share, "ratio"),
        "free blocks of segments in use over reserved memory, when the snapshot was taken",
        Quantity(limit, "ratio"),
        MEMORY_BLOCKS.name,
    )
    if not evidence.is_over:
        return evidence
    return Finding(
        message=f"{bytes_text(view.split_free_bytes)} of {bytes_text(view.reserved_bytes)} reserved on device "
        f"{device[1]} is free inside segments in use ({share_text(share)}); the largest piece "
        f"has {bytes_text(view.largest_free_bytes)}",
        bottleneck=Bottleneck.ALLOCATOR,
        where=Where(rank=device[0], device=device[1]),
        evidence=(
            evidence,
            size_evidence("largest free piece", view.largest_free_bytes, "largest free block of any segment"),
            size_evidence(
                "free segments", view.cached_bytes, "segments without a tensor, which empty_cache gives back"
            ),
        ),
        advice="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or keep the sizes of tensors constant.",
        verify="Take the snapshot again: free bytes inside used segments fall below the limit.",
    )


RULE = Rule(
    "MEM101",
    check,
    needs=(MEMORY_SEGMENTS, MEMORY_BLOCKS),
    reads=(MEMORY_EVENTS,),
    limits={
        "reserved_ratio": Limit.ratio(
            0.2,
            "a fifth of reserved memory is more than a batch of another size explains",
            "a public snapshot of a training run has 3 % (docs/explanation/memory-accuracy.md)",
        )
    },
    references=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
    ),
    capture=CAPTURE,
)
