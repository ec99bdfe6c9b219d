"""Blocks of steps without a profiler: the device is waited for before and after each, and at no step within."""

from __future__ import annotations

import time
from collections.abc import Callable


def blocks_ms(step: Callable[[], object], wait: Callable[[], object], blocks: int, steps: int) -> list[float]:
    """The mean step of each block in milliseconds; `wait` returns when the device has done what was asked of it."""
    taken = []
    for _ in range(blocks):
        wait()
        begun = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        taken.append((time.perf_counter() - begun) / steps * 1e3)
    return taken
