"""The clock of the device is below its highest while it works.

Power or heat holds it down, or somebody has locked it.

## What it detects
A mean clock of the multiprocessors below nine tenths of the device's highest while kernels run, in a capture with
sampled counters.

## Why it matters
What is bound by computation takes longer in proportion. Runs on two machines, or an hour apart, cannot be compared
where their clocks differ.

## How it is measured
The counter "GPC Clock Frequency" of Nsight Systems, averaged over the samples taken while kernels of the steady steps
ran, over the highest clock that the driver states. At that clock kernels would take that share of their time at best;
memory keeps its own clock, so half of the gain is expected and none is sure.

## What to do
Look at `nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK`: a power cap, heat, or locked application clocks. Large
matrix products reach the power limit of healthy devices; then fewer bits, sparser work or a higher cap help, and
nothing is broken.

## When it misleads
A profiler or an administrator may hold the clock at base on purpose. A device that ramps up from idle is slow for some
milliseconds at the start of a short capture.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Quantity, Undecided, Verdict
from timesink.measures.counters.sampled import SlowClock, slow_clocks
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, GPU_METRICS, RANGES
from timesink.model.trace import Trace
from timesink.rules.kernels._family import LINE_READS, KernelPattern, kernel_verdict
from timesink.units import share_text
from timesink.whatif.changes.kernels import ShortenKernels, full_clock

PATTERN = KernelPattern(
    bottleneck=Bottleneck.CLOCK_THROTTLED,
    subject="kernels below the highest clock",
    how="half of what they would gain at the highest clock; over the steady steps",
    advice="Look at nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE,CLOCK for what holds the clock down: a power cap, "
    "heat, or locked clocks.",
    verify="Capture again with the counters: the clock is higher while kernels run.",
)
_MHZ = 1e6


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device whose clock is low under load."""
    devices = {clock.device: clock for clock in slow_clocks(trace)}
    if not devices:
        return Undecided("no samples of the clock were taken, or the highest clock is not stated", RULE.capture)
    slow = {
        device: clock for device, clock in devices.items() if clock.clock_hz < limits["clock_ratio"] * clock.most_hz
    }
    if not slow:
        return found_or_clear(_ratio(clock, limits) for clock in devices.values())

    def held(kernels: ShortenKernels) -> tuple[str, tuple[Evidence, ...]]:
        clock = slow[kernels.device]
        words = (
            f"the clock is {clock.clock_hz / _MHZ:.0f} MHz, {share_text(clock.clock_hz / clock.most_hz)} of the highest"
        )
        return words, (_ratio(clock, limits),)

    return kernel_verdict(
        trace, PATTERN, [full_clock(clock.kernels) for clock in slow.values()], limits["saved_ratio"], held
    )


def _ratio(clock: SlowClock, limits: Limits) -> Evidence:
    return Evidence(
        f"clock of device {clock.device[1]} while kernels run",
        Quantity(clock.clock_hz / clock.most_hz, "ratio"),
        f"{clock.samples} samples, over {clock.most_hz / _MHZ:.0f} MHz",
        limit=Quantity(limits["clock_ratio"], "ratio"),
        table="gpu_metrics",
    )


RULE = Rule(
    "KRN113",
    check,
    needs=(DEVICE_OPS, GPU_METRICS, DEVICES),
    reads=(*LINE_READS, API_CALLS, RANGES),
    limits={
        "clock_ratio": Limit.ratio(0.9, "clocks wander by some per cent", "an H100 under load: 1.98 of 1.98 GHz"),
        "saved_ratio": Limit.ratio(0.02, "fewer than two steps in a hundred are won back", HEALTHY),
    },
    references=("https://docs.nvidia.com/deploy/nvidia-smi/index.html",),
    symptom=True,
    capture="timesink capture nsys --gpu-metrics -- python train.py",
)
