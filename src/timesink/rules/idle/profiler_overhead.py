"""The device waits for a host that the profiler slows down.

## What it detects
A trace with Python stacks recorded, whose device waits for its host for no more than about twice what
recording is estimated to have cost.

## Why it matters
Stacks cost at every call of a function. A loop that the device bounds then looks as if the host bounded it, and every
gain on the host's side is a gain in profiling.

## How it is measured
Idle time blamed on the host's own work (dispatch, Python, CUDA calls, launch latency) beside the estimated cost of what
was recorded: 1.8 us per operator or CUDA call, 1.5 us more per operator for its stack, 0.4 us per frame, 12 us per
range and 60 us per step. Found where the estimate is at least half of the idle time; no more than the estimate is
charged to the profiler.

## What to do
Capture again without `with_stack`, or with Nsight Systems, or tell `timesink` the unprofiled step
time (`--unprofiled-step-ms`). Believe no gain of host-side findings of this trace.

## When it misleads
Unit costs differ between machines by a factor of two. A program that is bound by its host without a profiler too shows
both; only a run without profiler tells them apart.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict
from timesink.diagnosis.words import period_text
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time
from timesink.measures.steps.per_step import period_ns
from timesink.measures.timeline.quality import ProfilerCost, profiler_cost
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS, place_of, waits
from timesink.units import time_text

CAUSES = ("dispatch", "cuda_call", "python", "untraced", "launch_latency", "optimizer", "profiler")


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device that waits for a host whose profiler explains most of the wait."""
    heavy = {cost.rank: cost for cost in profiler_cost(trace) if cost.heavy}
    if not heavy:
        return NotApplicable("no Python stacks were recorded")
    devices = [blamed for blamed in blamed_time(trace, CAUSES, preparing=False) if blamed.device[0] in heavy]
    return found_or_clear([_judge(trace, blamed, heavy[blamed.device[0]], limits) for blamed in devices])


def _judge(trace: Trace, blamed: BlamedTime, cost: ProfilerCost, limits: Limits) -> Finding | Evidence:
    explained = cost.cost_ns / blamed.per_step_ns if blamed.per_step_ns else 0.0
    evidence = Evidence(
        f"cost of recording, of the time device {blamed.device[1]} waits for the host",
        Quantity(explained, "ratio"),
        "estimated from the frames, operators, calls and ranges per step",
        limit=Quantity(limits["explained_ratio"], "ratio"),
        table="device_ops",
        rows=blamed.rows,
    )
    if blamed.share <= limits["idle_ratio"] or not evidence.is_over:
        return evidence
    part = f"about {time_text(cost.cost_ns)}" if cost.cost_ns < period_ns(trace, blamed.device) else "most of it"
    return Finding(
        message=f"recording {cost.frames:.0f} frames and {cost.operators:.0f} operators "
        f"in {period_text(trace, blamed.device)} costs the host {part}; "
        f"{waits(trace, blamed)} for the host",
        bottleneck=Bottleneck.PROFILER_OVERHEAD,
        where=place_of(blamed),
        evidence=(
            evidence,
            Evidence("estimated cost of recording", Quantity.ms(cost.cost_ns), "host time per step"),
            Evidence("waiting for the host", Quantity(blamed.share, "ratio"), "idle time blamed on the host"),
        ),
        advice="Capture again without with_stack, or with Nsight Systems; believe no host-side gain of this trace.",
        verify="Time the step without a profiler: it is shorter by about this much.",
        claim=Claim({blamed.device: blamed.intervals}),
        stated=Quantity.ms(min(cost.cost_ns, blamed.per_step_ns), 0.0, blamed.per_step_ns),
    )


RULE = Rule(
    "PRF101",
    check,
    needs=(DEVICE_OPS, API_CALLS, HOST_OPS),
    reads=BLAME_READS,
    limits={
        "idle_ratio": Limit.ratio(
            0.05,
            "a device that waits less than this is not bound by its host in the profile either",
            "idle time of device-bound programs in benchmarks/faults",
        ),
        "explained_ratio": Limit.ratio(
            0.5,
            "where recording explains half of the wait, unit costs being off by two, it may explain all of it",
            "captures of host-bound programs beside their unprofiled step times (benchmarks/faults)",
        ),
    },
    references=("https://docs.pytorch.org/docs/stable/profiler.html",),
)
