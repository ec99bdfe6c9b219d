"""The host waits for a collective and the GPU then for the host.

## What it detects
Blocking calls that return when a collective is done, after which the GPU stands idle until the host has launched more
work.

## Why it matters
A collective is launched like any kernel: the GPU can hold the next work back by itself. Where the host waits instead,
the queue runs dry, on every rank, after each such collective.

## How it is measured
Idle time of the GPU that began while a blocking call waited and ended with work launched after it returned, counted
where the last work before it was communication; in the steady steps.

## What to do
Drop `torch.cuda.synchronize()` and `.item()` behind collectives; `work.wait()` makes the stream wait, which is enough.
Read metrics of the step before, when their reduction is long done.

## When it misleads
A blocking barrier at the end of a measurement is meant to wait; it lies in no steady step.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_step
from timesink.measures.communication.collectives import AwaitedCollectives, awaited_collectives
from timesink.measures.steps.per_step import share_of_step
from timesink.model.tables import (
    API_CALLS,
    COLLECTIVES,
    DEVICE_OPS,
    DEVICES,
    FRAMES,
    HOST_OPS,
    RANGES,
    SETTINGS,
    SOURCES,
)
from timesink.model.trace import Trace


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found for each GPU that is idle for too long after collectives that the host waited for."""
    judged = (_judge(trace, limits, awaited) for awaited in awaited_collectives(trace))
    return applicable(judged, "no blocking call waits for a collective")


def _judge(trace: Trace, limits: Limits, awaited: AwaitedCollectives) -> Finding | Evidence:
    evidence = Evidence(
        f"idle behind awaited collectives on rank {awaited.device[0]}, device {awaited.device[1]}",
        Quantity(share_of_step(trace, awaited.device, awaited.idle), "ratio"),
        "idle time that began as a collective ended and a blocking call waited, until work launched after the call",
        limit=Quantity(limits["idle_ratio"], "ratio"),
        table="api_calls",
    )
    if not evidence.is_over:
        return evidence
    return Finding(
        message=f"rank {awaited.device[0]} waits for {awaited.count} collectives with {awaited.call}, and its GPU then "
        f"stands idle for {of_step(trace, awaited.device, awaited.idle)}",
        bottleneck=Bottleneck.HOST_SYNC,
        where=Where(rank=awaited.device[0], device=awaited.device[1], op=awaited.call),
        evidence=(
            evidence,
            Evidence("awaited collectives", Quantity(awaited.count, "calls"), "calls with a drain behind"),
        ),
        advice="Let the stream wait (work.wait()), not the host: drop the synchronisation behind the collective.",
        verify="Capture again: the call is gone, and work is queued while the collective runs.",
        claim=Claim({awaited.device: awaited.idle}),
    )


RULE = Rule(
    "COM108",
    check,
    needs=(DEVICE_OPS, API_CALLS),
    reads=(COLLECTIVES, DEVICES, FRAMES, HOST_OPS, RANGES, SETTINGS, SOURCES),
    limits={
        "idle_ratio": Limit.ratio(0.02, "one short wait a step (the loss) is usual", "run-to-run deviation of a step")
    },
    references=("https://docs.pytorch.org/docs/stable/distributed.html",),
)
