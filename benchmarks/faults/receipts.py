"""Whether fault and fix computed the same: the receipts of their first steps agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def equal(fault: Sequence[float], fix: Sequence[float], tolerance: float) -> bool:
    return all(
        math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-3)
        for a, b in zip(fault, fix, strict=True)
    )


def same(receipts: Mapping[str, Sequence[float]], tolerance: float) -> bool:
    """Whether every variant computed what the first did."""
    first, *others = receipts.values()
    return all(equal(first, other, tolerance) for other in others)
