"""What was measured: the step of every set of changes of every program, and what orders of changes would have won."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from benchmarks.ladders.adopt import MEASURED
from benchmarks.ladders.suite import find, slug

Order = tuple[str, ...]
NOISE = 0.02
"""As a share of the step: two gains that differ by less are the same."""


@cache
def everything() -> dict[str, dict[str, Any]]:
    return json.loads(MEASURED.read_text())


class Truth:
    """Steps in ms of one program by its set of changes.

    A step is the shortest of its blocks in all rounds, or in the one that is asked for: what else runs on a host only
    ever makes one longer.
    """

    def __init__(self, name: str, only: int | None = None) -> None:
        self.ladder = find(name)
        self.steps: dict[frozenset[str], float] = {}
        measured = everything()[name]
        for changes in self.ladder.variants():
            found = measured[slug(changes)]
            rounds = found["blocks_ms"] if only is None else found["blocks_ms"][only : only + 1]
            blocks = [block for of_round in rounds for block in of_round]
            if blocks and found["equal"]:
                self.steps[frozenset(changes)] = min(blocks)

    @property
    def base_ms(self) -> float:
        return self.steps[frozenset()]

    def gain(self, changes: Iterable[str]) -> float | None:
        """What a set of changes wins, as a share of the step; None where its losses differ from the base's."""
        step = self.steps.get(frozenset(changes))
        return None if step is None else 1 - step / self.base_ms

    def best(self) -> Order:
        """The changes that win most alone, all that are the same within noise."""
        alone = {name: gain for name in self.ladder.changes if (gain := self.gain([name])) is not None}
        most = max(alone.values())
        return tuple(name for name, gain in alone.items() if gain >= most - NOISE)

    def spent_ms(self, order: Sequence[str]) -> float:
        """The sum of the steps on the way: what one lives with while one change is made after another."""
        rungs = (self.steps.get(frozenset(order[: count + 1])) for count in range(len(order)))
        return sum(step if step is not None else self.base_ms for step in rungs)

    def best_order(self) -> Order:
        return min(itertools.permutations(self.ladder.changes), key=self.spent_ms)
