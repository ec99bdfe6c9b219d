"""Another process was at work on the GPU as the program started.

## What it detects
A capture whose manifest says that a GPU of the program was busy before the program started: nvidia-smi saw kernels run,
or it drew more than two fifths of its power.

## Why it matters
Two processes on one GPU take turns: while kernels of one run, those of the other wait, and no trace of either shows
it. Kernels seem slower than they are, gaps longer, and no two runs are alike.

## How it is measured
By the manifest of `timesink capture`, which asks nvidia-smi before it starts the program. If the other process goes
on at that rate, and both get their share, the step takes that much longer; the trace can neither confirm nor refute it.

## What to do
Look who it is (`nvidia-smi`), end it or choose another GPU (`CUDA_VISIBLE_DEVICES`), and capture again. Where sharing
is meant, use MIG or MPS, and judge times by their spread.

## When it misleads
The other process may have ended since. A display or a monitoring agent keeps a GPU busy for a few per cent.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Undecided, Verdict, Where
from timesink.measures.steps.per_step import period_name, period_ns
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found where a GPU was busy before, on the first device."""
    devices = sorted(device_timeline(trace).by_device)
    if not trace.settings or not devices:
        return Undecided("no manifest says what else ran on the GPU", "timesink capture torch -- python train.py")
    text = trace.settings.get("others_busy", "0")
    busy = float(text) / 100 if text.isdigit() else 0.0
    evidence = Evidence(
        "a GPU's time or power taken before the program started",
        Quantity(busy, "ratio"),
        "nvidia-smi before the program, by the capture's manifest",
        limit=Quantity(limits["busy_ratio"], "ratio"),
    )
    if not evidence.is_over:
        return found_or_clear([evidence])
    step_ms = (trace.unprofiled_step_ns or period_ns(trace, devices[0])) / NS_PER_MS
    finding = Finding(
        message=f"a GPU was at work before the program started ({share_text(busy)} of its time or power): if another "
        f"process goes on there, both take turns in each {period_name(trace)} of {step_ms:.3g} ms",
        bottleneck=Bottleneck.DEVICE_SHARED,
        where=Where(rank=devices[0][0], device=devices[0][1]),
        evidence=(evidence,),
        advice="See who it is (nvidia-smi), end it or choose another GPU, and capture again.",
        verify="nvidia-smi shows an idle GPU before the program starts, and the step is shorter.",
        stated=Quantity(step_ms * busy / (1 + busy), "ms", low=0.0, high=step_ms * 2 * busy / (1 + 2 * busy)),
    )
    return found_or_clear([finding])


RULE = Rule(
    "HAB108",
    check,
    needs=(DEVICE_OPS,),
    reads=(API_CALLS, HOST_OPS, RANGES),
    limits={
        "busy_ratio": Limit.ratio(
            0.1,
            "a display or a monitor keeps a GPU busy for a few per cent",
            "benchmarks/faults: 0 % for all other programs of the fourth set",
        )
    },
    references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
)
