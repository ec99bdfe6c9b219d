"""Kernels with fewer blocks than the device has multiprocessors leave most of it idle.

## What it detects
Kernels longer than 15 us that run alone with a grid of less than half as many blocks as there are multiprocessors.

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
A kernel that is bound by one long dependent chain cannot be cut. Persistent kernels choose a small grid on purpose, as
collectives do (these are left out).
"""

from __future__ import annotations

from timesink.diagnosis.rule import Facts, Limits, Rule
from timesink.diagnosis.verdicts import Bottleneck, Card, Limit, Undecided, Verdict
from timesink.measures.kernels.small_grids import grids_known, small_grids
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, EVENT_WAITS, HOST_OPS, RANGES
from timesink.rules.kernels._family import KernelPattern, kernel_verdict

PATTERN = KernelPattern(
    bottleneck=Bottleneck.OCCUPANCY,
    subject="kernels with fewer blocks than multiprocessors",
    how="kernels keep twice the share of multiprocessors they fill; over the steady steps",
    advice="Cut the work into more blocks: split long rows or the inner dimension, batch several inputs, or run "
    "independent kernels of this kind at once.",
    verify="Capture again: the kernel that does this work has at least one block per multiprocessor and is shorter.",
)


def check(facts: Facts, limits: Limits) -> Verdict:
    """Found per device where spreading these kernels wins more than the limit."""
    if not facts(grids_known):
        return Undecided("no grid, or no count of multiprocessors, is recorded", RULE.capture)
    return kernel_verdict(facts, PATTERN, facts(small_grids), limits["saved_ratio"])


RULE = Rule(
    card=Card(
        code="KRN107",
        name="grids-small",
        summary="kernels with fewer blocks than multiprocessors",
        doc=__doc__ or "",
        since="0.1.0",
        references=("https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#occupancy",),
    ),
    needs=(DEVICE_OPS,),
    reads=(API_CALLS, HOST_OPS, RANGES, DEVICES, EVENT_WAITS),
    check=check,
    limits={
        "saved_ratio": Limit(
            default=0.03,
            unit="ratio",
            why="fewer than three steps in a hundred are won back",
            source="benchmarks/faults: healthy programs stay under it",
        ),
    },
)
