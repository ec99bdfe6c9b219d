"""Every step leaves memory behind that the next one does not free.

## What it detects
A level of live memory between steps that rises from step to step, from the second step on.

## Why it matters
A loss kept with its graph, outputs appended to a list, a cache without bound: the run ends out of memory after hours,
and the place that then fails to allocate is innocent.

## How it is measured
Bytes alive just before each step's first allocation, from the third step's on. The smallest rise between neighbours
is what every step leaves at least; one fall, and nothing is claimed.

## What to do
Keep numbers, not tensors with graphs: `loss.item()` or `loss.detach()`; bound caches; look at the place named.

## When it misleads
A cache that fills up during a few steps and then stays looks the same until it is full: record more steps.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, applicable
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.memory.ledger import MemorySteps, memory_steps
from timesink.measures.timeline.device_timeline import Device
from timesink.model.tables import MEMORY_EVENTS
from timesink.model.trace import Trace
from timesink.rules.memory._family import memory_rule, size_evidence
from timesink.units import bytes_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    judged = (
        _judge(device, counts, limits["bytes_per_step"])
        for device, counts in memory_steps(trace).items()
        if len(counts.levels_bytes) >= assumed.REPEATS.whole
    )
    return applicable(judged, "the record holds fewer than five training steps")


def _judge(device: Device, counts: MemorySteps, limit: float) -> Finding | Evidence:
    evidence = Evidence(
        "left behind by every step",
        Quantity(counts.growth_bytes, "bytes"),
        f"smallest rise of the level between {len(counts.levels_bytes)} neighbouring steps",
        Quantity(limit, "bytes"),
        MEMORY_EVENTS.name,
    )
    if not evidence.is_over:
        return evidence
    place = f", most of it allocated at {counts.leaver}" if counts.leaver else ""
    return Finding(
        message=f"every step leaves at least {bytes_text(counts.growth_bytes)} behind on device {device[1]}, "
        f"{len(counts.levels_bytes) - 1} times in a row{place}",
        bottleneck=Bottleneck.MEMORY_CAPACITY,
        where=Where(rank=device[0], device=device[1]),
        evidence=(
            evidence,
            size_evidence("level before the last step", counts.levels_bytes[-1], "alive before its first event"),
        ),
        advice="Keep numbers in place of tensors with graphs (loss.item()), and bound caches.",
        verify="Take the snapshot again: the level between steps stays.",
    )


RULE = memory_rule(
    "MEM107",
    check,
    limits={
        "bytes_per_step": Limit(
            100_000,
            "bytes",
            "a number kept per step is 512 bytes; a graph or an output is far more",
            "rounding is to 512 bytes; measured programs leave none (docs/explanation/memory-accuracy.md)",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/notes/faq.html",),
)
