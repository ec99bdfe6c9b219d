"""Chains of eager elementwise kernels.

Each kernel reads and writes memory once more.

## What it detects
Runs of at least three neighbouring elementwise or reducing kernels of one size on a stream that no compiler generated:
an activation or a norm written out operation by operation.

## Why it matters
Each kernel of such a chain is bound by memory. Fused, the chain reads its inputs and writes its result once.

## How it is measured
By names and order, so it needs no shapes. The longest member of a run stands for the fused kernel, since it moves at
least what the run has to move; expected, a twentieth of the others' time stays, cautiously two fifths. Members of
other causes are left out: casts, layout changes, optimizer steps, float64, attention written out.

## What to do
Use the fused operator where there is one (`F.gelu`, `F.layer_norm`, `F.silu`), or `torch.compile` the module.

## When it misleads
Neighbours on a stream need not depend on each other; then they fuse only horizontally. A step whose host is late wins
from fewer launches, not from less memory traffic.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.kernels.fusion import pointwise_chains
from timesink.rules.kernels._family import KernelPattern, pattern_rule
from timesink.whatif.changes.kernels import fuse_pointwise

PATTERN = KernelPattern(
    bottleneck=Bottleneck.POINTWISE_UNFUSED,
    subject="eager elementwise kernels in chains, the longest of each aside,",
    how="of each run the longest kernel and a twentieth of the others' time stay; over the steady steps",
    advice="Use the fused operator where there is one (gelu, layer_norm, silu), or torch.compile the module.",
    verify="Capture again: one kernel stands where the chain stood, and takes about as long as the longest of it.",
)

RULE = pattern_rule(
    "KRN104",
    __name__,
    PATTERN,
    lambda trace: map(fuse_pointwise, pointwise_chains(trace)),
    Limit.ratio(
        0.032,
        "a step of well-written eager code has that much to fuse around its products",
        "benchmarks/faults, benchmarks/ranks: healthy programs stay under 2.1 % and 3.1 %",
    ),
    "https://docs.pytorch.org/docs/stable/torch.compiler.html",
)
