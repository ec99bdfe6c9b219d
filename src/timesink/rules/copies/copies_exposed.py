"""Host-device copies run while no kernel does.

## What it detects
Host-device copies, in one direction, that run with no kernel beside them for more than a share of the steady step.
Copies to the device out of pageable memory are CPY102's.

## Why it matters
A copy moves data over PCIe or NVLink-C2C at a small fraction of the device's own memory bandwidth, and it needs no
multiprocessor: hidden behind kernels it costs nothing. Exposed, the whole device waits for the link.

## How it is measured
The union of the copies of one direction, less every instant at which a kernel runs on the device, within the steady
steps. Copies count as device activity: a device that only copies is bound by its link, it is not idle. Idle time that a
migration of unified memory ends counts with it: the device waits until the next page is touched.

## What to do
Move fewer bytes (keep data on the device, send integers or bf16 instead of fp32, batch small copies), then hide the
rest: pinned memory, `non_blocking=True`, a copy stream, and prefetch of the next batch while this one computes. Unified
memory (`cudaMallocManaged`) moves page by page where host or device touches it, each time after a fault: prefetch it
(`cudaMemPrefetchAsync`) in large pieces, or hold it on the device and copy once.

## When it misleads
The exposed time bounds the gain from above: hiding the copies needs kernels to hide them behind. On a machine whose
host memory is coherent with the device (GH200), a copy may be avoidable altogether.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Claim, Evidence, Finding, Quantity, Verdict
from timesink.diagnosis.words import of_step
from timesink.measures.steps.per_step import share_of_step
from timesink.measures.timeline.copies import CopyGroup
from timesink.measures.timeline.device_timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.copies._family import BOTTLENECKS, exposed_copy_groups, gaps_before, place_of
from timesink.rules.idle import BLAME_READS
from timesink.units import bytes_text

_WORDS = {"h2d": "host-to-device", "d2h": "device-to-host"}
_HIDE = (
    "Move fewer bytes, then hide the rest: pinned memory, non_blocking copies on their own stream, the next batch "
    "fetched while this one computes."
)
_PREFETCH = (
    "Move unified memory before it is touched: cudaMemPrefetchAsync in large pieces, or cudaMalloc and one copy."
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device and direction over the limit."""
    sides: dict[tuple[Device, str, bool], list[CopyGroup]] = {}
    for group in exposed_copy_groups(trace):
        sides.setdefault((group.device, group.direction, group.migrated), []).append(group)
    return found_or_clear([_judge(trace, limits, groups) for groups in sides.values()])


def _judge(trace: Trace, limits: Limits, groups: list[CopyGroup]) -> Finding | Evidence:
    device, direction, migrated = groups[0].device, groups[0].direction, groups[0].migrated
    noun = "migrations" if migrated else "copies"
    words = f"{_WORDS[direction]} {noun}{' of unified memory' if migrated else ''}"
    gaps = gaps_before(trace, device, direction) if migrated else Intervals.none()
    exposed = Intervals.union_all([*(group.exposed for group in groups), gaps])
    evidence = Evidence(
        f"exposed {words} of device {device[1]}",
        Quantity(share_of_step(trace, device, exposed), "ratio"),
        "union of the copies less every instant at which a kernel runs, over the steady steps"
        + (", and idle time that a migration ends" if len(gaps) else ""),
        limit=Quantity(limits["exposed_ratio"], "ratio"),
        table="device_ops",
        rows=groups[0].rows,
    )
    if not evidence.is_over:
        return evidence
    moved_bytes = sum(group.bytes for group in groups)
    rates = [group.gigabytes_per_s for group in groups if group.gigabytes_per_s is not None]
    with_gaps = " and the gaps before them" if len(gaps) else ""
    speed = f", {bytes_text(moved_bytes)} in all at {max(rates):.1f} GB/s" if rates else ""
    message = (
        f"{words}{with_gaps} take {of_step(trace, device, exposed)} on device {device[1]} with no kernel beside "
        f"them: {sum(group.count for group in groups)} {noun}{speed}"
    )
    return Finding(
        message=message,
        bottleneck=BOTTLENECKS[direction],
        where=place_of(trace, device, groups[0].rows),
        evidence=(evidence,),
        advice=_PREFETCH if migrated else _HIDE,
        verify="Capture again: the exposed share of these copies falls, the step by at most their exposed time.",
        claim=Claim({device: exposed}),
    )


RULE = Rule(
    "CPY101",
    check,
    needs=(DEVICE_OPS,),
    reads=(API_CALLS, *BLAME_READS),
    limits={
        "exposed_ratio": Limit.ratio(
            0.03,
            "below this, hiding every copy gains less than three steps in a hundred",
            "benchmarks/faults: healthy loaders expose 1 %; TraceLens flags copies over 5 %",
        )
    },
    references=("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#data-transfer-between-host-and-device",),
)
