"""What a builder returns: the same work done twice, once with the fault and once with the fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Step = Callable[[], Tensor]


def nothing() -> None:
    """Leave everything as it is."""


@dataclass(frozen=True, slots=True)
class Program:
    """One fault at one severity.

    Each step returns a small device tensor, its receipt. After the same number of steps from the start, `fault` and
    `fix` owe equal receipts within the relative `tolerance`. `period` is the number of steps after which the work
    repeats; `settle` steps are run untimed before each timed block, enough to use up what a loader had prefetched.
    `slow` marks steps of a tenth of a second or more, of which fewer are timed. `halves`: of two faults, the first
    mended alone and the second mended alone, which owe the same receipts.
    """

    fault: Step
    fix: Step
    tolerance: float = 1e-3
    period: int = 1
    settle: int = 2
    slow: bool = False
    close: Callable[[], None] = nothing
    halves: tuple[Step, Step] | None = None
