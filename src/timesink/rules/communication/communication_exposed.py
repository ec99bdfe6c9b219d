"""Communication runs with no computation beside it.

## What it detects
Collective and point-to-point kernels that run with no computation beside them for more than a share of the steady
step.

## Why it matters
Communication that computation hides is free; exposed, it lengthens every step of every rank.

## How it is measured
The union of the communication kernels of a device less every instant at which another kernel runs there, within the
steady steps. Kernels are recognised by name: NCCL, RCCL, NVSHMEM, DeepEP and the custom all-reduce kernels of serving
engines. Where all ranks are read, time that a collective spends waiting for its last rank is left out: it is not
transfer, and no overlap wins it back (COM103 and COM104 look at it). So are sends and receives between the stages of a
pipeline, which wait for each other's computation (COM105). The gain is a replay with the collectives beside the
computation before them, which they slow down: behind a host that is late anyway it is nothing. Exchanges that are
repeated within a step take their time first (COM107).

## What to do
Overlap it: gradient buckets that start during backward, prefetched all-gathers, communication on a stream of its own
without a wait right behind it. Then make it shorter: fewer bytes, larger messages, a better placed group.

## When it misleads
From one rank's trace, waiting for a slow peer and transfer cannot be told apart, and both count. Where a peer is late,
no overlap helps: read the traces of all ranks together.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Undecided, Verdict, Where
from timesink.diagnosis.words import of_step
from timesink.fixes import table as fixes
from timesink.measures.communication.communication import DeviceCommunication, communication, unnamed_exchange
from timesink.measures.communication.pipelines import between_stages
from timesink.measures.communication.waits import collective_waits, waiting_in_collectives
from timesink.measures.ranks.job import JOB_READS
from timesink.measures.steps.per_step import share_of_step
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import share_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    devices = [device for device in communication(trace) if device.kernel_count]
    if not devices and (name := unnamed_exchange(trace)) is not None:
        return Undecided(
            f"ranges named like an exchange launch {name} on a stream of their own: no library known to timesink",
            "timesink show lists these kernels: if they communicate, their time with none beside them counts",
        )
    judged = (_judge(trace, limits, device) for device in devices)
    return applicable(judged, "the trace holds no communication kernels")


def _judge(trace: Trace, limits: Limits, device: DeviceCommunication) -> Finding | Evidence:
    key = (device.rank, device.device)
    waited = collective_waits(trace).matched.calls.height > 0
    exposed = (
        device.exposed
        - waiting_in_collectives(trace).get(key, Intervals.none())
        - between_stages(trace).get(key, Intervals.none())
    )
    evidence = Evidence(
        f"exposed communication of rank {device.rank}, device {device.device}",
        Quantity(share_of_step(trace, key, exposed), "ratio"),
        "union of communication kernels less every instant at which another kernel runs"
        + (" and less waiting for the last rank, over the steady steps" if waited else ", over the steady steps"),
        limit=Quantity(limits["exposed_ratio"], "ratio"),
        table="device_ops",
    )
    if not evidence.is_over:
        return evidence
    names = communication(trace).by_name
    longest = names.filter((names["rank"] == device.rank) & (names["device"] == device.device))["name"].to_list()[0]
    overlap, barriers_ns = device.overlap_ratio or 0.0, communication(trace).barriers_ns(key)
    waiting = Evidence(
        "kernels that wait for other ranks and move nothing",
        Quantity(barriers_ns / max(device.total_ns, 1), "ratio"),
        "barriers and notices of expert exchanges, over all communication",
    )
    return Finding(
        message=f"communication takes {of_step(trace, key, exposed)} on rank "
        f"{device.rank}, device {device.device}, with no computation beside it; {share_text(overlap)} of all "
        "communication is overlapped",
        bottleneck=Bottleneck.COMMUNICATION_EXPOSED,
        where=Where(rank=device.rank, device=device.device, kernel=longest),
        evidence=(
            evidence,
            Evidence("overlapped share", Quantity(overlap, "ratio"), "time beside computation over all of it"),
            *([waiting] if barriers_ns else []),
        ),
        advice="Start collectives earlier and let computation run beside them (gradient buckets, prefetched "
        "all-gathers)" + ("." if waited else "; read all ranks together first: a late peer shows as communication."),
        verify="Capture again: the exposed share falls, and the step by at most the exposed time.",
        claim=Claim({key: exposed}),
        change=fixes.OVERLAP_COLLECTIVES.change(),
        fix=fixes.OVERLAP_COLLECTIVES,
    )


RULE = Rule(
    "COM101",
    check,
    needs=(DEVICE_OPS,),
    reads=(*JOB_READS, RANGES, API_CALLS),
    limits={
        "exposed_ratio": Limit.ratio(
            0.05,
            "below this, hiding all communication gains less than a step in twenty",
            "TraceLens flags exposed communication over 5 % of the timeline",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/notes/ddp.html",),
    symptom=True,
)
