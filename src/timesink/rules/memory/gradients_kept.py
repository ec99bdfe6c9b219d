"""Gradients of the last step stay alive through the next forward pass.

## What it detects
Gradients that are alive where the forward pass holds most memory.

## Why it matters
Forward piles up activations; gradients of the step before, which nothing reads any more, lie below them and raise the
peak by up to 4 bytes per parameter.

## How it is measured
Bytes of gradients alive at the highest total among forward events, over the peak.

## What to do
Call `optimizer.zero_grad(set_to_none=True)` directly after `optimizer.step()`, or before the forward pass; do not
keep references to `.grad`.

## When it misleads
With gradient accumulation the gradients have to stay. Gradients that are views into DDP buckets stay as well; those
count as communication here.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.measures.memory.classes import Category
from timesink.measures.memory.ledger import MemoryLedger
from timesink.rules.memory._family import SharePattern, share_rule


def _kept(ledger: MemoryLedger) -> int | None:
    """Gradients alive at the forward pass's own peak."""
    peak = ledger.forward_peak()
    return None if peak is None else ledger.alive_bytes(peak, ledger.classes.of(Category.GRADIENTS))


PATTERN = SharePattern(
    measure=_kept,
    label="gradients alive in forward",
    how="bytes of gradients alive at the highest total of forward events, over the peak",
    subject="of gradients lie below the forward pass",
    advice="Set gradients to None after optimizer.step and before the next forward pass.",
    verify="Take the snapshot again: no gradient is alive during forward.",
)

RULE = share_rule(
    "MEM104",
    __name__,
    PATTERN,
    Limit.ratio(
        0.05,
        "gradients set to None leave nothing, so what stays is more than a stray tensor",
        "measured programs that set gradients to None keep none (docs/explanation/memory-accuracy.md)",
    ),
    "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
)
