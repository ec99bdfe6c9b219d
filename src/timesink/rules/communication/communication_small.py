"""Many small collectives, each as long as its latency.

## What it detects
Collectives of small messages, many in every step, whose transfers are exposed for more than a share of the step.

## Why it matters
A small message takes the latency of the network however small it is. A hundred of them cost a hundred latencies; one
of their joint size costs one.

## How it is measured
Collectives below a size, counted per steady step, and the part of their transfer that no computation hides. Where
several ranks are read, waiting for the last rank is not transfer and does not count; one rank alone cannot tell them
apart. Where `timesink capture nccl-bench` measured the machine, small is what takes less than twice the latency there.

## What to do
Put them together: larger gradient buckets (`bucket_cap_mb`), flattened parameters, one fused reduction of metrics.

## When it misleads
Within one host over NVLink the latency is a few microseconds and computation hides it: such calls are many and
harmless, and the verdict is clear with their count. Their launches still cost the host time, which other rules look
at.
"""

from __future__ import annotations

from itertools import chain

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Evidence,
    Finding,
    NotApplicable,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.measures.communication.collectives import SmallCollectives, small_collectives
from timesink.measures.communication.communication import may_communicate
from timesink.measures.communication.link_curve import link_curve
from timesink.measures.ranks.job import JOB_READS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import bytes_text, share_text, time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found for the GPU whose small collectives are exposed longest, if long enough."""
    collectives = small_collectives(trace) if may_communicate(trace) else None
    if collectives is None or not collectives.calls.height:
        return NotApplicable("the trace holds no collectives")
    if collectives.calls["bytes"].null_count() == collectives.calls.height:
        return Undecided("no collective's size is recorded", "timesink capture torch -- torchrun train.py")
    judged = [_judge(collectives, device, limits) for device in collectives.devices]
    findings = [one for one in judged if isinstance(one, Finding)]
    return found_or_clear(findings[:1] or chain.from_iterable(pair for pair in judged if not isinstance(pair, Finding)))


_SAID = " (below it latency is most of the time: measured by nccl-bench)"


def _judge(
    collectives: SmallCollectives, device: tuple[int, int], limits: Limits
) -> Finding | tuple[Evidence, Evidence]:
    curve = link_curve(collectives.trace)
    measured = None if curve is None else curve.small_bytes()
    small_bytes = int(limits["small_bytes"]) if measured is None else measured
    small = collectives.of(device, small_bytes)
    count = Evidence(
        f"small collectives per step of rank {device[0]}, device {device[1]}",
        Quantity(small.per_step, "calls"),
        f"collectives of less than {bytes_text(small_bytes)}{_SAID if measured else ''} over the steady steps",
        limit=Quantity(limits["per_step"], "calls"),
        table="collectives",
    )
    share = Evidence(
        "their exposed transfer",
        Quantity(small.exposed_ratio, "ratio"),
        "transfer with no computation beside it, over the steady steps",
        limit=Quantity(limits["exposed_ratio"], "ratio"),
        table="collectives",
    )
    if not (count.is_over and share.is_over):
        return count, share
    return Finding(
        message=f"{small.per_step:.0f} collectives of less than {bytes_text(small_bytes)} in a step stand "
        f"exposed for {time_text(small.exposed_step_ns)} of it on rank {device[0]} ({share_text(small.exposed_ratio)}"
        f"); half of them take {time_text(small.p50_ns)} or less",
        bottleneck=Bottleneck.COMMUNICATION_SMALL,
        where=Where(rank=device[0], device=device[1]),
        evidence=(count, share),
        advice="Send them together: larger buckets (bucket_cap_mb), flattened tensors, one reduction for all metrics.",
        verify="Capture again: fewer collectives per step, and the exposed transfer falls.",
        claim=Claim({device: small.exposed}),
        stated=Quantity.ms(small.exposed_step_ns, 0.0, small.exposed_step_ns + small.launch_step_ns),
    )


RULE = Rule(
    "COM102",
    check,
    needs=(DEVICE_OPS,),
    reads=JOB_READS,
    limits={
        "small_bytes": Limit(
            4_000_000, "bytes", "on NVLink latency takes as long as transfer below it", "nccl-tests curves"
        ),
        "per_step": Limit(
            20, "calls", "a few small reductions per step are usual (loss, norm)", "DDP and FSDP defaults"
        ),
        "exposed_ratio": Limit.ratio(
            0.03, "hidden or short ones cost the step nothing", "run-to-run deviation of a step"
        ),
    },
    references=("https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",),
    capture="timesink capture torch -- torchrun train.py",
)
