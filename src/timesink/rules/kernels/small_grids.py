"""Kernels with fewer blocks than multiprocessors.

Most of the device is idle while they run.

## What it detects
Kernels longer than 10 us that run alone with a grid of less than half as many blocks as there are multiprocessors.

## Why it matters
A block runs on one multiprocessor. Eight blocks on an H200 use 8 of 132: the device counts as busy and does a sixteenth
of what it could.

## How it is measured
Grid over multiprocessors, from the launch record. Spread evenly, the kernel would take that share of its time at best;
half of that gain is expected, since cutting the work into more pieces costs something.

## What to do
Cut the work into more blocks: split long rows or the inner dimension (split-K), process several inputs at once, or run
independent kernels of this kind on two streams.

## When it misleads
A kernel that is bound by one long dependent chain cannot be cut. One to which pages of unified memory move while it
runs waits for them too, so that its gain is only bounded: of two such kernels in first exercises of CUDA, cut into
many blocks, one went from 184 ms to 109 ms and one from 2.5 ms to 2.8 ms. Persistent kernels choose a small grid on
purpose, as collectives do (these are left out).
"""

from __future__ import annotations

from dataclasses import replace

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule
from timesink.diagnosis.verdicts import Bottleneck, Found, Undecided, Verdict
from timesink.measures.kernels.small_grids import grids_known, small_grids
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, EVENT_WAITS, GPU_METRICS, RANGES
from timesink.model.trace import Trace
from timesink.rules.kernels._family import LINE_READS, KernelPattern, kernel_verdict
from timesink.whatif.changes.kernels import spread_grids

PATTERN = KernelPattern(
    bottleneck=Bottleneck.OCCUPANCY,
    subject="kernels with fewer blocks than multiprocessors",
    how="kernels keep twice the share of multiprocessors they fill; over the steady steps",
    advice="Cut the work into more blocks: split long rows or the inner dimension, batch several inputs, or run "
    "independent kernels of this kind at once.",
    verify="Capture again: the kernel that does this work has at least one block per multiprocessor and is shorter.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where spreading these kernels wins more than the limit."""
    if not grids_known(trace):
        return Undecided("no grid, or no count of multiprocessors, is recorded", RULE.capture)
    verdict = kernel_verdict(trace, PATTERN, map(spread_grids, small_grids(trace)), limits["saved_ratio"])
    paged = {kernels.device for kernels in small_grids(trace) if kernels.groups["paged"].size}
    if not paged or not isinstance(verdict, Found):
        return verdict
    bounded = (replace(one, change=None) if paged & one.claim.intervals.keys() else one for one in verdict.findings)
    return Found(tuple(bounded))


RULE = Rule(
    "KRN107",
    check,
    needs=(DEVICE_OPS,),
    reads=(*LINE_READS, API_CALLS, RANGES, DEVICES, EVENT_WAITS, GPU_METRICS),
    limits={"saved_ratio": Limit.ratio(0.03, "fewer than three steps in a hundred are won back", HEALTHY)},
    references=("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#occupancy",),
)
