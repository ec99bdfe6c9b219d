"""Optimizer state is the largest part of the memory peak.

## What it detects
Optimizer state (moments, master weights) that holds more of the peak than the limit.

## Why it matters
Adam keeps two numbers per parameter, twice as much as the weights. Where that is the largest part, smaller batches
free little; sharding or fewer bits do.

## How it is measured
Bytes alive at the peak that the optimizer allocated and kept, over the peak.

## What to do
Shard states over data-parallel ranks (ZeRO-1, FSDP2); keep them in 8 bits; use an optimizer with one state or
factored ones.

## When it misleads
Small batches on purpose (a debugging run) make any state look large.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.measures.memory.classes import Category
from timesink.rules.memory._family import SharePattern, share_rule

PATTERN = SharePattern(
    measure=lambda ledger: ledger.at_peak()[Category.OPTIMIZER_STATE],
    label="optimizer state at the peak",
    how="bytes alive that the optimizer allocated and kept, over the peak",
    subject="of optimizer state are alive",
    advice="Shard optimizer states over ranks, or keep them in 8 bits.",
    verify="Take the snapshot again: optimizer state falls by the factor chosen.",
)

RULE = share_rule(
    "MEM105",
    __name__,
    PATTERN,
    Limit.ratio(
        0.4,
        "Adam's state is half of all model states; above two fifths of the peak little else is left",
        "ZeRO, arXiv:1910.02054: 8 of 16 bytes per parameter",
    ),
    "https://arxiv.org/abs/1910.02054",
)
