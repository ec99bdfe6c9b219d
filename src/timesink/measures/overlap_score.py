"""How much of the time that stages could hide behind each other they do hide.

OverlapScore = (sum of stages - period) / (sum of stages - longest stage), 0 where stages run one after another, 1 where
the period is the longest stage. Stage times must be those of stages that contend with nobody, or the sum is too large.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a pipeline and its usual time per item or step."""

    name: str
    time_ns: float


@dataclass(frozen=True, slots=True)
class OverlapScore:
    """`period_ns`: from one item (or step) to the next. `score` is None for fewer than two stages that do any work."""

    stages: tuple[Stage, ...]
    period_ns: float

    @property
    def serial_ns(self) -> float:
        """One stage after another."""
        return sum(stage.time_ns for stage in self.stages)

    @property
    def longest(self) -> Stage:
        """The stage that no overlap hides; ties go to the first."""
        return max(self.stages, key=lambda stage: stage.time_ns)

    @property
    def hidden_ns(self) -> float:
        """Stage time that ran beside other stages, per period."""
        return max(0.0, self.serial_ns - self.period_ns)

    @property
    def bubble_ratio(self) -> float:
        """Share of the period in which the stages stood still, averaged over them."""
        if self.period_ns <= 0 or not self.stages:
            return 0.0
        return max(0.0, 1.0 - self.serial_ns / (len(self.stages) * self.period_ns))

    @property
    def headroom_ns(self) -> float:
        """What perfect overlap would take off the period."""
        return max(0.0, self.period_ns - self.longest.time_ns) if self.stages else 0.0

    @property
    def score(self) -> float | None:
        """Hidden time over the time that could be hidden, 0 to 1."""
        if not self.stages:
            return None
        possible = self.serial_ns - self.longest.time_ns
        return min(1.0, self.hidden_ns / possible) if possible > 0 else None


def ideal_bubble_ratio(stages: int, micro_batches: int) -> float:
    """Share of the time a pipeline of equal stages stands still with so many micro-batches: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)
