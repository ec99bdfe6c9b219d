"""Launches return only when their kernels have ended.

The host never gets ahead of the device.

## What it detects
Kernel launches whose call lasts until the kernel that it launched is done. That is what `CUDA_LAUNCH_BLOCKING=1` does,
which is set to find the line of an error and then stays in a job's script.

## Why it matters
The device is idle from the end of each kernel until the host has made the next operator ready. Host and device take
turns, and a step takes the sum of both times instead of the longer one.

## How it is measured
By the share of kernels whose launch returned after they ended: next to none in an ordinary program, all of them under
`CUDA_LAUNCH_BLOCKING`. The gain is the time of the waits, from half-way between call and kernel on, or the device's
idle time where that is less; cautiously half. Whether launches are slow otherwise is for the next capture to say:
`launch-bound` is undecided meanwhile.

## What to do
Unset `CUDA_LAUNCH_BLOCKING`. Where it was set because of an error, keep it for the run that looks for the error.

## When it misleads
A wait that the program calls itself after each launch is another call, which `host-sync` speaks of. Some debuggers and
sanitizers serialise launches for as long as they watch.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_period
from timesink.measures.habits.debugging import BlockingLaunches, blocking_launches
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.schema import SHOWN_ROWS
from timesink.model.trace import Trace
from timesink.rules.habits._family import habit_rule
from timesink.units import share_text

_SETTING = "launch_blocking"


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device most of whose launches waited."""
    devices = blocking_launches(trace)
    told = [one for one in devices if one.count >= limits["kernels"] or trace.settings.get(_SETTING) == "on"]
    few = f"fewer than {limits['kernels']:.0f} kernels have a launch of their own"
    judged = (_judge(trace, blocking, limits["awaited_ratio"]) for blocking in told)
    return applicable(judged, few if devices else "no kernel has a launch of its own")


def _judge(trace: Trace, blocking: BlockingLaunches, limit: float) -> Finding | Evidence:
    rank, number = blocking.device
    evidence = Evidence(
        f"launches of device {number} that return after their kernel's end",
        Quantity(blocking.ratio, "ratio"),
        f"of {blocking.count} kernels with a launch of their own",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
        rows=tuple(blocking.rows[:SHOWN_ROWS].tolist()),
    )
    idle_ns = per_step_ns(trace, blocking.device, blocking.idle)
    if not (evidence.is_over and idle_ns):
        return evidence
    asked = trace.settings.get(_SETTING)
    cause = "CUDA_LAUNCH_BLOCKING is set" if asked == "on" else "as CUDA_LAUNCH_BLOCKING makes them"
    return Finding(
        message=f"launches are blocking ({cause}): {share_text(blocking.ratio)} return after their kernel's end, and "
        f"device {number} waits {of_period(trace, blocking.device, idle_ns)} meanwhile",
        bottleneck=Bottleneck.LAUNCHES_BLOCKING,
        where=Where(rank=rank, device=number),
        evidence=(
            evidence,
            Evidence("idle time within those launches", Quantity.ms(idle_ns), "per steady step"),
        ),
        advice="Unset CUDA_LAUNCH_BLOCKING (job script, shell profile, os.environ in the program).",
        verify="Capture again: launches return in a few microseconds, before their kernels start.",
        claim=Claim({blocking.device: blocking.idle}),
        stated=_gain(trace, blocking),
    )


def _gain(trace: Trace, blocking: BlockingLaunches) -> Quantity:
    """Ms per step: the waits in the launches, or what else the device is idle, whichever is less: without waits a step
    takes the longer of the two. A profiler lengthens the idle time, not the waits."""
    device = blocking.device
    idle = device_timeline(trace)[device].idle
    profiled_ns = period_ns(trace, device)
    slowed_ns = max(profiled_ns - (trace.unprofiled_step_ns or profiled_ns), 0.0)
    idle_ns = max(per_step_ns(trace, device, idle) - slowed_ns, 0.0)
    waited_ns = sum(per_step_ns(trace, device, part) for part in blocking.host.values())
    value_ns = min(waited_ns, idle_ns)
    return Quantity.ms(value_ns, value_ns / 2, max(idle_ns, value_ns))


RULE = habit_rule(
    "HAB102",
    check,
    limits={
        "awaited_ratio": Limit.ratio(
            0.9,
            "all of them where launches block; the last kernels before a wait may end before their launch returns",
            "benchmarks/faults: 100 % with CUDA_LAUNCH_BLOCKING, at most 1 % in all other programs",
        ),
        "kernels": Limit(
            10,
            "count",
            "the first launch of a kernel loads it, longer than a short kernel takes, and returns after its end too",
            "a public capture of one kernel on a GTX 1650: its launch takes 468 us, the kernel 1.7",
        ),
    },
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#environment-variables",),
)
