"""The host is late because parameters are gathered in many small units.

## What it detects
Steps with many collectives between the products of a model, each of few bytes, while the device waits for the host.

## Why it matters
FSDP (`fully_shard`) gathers every unit by itself: hooks, copies into and out of one buffer, events and the collective
cost the host a tenth of a millisecond or more, twice in forward and backward, however small the unit is. Where every
product is a unit, the host needs longer than the device, and all ranks wait for the slowest host.

## How it is measured
Host time from one launch of a product, attention or convolution to the next on the same thread; of those stretches that
launch a collective, what they take beyond the usual ones that launch none. The device must stand idle meanwhile. The
gain is a replay in which units of the recorded size become units of 25 MB (of unknown size: a quarter as many).

## What to do
Wrap whole layers: `fully_shard(layer)` for each transformer block and no finer, or `auto_wrap_policy` with a minimum of
parameters; larger `bucket_cap_mb` for DDP.

## When it misleads
Small models have small layers: then a CUDA graph or a larger batch helps where larger units cannot. What else the host
does between two products with a collective between them counts as the unit's.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_step
from timesink.fixes.table import BUCKETS
from timesink.knowledge.assumptions import fixes
from timesink.measures.communication.collectives import CollectiveUnits, collective_units
from timesink.measures.ranks.job import JOB_READS
from timesink.measures.steps.per_step import share_of_step
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.idle import BLAME_READS
from timesink.units import bytes_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device that waits while the host launches many small collectives."""
    units = (part for part in collective_units(trace) if part.per_step > limits["per_step"])
    otherwise = f"no host launches more than {limits['per_step']:.0f} collectives a step between products"
    return applicable((_judge(trace, limits, part) for part in units), otherwise)


def _judge(trace: Trace, limits: Limits, units: CollectiveUnits) -> Finding | Evidence:
    unit_bytes = None if units.step_bytes is None else units.step_bytes / units.per_step
    evidence = Evidence(
        f"idle time of device {units.device[1]} while collectives are launched between products",
        Quantity(share_of_step(trace, units.device, units.idle), "ratio"),
        "idle stretches while the host is between two products with a collective, over the steady steps",
        limit=Quantity(limits["idle_ratio"], "ratio"),
        table="device_ops",
    )
    if not evidence.is_over or (unit_bytes is not None and unit_bytes > fixes.UNIT_BYTES.value):
        return evidence
    size = "" if unit_bytes is None else f" of {bytes_text(unit_bytes)} each on average"
    return Finding(
        message=f"device {units.device[1]} waits {of_step(trace, units.device, units.idle)} while the host launches "
        f"{units.per_step:.0f} collectives{size} between products",
        bottleneck=Bottleneck.COMMUNICATION_SMALL,
        where=Where(rank=units.device[0], device=units.device[1]),
        evidence=(
            evidence,
            Evidence(
                "collectives per step",
                Quantity(units.per_step, "calls"),
                "over the steady steps",
                limit=Quantity(limits["per_step"], "calls"),
            ),
        ),
        advice="Gather larger units: fully_shard whole transformer layers and nothing finer; a larger bucket_cap_mb.",
        verify="Capture again: fewer collectives per step, and the device waits less for the host.",
        claim=Claim({units.device: units.idle}),
        change=BUCKETS.change(units.host, unit_bytes),
        fix=BUCKETS,
    )


RULE = Rule(
    "COM110",
    check,
    needs=(DEVICE_OPS, API_CALLS),
    reads=(*dict.fromkeys((*JOB_READS, *BLAME_READS)),),
    limits={
        "per_step": Limit(
            20, "calls", "a few large units per step are usual", "DDP and FSDP defaults on models of a few layers"
        ),
        "idle_ratio": Limit.ratio(0.03, "hosts that are ahead are not slowed by units", "own captures of FSDP"),
    },
    references=("https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",),
    capture="timesink capture torch -- torchrun train.py",
)
