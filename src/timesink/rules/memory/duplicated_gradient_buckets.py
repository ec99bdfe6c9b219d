"""DDP's buckets are a second copy of the gradients.

## What it detects
Communication buckets of the size of the gradients, alive beside them.

## Why it matters
DDP copies gradients into buckets to reduce them. Without `gradient_as_bucket_view=True` both stay: 4 bytes per
parameter twice.

## How it is measured
Where most gradients are alive: the smaller of their bytes and those of blocks that DDP's reducer allocated, over the
peak.

## What to do
Pass `gradient_as_bucket_view=True` to `DistributedDataParallel`.

## When it misleads
Code that detaches or replaces `.grad` may need gradients of their own.
"""

from __future__ import annotations

import numpy as np

from timesink.diagnosis.rule import Limit
from timesink.knowledge.frames import REDUCER
from timesink.measures.memory.classes import CODES, Category
from timesink.measures.memory.ledger import MemoryLedger
from timesink.model.names import matches
from timesink.rules.memory._family import SharePattern, share_rule


def _twice(ledger: MemoryLedger) -> int | None:
    """Bytes that are there twice, where most gradients are alive."""
    if not ledger.classes.phases.has_backward:
        return None
    gradients = ledger.live_bytes[CODES[Category.GRADIENTS]]
    peak = int(np.argmax(gradients))
    reducer = matches(ledger.classes.lives.frame["stack"], REDUCER).to_numpy()
    return min(int(gradients[peak]), ledger.alive_bytes(peak, reducer))


PATTERN = SharePattern(
    measure=_twice,
    label="gradients held twice",
    how="the smaller of gradients and reducer buckets where most gradients are alive, over the peak",
    subject="of gradients are held a second time in buckets",
    advice="Pass gradient_as_bucket_view=True to DistributedDataParallel.",
    verify="Take the snapshot again: buckets stay, and gradients of their own are gone.",
)

RULE = share_rule(
    "MEM108",
    __name__,
    PATTERN,
    Limit.ratio(
        0.02,
        "below it the second copy is smaller than what rounding and fragmentation take",
        "rounding of measured programs is 0.1 to 3 % (docs/explanation/memory-accuracy.md)",
    ),
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
