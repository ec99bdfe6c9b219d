"""Whether fault and fix computed the same: the receipts of their first steps agree."""

from __future__ import annotations

import math
from collections.abc import Sequence


def equal(fault: Sequence[float], fix: Sequence[float], tolerance: float) -> bool:
    return all(
        math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-3)
        for a, b in zip(fault, fix, strict=True)
    )
