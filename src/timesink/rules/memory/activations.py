"""Activations kept for the backward pass are most of the memory peak.

## What it detects
Tensors of the forward pass, kept for the backward pass, that hold more of the peak than the limit.

## Why it matters
Activations grow with batch and sequence, and can be recomputed: full recomputation keeps one input per block and
costs one more forward pass.

## How it is measured
Bytes alive at the peak that forward allocated and backward freed, over the peak. What recomputation would cost is
read off the same record: the host time from the first allocation of forward to the first of backward, per step.

## What to do
Recompute blocks (`torch.utils.checkpoint`), attention first; use flash attention; cut the batch and accumulate; shard
the sequence.

## When it misleads
A program that fits has no need to trade time for memory. The host may run ahead of the device, so the time stated is
what the host saw.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Evidence, Quantity
from timesink.measures.memory.classes import Category
from timesink.measures.memory.ledger import MemoryLedger, forward_share
from timesink.rules.memory._family import SharePattern, share_rule


def _kept(ledger: MemoryLedger) -> int | None:
    size = ledger.at_peak()[Category.ACTIVATIONS]
    return size if size or ledger.classes.phases.has_backward else None


def _cost(ledger: MemoryLedger) -> tuple[Evidence, ...]:
    """One more forward pass, as a share of the step."""
    share = forward_share(ledger)
    how = (
        "host time from the first allocation of forward to that of backward, over the step: what recomputing all costs"
    )
    return (
        ()
        if share is None
        else (Evidence("one more forward pass", Quantity(share, "ratio"), how, None, "memory_events"),)
    )


PATTERN = SharePattern(
    measure=_kept,
    label="activations at the peak",
    how="bytes alive that forward allocated and backward freed, over the peak",
    subject="of activations are kept for the backward pass",
    advice="Recompute blocks in the backward pass, or use a smaller micro-batch.",
    verify="Take the snapshot again: activations fall, and the step grows by at most one forward pass.",
    more=_cost,
)

RULE = share_rule(
    "MEM106",
    __name__,
    PATTERN,
    Limit.ratio(
        0.5,
        "above a half no other part can free as much",
        "judgement; shares of 23 measured programs stand in docs/explanation/memory-accuracy.md",
    ),
    "https://arxiv.org/abs/2205.05198",
)
