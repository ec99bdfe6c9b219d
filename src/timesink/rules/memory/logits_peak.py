"""Logits and their gradient make up the memory peak.

## What it detects
A peak at which the tensors made by the head and the loss (logits, their fp32 cast, log-probabilities, and the
gradients of these) hold more than the limit.

## Why it matters
Eager cross-entropy over a vocabulary of V keeps 4 bytes per token and word and needs 8 more while it runs backward:
with V of 128,000 that is 1.5 MB per token, often more than all blocks together. It caps batch and sequence alone.

## How it is measured
Bytes alive at the peak whose allocation stack names cross-entropy, log-softmax, negative log-likelihood or logits,
over the peak.

## What to do
Compute the loss in chunks of the sequence with recomputation, or with a fused linear cross-entropy; leave out logits
of positions that are not predicted; shard the vocabulary over tensor-parallel ranks.

## When it misleads
Where only Python stacks were recorded, gradients made by the autograd engine carry no name and are not counted, so
the share is on the low side.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.knowledge.frames import LOSS
from timesink.measures.memory.ledger import MemoryLedger
from timesink.model.names import matches
from timesink.rules.memory._family import SharePattern, share_rule


def _loss_bytes(ledger: MemoryLedger) -> int:
    """Alive at the peak, and allocated below a loss."""
    return ledger.alive_bytes(ledger.peak, matches(ledger.classes.lives.frame["stack"], LOSS).to_numpy())


PATTERN = SharePattern(
    measure=_loss_bytes,
    label="logits and loss at the peak",
    how="bytes alive whose stack names a loss or logits, over the peak",
    subject="of logits and loss tensors are alive at once",
    advice="Compute the loss in chunks of the sequence, or with a fused linear cross-entropy.",
    verify="Take the snapshot again: the peak falls, or lies elsewhere.",
)

RULE = share_rule(
    "MEM103",
    __name__,
    PATTERN,
    Limit.ratio(
        0.25,
        "below a quarter, chunking the loss moves the peak by less than halving the batch would",
        "judgement; shares of 23 measured programs stand in docs/explanation/memory-accuracy.md",
    ),
    "https://arxiv.org/abs/2411.09009",
)
