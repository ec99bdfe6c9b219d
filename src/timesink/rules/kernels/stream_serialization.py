"""Streams that could run at once take turns.

## What it detects
Kernels of two or more streams that follow each other without overlap, while streams wait for events of each other, and
whose grids leave room for both.

## Why it matters
A second stream is there so that kernels overlap. If each waits for the other it only adds the cost of the waits.

## How it is measured
Neighbouring kernels on different streams are paired. With f the share of multiprocessors a grid fills, a pair needs
at least max(t_a, t_b, f_a t_a + f_b t_b); what it takes longer is the gain. Cautiously, two fifths of it. Kernels that
fill the device leave nothing to win.

## What to do
Record one event where a result is really needed and wait for that one; take the waits in the loop away; keep work off
the default stream, which waits for all others.

## When it misleads
The wait may be a real dependency: then the streams are one chain, and one stream would do. Two kernels that are
bound by memory share its bandwidth and gain less.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, NotApplicable, Quantity, Verdict
from timesink.measures.kernels.small_grids import serialized_streams
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, EVENT_WAITS, GPU_METRICS, RANGES
from timesink.model.trace import Trace
from timesink.rules.kernels._family import LINE_READS, KernelPattern, kernel_verdict
from timesink.whatif.changes.kernels import ShortenKernels, overlap_streams

PATTERN = KernelPattern(
    bottleneck=Bottleneck.STREAM_SERIALIZATION,
    subject="kernels that wait for one on another stream",
    how="of each pair of neighbours on two streams, what both take longer than at once; over the steady steps",
    advice="Take the event waits between the streams out of the loop and wait once, where a result is needed; keep "
    "work off the default stream.",
    verify="Capture again: kernels of both streams overlap, and the step is shorter.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where streams take turns, wait for events, and leave room."""
    devices = serialized_streams(trace)
    if not devices:
        return NotApplicable("kernels ran on one stream only, or always overlapped")
    waiting = {streams.device: streams for streams in devices if streams.waits > limits["waits"]}

    def turns(kernels: ShortenKernels) -> tuple[str, tuple[Evidence, ...]]:
        streams = waiting[kernels.device]
        names = ", ".join(str(stream) for stream in streams.streams)
        words = f"streams {names} take turns {streams.turns:.0f} times per step, with {streams.waits:.0f} event waits"
        return words, (_waits(streams.device[1], streams.waits, limits),)

    if not waiting:
        return found_or_clear(
            Evidence(f"event waits per step on device {streams.device[1]}", Quantity(streams.waits, "waits"), "")
            for streams in devices
        )
    serial = [overlap_streams(streams.serial) for streams in waiting.values()]
    return kernel_verdict(trace, PATTERN, serial, limits["saved_ratio"], turns)


def _waits(device: int, count: float, limits: Limits) -> Evidence:
    return Evidence(
        f"event waits per step on device {device}",
        Quantity(count, "waits"),
        "edges or calls that make a stream wait for an event",
        limit=Quantity(limits["waits"], "waits"),
    )


RULE = Rule(
    "STR101",
    check,
    needs=(DEVICE_OPS,),
    reads=(*LINE_READS, API_CALLS, RANGES, DEVICES, EVENT_WAITS, GPU_METRICS),
    limits={
        "saved_ratio": Limit.ratio(0.03, "fewer than three steps in a hundred are won back", HEALTHY),
        "waits": Limit(
            4,
            "waits",
            "a step that forks and joins two streams once needs that many waits",
            "fork and join of two streams: two waits each",
        ),
    },
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#concurrent-kernel-execution",),
)
