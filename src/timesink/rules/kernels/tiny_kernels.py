"""A busy device runs very many kernels of a few microseconds.

Starting and ending them takes a large part of their time.

## What it detects
Kernels shorter than 10 us, collectives aside, that together take more than the limit of a step on a device that hardly
waits: in a CUDA graph, or behind a host that is far ahead.

## Why it matters
A kernel takes 2 to 3 us however little it does: its blocks start, read from memory and end. A thousand such kernels are
some milliseconds, in which the device counts as busy. Nothing on the host makes them cheaper.

## How it is measured
Count and time of the kernels below 10 us in the steady steps. Of each, the floor of a kernel is expected to go where
three of four such kernels are merged into others.

## What to do
Fuse them (`torch.compile`, a kernel written for the whole chain), batch inputs so that one kernel does the work of
many, or use the fused or `foreach` form of the operation. A CUDA graph takes the launches off the host, and leaves this
time as it is.

## When it misleads
Kernels that depend on each other through the whole device cannot always be merged. Where the device waits for
launches, that is the larger loss, and another rule names it.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, NotApplicable, Quantity, Verdict
from timesink.measures.kernels.tiny_kernels import TinyKernels, tiny_kernels
from timesink.model.trace import Trace
from timesink.rules.kernels._family import KernelPattern, kernel_rule, kernel_verdict
from timesink.units import share_text
from timesink.whatif.changes.kernels import ShortenKernels, merge_tiny

PATTERN = KernelPattern(
    bottleneck=Bottleneck.POINTWISE_UNFUSED,
    subject="kernels under 10 us",
    how="three of four such kernels are merged into others, and what starting one takes goes; over the steady steps",
    advice="Fuse them (torch.compile, foreach or fused forms), or batch inputs so that one kernel does the work of "
    "many; a CUDA graph alone leaves this time as it is.",
    verify="Capture again: there are fewer kernels per step, and the step is shorter.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per busy device on which such kernels are many."""
    devices = tiny_kernels(trace)
    if not devices:
        return NotApplicable("no kernel is shorter than 10 us")
    busy = {tiny.kernels.device: tiny for tiny in devices if tiny.busy_ratio >= limits["busy_ratio"]}
    many = {device: tiny for device, tiny in busy.items() if tiny.per_step >= limits["kernels"]}
    if not many:
        return found_or_clear(_count(tiny, limits) for tiny in devices)

    def counted(kernels: ShortenKernels) -> tuple[str, tuple[Evidence, ...]]:
        tiny = many[kernels.device]
        words = f"{tiny.per_step:.0f} of {tiny.of_per_step:.0f} kernels, on a device that is busy"
        return f"{words} {share_text(tiny.busy_ratio)}", (_count(tiny, limits),)

    changes = [merge_tiny(tiny.kernels) for tiny in many.values()]
    return kernel_verdict(trace, PATTERN, changes, limits["saved_ratio"], counted)


def _count(tiny: TinyKernels, limits: Limits) -> Evidence:
    return Evidence(
        f"kernels under 10 us per step on device {tiny.kernels.device[1]}",
        Quantity(tiny.per_step, "kernels"),
        "counted in the steady steps",
        limit=Quantity(limits["kernels"], "kernels"),
    )


RULE = kernel_rule(
    "KRN111",
    check,
    limits={
        "kernels": Limit(100, "kernels", "fewer are soon fused by hand, and win little", HEALTHY),
        "busy_ratio": Limit.ratio(0.9, "a device that waits longer is short of launches", HEALTHY),
        "saved_ratio": Limit.ratio(0.1, "merging kernels is work: it should win one step in ten", HEALTHY),
    },
    references=("https://docs.pytorch.org/docs/stable/torch.compiler.html",),
    symptom=True,
)
