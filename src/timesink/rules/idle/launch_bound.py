"""The host launches kernels more slowly than the device runs them.

## What it detects
A device that waits, between kernels, for the framework to reach the next launch: operator dispatch, CUDA calls and the
latency of the launch itself, in steps of many short kernels.

## Why it matters
The device then runs at the host's pace. Faster kernels gain nothing; fewer launches, or cheaper ones, gain everything.

## How it is measured
Idle stretches blamed on dispatch, CUDA calls and launch latency, over the steady steps, outside the preparation of
input; short stretches in which nothing was traced count as dispatch. Gaps behind a blocking wait, until the host is
ahead again, belong to the wait. Where dispatch takes more than Python does, Python between launches and the optimizer's
host work are counted in. The verdict also asks that the median kernel is shorter than the
median interval between launches.

## What to do
Capture the step in a CUDA graph (`torch.compile(mode="reduce-overhead")`, `torch.cuda.make_graphed_callables`), fuse
small operators, or enlarge the batch until kernels outlast their launches.

## When it misleads
A profiler makes every operator slower, some by a factor of two, so a step that is launch-bound in the profile can be
device-bound without it: compare with an unprofiled step time before believing a gain.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Undecided, Verdict
from timesink.fixes import table as fixes
from timesink.measures.habits.debugging import launches_block
from timesink.measures.idle.blamed_time import BlamedTime, launching_time
from timesink.measures.kernels.kernels import median_kernel_ns
from timesink.measures.timeline.device_timeline import Device
from timesink.measures.timeline.launches import DeviceLaunches, launches
from timesink.model.trace import Trace
from timesink.rules.idle._family import idle_rule, idle_verdict, place_of, waits
from timesink.units import share_text, time_text

HOW = "idle stretches blamed on dispatch, CUDA calls and launch latency, over the steady steps"


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit whose kernels are shorter than the time between launches."""
    limit = limits["idle_ratio"]
    if launches_block(trace):
        return Undecided(
            "launches are blocking, so that the host is never ahead of the device",
            "unset CUDA_LAUNCH_BLOCKING and capture again",
        )

    def finding(blamed: BlamedTime, evidence: Evidence) -> Finding:
        queue = launches(trace)[blamed.device]
        interval = time_text(queue.interval_p50_ns or 0.0)
        count = "" if queue.launches_per_step is None else f"{queue.launches_per_step:.0f} launches per step, "
        return Finding(
            message=f"{waits(trace, blamed)} for the next launch: {count}one every {interval}, "
            f"{share_text(queue.empty_queue_ratio)} of them find an empty queue",
            bottleneck=Bottleneck.LAUNCH_BOUND,
            where=place_of(blamed),
            evidence=(evidence, _queue_fact(queue)),
            advice="Capture the step in a CUDA graph (torch.compile with mode reduce-overhead, or "
            "torch.cuda.make_graphed_callables), fuse small operators, or enlarge the batch.",
            verify="Capture again: launches per step go down and the idle share with them.",
            claim=Claim({blamed.device: blamed.intervals}),
            change=fixes.CUDA_GRAPH.change(),
            fix=fixes.CUDA_GRAPH,
        )

    starved = [blamed for blamed in launching_time(trace) if _starved(trace, blamed.device)]
    if not starved:
        return found_or_clear(map(_queue_fact, launches(trace).values()))
    return idle_verdict(starved, limit, "idle time before launches", HOW, finding)


def _starved(trace: Trace, device: Device) -> bool:
    """The median kernel is shorter than the median interval between launches."""
    queue = launches(trace)[device]
    return median_kernel_ns(trace).get(device, 0.0) < (queue.interval_p50_ns or 0.0)


def _queue_fact(queue: DeviceLaunches) -> Evidence:
    return Evidence(
        f"launches of device {queue.device} that find an empty queue",
        Quantity(queue.empty_queue_ratio, "ratio"),
        "every earlier launch onto the stream had started",
    )


RULE = idle_rule(
    "IDL103",
    check,
    limits={
        "idle_ratio": Limit.ratio(
            0.05,
            "the profiler alone makes the host late by some per cent of a step",
            "benchmarks/faults: healthy programs stay under 1 %; a fault that costs 3 % is owed a finding",
        )
    },
    references=("https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/",),
    symptom=True,
)
