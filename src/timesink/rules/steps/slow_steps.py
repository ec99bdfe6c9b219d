"""Single steps take much longer than the median.

## What it detects
Steady steps that stand out, each with what made it slow: garbage collection, recompilation, the allocator, a
checkpoint, a late batch, a late rank, lower clocks, other work, or a pause that nothing explains.

## Why it matters
A slow median and a long tail are two defects. Ranks wait for each other, so that with a thousand of them one slow step
in a thousand on each is a slow step for all, every time.

## How it is measured
A step stands out where it exceeds the median by more than six robust deviations and half of the median (a fifth where
all kernels are slower by one factor; the whole of it where no cause is named). Its excess over the median step is
split by cause; what carries half of it names the step, by the step the host was in.

## What to do
As the cause says. One that comes back after a fixed number of steps is in the code that runs then.

## When it misleads
A capture of few steps shows few of them: the rate needs hundreds. A pause in which nothing is traced may be a garbage
collection (PyTorch's profiler records none by itself), the operating system, or Python.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict, Where
from timesink.measures.steps.engine import is_engine
from timesink.measures.steps.per_step import step_windows
from timesink.measures.steps.slow_steps import slow_rates
from timesink.measures.steps.spikes import Spike, SpikeStep, spikes
from timesink.measures.steps.steps import steps
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.rules.idle._family import idle_rule
from timesink.units import time_text

_NAMED = {
    Spike.GARBAGE_COLLECTION: (Bottleneck.GARBAGE_COLLECTION, "garbage collection"),
    Spike.RECOMPILATION: (Bottleneck.RECOMPILATION, "compilation"),
    Spike.ALLOCATOR_GROWTH: (Bottleneck.ALLOCATOR, "allocation of device memory"),
    Spike.ALLOCATOR_RETRY: (Bottleneck.ALLOCATOR, "device memory given back and allocated anew"),
    Spike.SLOW_DATA: (Bottleneck.INPUT_PIPELINE, "a batch that came late"),
    Spike.CHECKPOINT: (Bottleneck.DEVICE_TO_HOST_COPY, "a checkpoint"),
    Spike.COMMUNICATION: (Bottleneck.STRAGGLER, "waiting in communication"),
    Spike.CLOCKS: (Bottleneck.COMPUTE_BOUND_KERNEL, "all kernels slower by one factor, as at lower clocks"),
    Spike.OTHER_WORK: (Bottleneck.COMPUTE_BOUND_KERNEL, "kernels that the median step does not run"),
    Spike.SLOW_KERNELS: (Bottleneck.COMPUTE_BOUND_KERNEL, "some kernels that take longer"),
    Spike.HOST_WAIT: (Bottleneck.HOST_SYNC, "a blocking wait that the median step does not have"),
    Spike.OS_CALL: (Bottleneck.OPERATING_SYSTEM, "a call into the operating system"),
    Spike.UNTRACED_PAUSE: (Bottleneck.HOST_PYTHON, "a pause of the launching thread in which nothing is traced"),
    Spike.UNEXPLAINED: (Bottleneck.HOST_PYTHON, "nothing that the trace explains"),
}

_OF_PROMPTS = (Spike.OTHER_WORK, Spike.SLOW_KERNELS, Spike.UNEXPLAINED)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device and cause where the excess of its slow steps, over all steady steps, passes the limit."""
    examined_steps = spikes(trace)
    if not steps(trace).windows.height:
        return NotApplicable("the trace has no steady steps to compare")
    kinds = sorted({(spike.device, spike.kind) for spike in examined_steps.found})
    if is_engine(trace):  # a step that reads a prompt runs other kernels, and takes longer: no fault of the step
        kinds = [(device, kind) for device, kind in kinds if kind not in _OF_PROMPTS]
    judged = [_judge(trace, device, kind, limits["excess_ratio"]) for device, kind in kinds]
    count = sum(examined_steps.examined.values())
    nothing = Evidence("steady steps that stand out", Quantity(0.0, "steps"), f"of {count} steady steps")
    return found_or_clear(judged or [nothing])


def _judge(trace: Trace, device: tuple[int, int], kind: Spike, limit: float) -> Finding | Evidence:
    slow = [spike for spike in spikes(trace).found if spike.device == device and spike.kind is kind]
    start, end = step_windows(trace, device)
    excess_ns, steps_ns = sum(spike.excess_ns for spike in slow), int((end - start).sum())
    share = excess_ns / steps_ns
    bottleneck, words = _NAMED[kind]
    evidence = Evidence(
        f"time of device {device[1]} lost in {len(slow)} slow of {len(start)} steady steps to {words}",
        Quantity(share, "ratio"),
        "excess over the median step, of the steady steps together",
        limit=Quantity(limit, "ratio"),
    )
    if not evidence.is_over:
        return evidence
    rate = slow_rates(trace).get(device[0], len(slow) / len(start))
    worth_ns = excess_ns / sum(spike.device == device for spike in spikes(trace).found) * rate
    worst = max(slow, key=lambda spike: (spike.excess_ns, -spike.step))
    period = spikes(trace).period_steps(kind, device)
    return Finding(
        message=f"{_steps(slow)} of {len(start)} steady ones on device {device[1]} "
        f"{'take up to' if len(slow) > 1 else 'takes'} {time_text(worst.period_ns)}, {time_text(worst.excess_ns)} "
        f"more than the median step: {words}" + (f", every {period} steps" if period else ""),
        bottleneck=bottleneck,
        where=Where(rank=device[0], device=device[1], step=worst.label, kernel=worst.operation or None),
        evidence=(evidence,),
        advice=_ADVICE.get(kind, "Look at the step named in the trace, at the operation named."),
        verify="Capture as many steps again: none of them stands out for this reason.",
        claim=Claim({device: Intervals.union_all(Intervals.one(*spike.stretch_ns) for spike in slow)}),
        stated=Quantity.ms(worth_ns, 0.0, worth_ns),
    )


def _steps(slow: list[SpikeStep]) -> str:
    return f"step {slow[0].label}" if len(slow) == 1 else f"{len(slow)} steps"


_ADVICE = {
    Spike.GARBAGE_COLLECTION: "Freeze the heap after start-up (gc.freeze); collect on all ranks at one chosen step.",
    Spike.RECOMPILATION: "Run with TORCH_LOGS=recompiles: it names the guard; mark the dimension dynamic, or pad.",
    Spike.ALLOCATOR_RETRY: "Leave memory free, or use expandable_segments; do not call empty_cache in the loop.",
    Spike.ALLOCATOR_GROWTH: "Run the largest shapes once before the loop, so that their memory is kept.",
    Spike.SLOW_DATA: "Prefetch more batches in more workers, or make the slow samples cheaper.",
    Spike.CHECKPOINT: "Copy to pinned memory and write from another thread (torch.distributed.checkpoint.async_save).",
    Spike.COMMUNICATION: "Look at what the other ranks do in this step: one of them arrives late.",
    Spike.UNTRACED_PAUSE: "Mark collections (gc.callbacks with record_function) or record stacks; capture again.",
}

RULE = idle_rule(
    "SPK101",
    check,
    limits={
        "excess_ratio": Limit.ratio(
            0.01, "less than one step in a hundred is lost", "run-to-run deviation of step time is about 1 % on one GPU"
        )
    },
    references=("https://arxiv.org/abs/2410.12588",),
    symptom=True,
    every_step=True,
)
