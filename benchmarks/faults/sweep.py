"""How far each assumption matters: every one moved by a quarter, down and up, and the captures diagnosed again.

python -m benchmarks.faults.score --sweep [--split tune] [--only a,b]

The captures with the severest form of each fault, told the step without a profiler. Only assumptions that a capture's
diagnosis reads are moved for it. Of each, the table shows on how many captures it was read, on how many a move changes
the verdict or a price, by how much at most (in points of the step), and what it does to the mean error of prices.
`sweep.json` keeps the figures for the page of assumptions. One that is never read here matters to inputs that the
captures are not (kernel reports, memory records): its tests speak for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timesink.knowledge.assumption import Assumption
from timesink.knowledge.assumptions import ALL

SIDES = (0.75, 1.25)
KEPT = Path(__file__).with_name("sweep.json")
HEADINGS = ("assumption", "read by", "changed", "verdicts", "points at most", "MAE at 3/4", "MAE", "MAE at 5/4")
Figures = tuple[str, float | None, float | None]
"""The verdict of one diagnosis, what its findings promise, and by how much that is off, as shares of the step."""


@dataclass(slots=True)
class Moved:
    """One assumption over all captures: figures as it is, and at each side."""

    base: list[Figures] = field(default_factory=list)
    sides: tuple[list[Figures], list[Figures]] = field(default_factory=lambda: ([], []))

    @property
    def verdicts(self) -> int:
        """Captures whose verdict another figure changes."""
        return sum(any(one[0] != was[0] for one in ones) for was, *ones in zip(self.base, *self.sides, strict=True))

    @property
    def changed(self) -> int:
        """Captures of which another figure changes anything."""
        return sum(any(one != was for one in ones) for was, *ones in zip(self.base, *self.sides, strict=True))

    @property
    def points(self) -> float:
        """By how much a price moves at most, in points of the step."""
        moves = [
            abs((one[1] or 0.0) - (was[1] or 0.0))
            for side in self.sides
            for was, one in zip(self.base, side, strict=True)
        ]
        return 100 * max(moves, default=0.0)

    def errors(self) -> tuple[float | None, ...]:
        """The mean error of prices at three quarters, as it is, and at five quarters, in points of the step."""
        return tuple(_mean_error(part) for part in (self.sides[0], self.base, self.sides[1]))


def _mean_error(figures: Sequence[Figures]) -> float | None:
    errors = [error for _, _, error in figures if error is not None]
    return 100 * sum(errors) / len(errors) if errors else None


@contextmanager
def watched() -> Iterator[set[str]]:
    """The names of the assumptions that are read meanwhile."""
    seen: set[str] = set()
    slots = {name: getattr(Assumption, name) for name in ("low", "value", "high")}

    def reading(slot: Any) -> property:
        def read(assumption: Assumption) -> float:
            seen.add(assumption.name)
            return float(slot.__get__(assumption))

        return property(read, slot.__set__)

    for name, slot in slots.items():
        setattr(Assumption, name, reading(slot))
    try:
        yield seen
    finally:
        for name, slot in slots.items():
            setattr(Assumption, name, slot)


@contextmanager
def moved(name: str, factor: float) -> Iterator[None]:
    """One assumption with all of its figures times `factor`; a share stays one."""
    assumption = ALL[name]
    was = assumption.low, assumption.value, assumption.high
    most = 1.0 if all(0 <= figure <= 1 for figure in was) else float("inf")
    assumption.low, assumption.value, assumption.high = (min(figure * factor, most) for figure in was)
    try:
        yield
    finally:
        assumption.low, assumption.value, assumption.high = was


def rows(found: dict[str, Moved]) -> list[tuple[str, ...]]:
    """The table, what matters most first; assumptions that no capture reads last."""
    ordered = sorted(ALL, key=lambda name: (-found[name].points, -found[name].changed) if name in found else (1.0, 0))
    return [_row(name, found.get(name, Moved())) for name in ordered]


def _row(name: str, over: Moved) -> tuple[str, ...]:
    errors = ("–" if error is None else f"{error:.2f}" for error in over.errors())
    return name, str(len(over.base)), str(over.changed), str(over.verdicts), f"{over.points:.2f}", *errors


def keep(found: dict[str, Moved], captures: int) -> None:
    """Write what the page of assumptions says of each."""
    kept = {
        name: {
            "read": len(over.base),
            "changed": over.changed,
            "verdicts": over.verdicts,
            "points": round(over.points, 2),
        }
        for name, over in sorted(found.items())
    }
    KEPT.write_text(json.dumps({"captures": captures, "assumptions": kept}, indent=1) + "\n", encoding="utf-8")
