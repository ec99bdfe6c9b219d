"""The device is busy, and most of its multiprocessors have nothing to do.

Kernels run, so that the device counts as busy; counters sampled along the timeline say how many multiprocessors work.

## What it detects
Kernels, by name, during which on average less than half of the multiprocessors had a warp, where filling the device
would win more than the limit of a step. It needs a capture with sampled counters.

## Why it matters
Utilisation as tools show it counts any kernel as work. A scan over eight rows, a kernel that waits for another device
or for the host, or the long tail of an uneven grid keep the device busy with a few of its multiprocessors.

## How it is measured
The counter "SMs Active" of Nsight Systems, averaged over the samples taken while kernels of a name ran. Spread over
all multiprocessors they would take that share of their time at best; half of that gain is expected.

## What to do
Cut the work into more blocks, batch several inputs, or run independent kernels at the same time. Where a kernel waits
(for a lock, a peer, the host), end the wait.

## When it misleads
Samples are of the whole GPU: another program on it counts too. Kernels much shorter than the distance of two samples
share them with their neighbours. A kernel that is one dependent chain cannot be spread.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Quantity, Undecided, Verdict
from timesink.measures.counters.sampled import LowActivity, low_activity
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, GPU_METRICS, RANGES
from timesink.model.trace import Trace
from timesink.rules.kernels._family import LINE_READS, KernelPattern, kernel_verdict
from timesink.units import share_text
from timesink.whatif.changes.kernels import ShortenKernels, fill_device

PATTERN = KernelPattern(
    bottleneck=Bottleneck.OCCUPANCY,
    subject="kernels that keep few multiprocessors at work",
    how="kernels keep twice the share of multiprocessors that were active; over the steady steps",
    advice="Cut the work into more blocks, batch several inputs, or run independent kernels at the same time.",
    verify="Capture again with the counters: more multiprocessors are active, and the step is shorter.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device that is busy with few of its multiprocessors."""
    devices = low_activity(trace)
    if not devices:
        return Undecided("no samples of active multiprocessors were taken while kernels ran", RULE.capture)
    low = {part.kernels.device: part for part in devices if part.kernels.rows.size}
    low = {device: part for device, part in low.items() if part.busy_ratio >= limits["busy_ratio"]}
    if not low:
        return found_or_clear(map(_active, devices))

    def active(kernels: ShortenKernels) -> tuple[str, tuple[Evidence, ...]]:
        part = low[kernels.device]
        return (
            f"kernels run {share_text(part.busy_ratio)} of the time, and {share_text(part.active.share)} of the "
            "multiprocessors are active while they do"
        ), (_active(part),)

    changes = [fill_device(part.kernels) for part in low.values()]
    return kernel_verdict(trace, PATTERN, changes, limits["saved_ratio"], active)


def _active(part: LowActivity) -> Evidence:
    return Evidence(
        f"multiprocessors active while kernels run on device {part.kernels.device[1]}",
        Quantity(part.active.share, "ratio"),
        f"{part.active.samples} samples in the steady steps",
        table="gpu_metrics",
    )


RULE = Rule(
    "KRN112",
    check,
    needs=(DEVICE_OPS, GPU_METRICS),
    reads=(*LINE_READS, API_CALLS, RANGES, DEVICES),
    limits={
        "saved_ratio": Limit.ratio(0.05, "fewer than one step in twenty is won back", HEALTHY),
        "busy_ratio": Limit.ratio(0.5, "a device that mostly waits has a larger loss", HEALTHY),
    },
    references=("https://docs.nvidia.com/nsight-systems/UserGuide/index.html#gpu-metrics",),
    symptom=True,
    capture="timesink capture nsys --gpu-metrics -- python train.py",
)
