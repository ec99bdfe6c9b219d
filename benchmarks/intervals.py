"""Whether the intervals of prices hold what was measured, by kind: `python -m benchmarks.intervals OWN.json`.

`OWN.json` is what `python -m benchmarks.faults.score --json` writes. Sets that prices were set on say nothing
here: only those that were set aside count. A kind's intervals are widened by what the other sets ask for, one set left
out at a time, and never by that set itself: the factor on either side of the price within which four of five of their
truths lie. A kind with fewer than eight truths has no interval that could be trusted: its prices are bounds.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.faults.score import table
from benchmarks.faults.scoring import Foretold, Observation

LEAST: Final = 8
"""Truths of a kind, below which it is a bound."""
HELD: Final = 0.8
"""The share of truths that an interval is to hold."""
NARROWEST: Final = 0.01
"""Of the step: as far as two runs of a program are apart. No side of an interval is narrower."""
HEADINGS: Final = ("kind", "truths", "sets", "inside", "width", "widened by", "inside, set left out", "width", "is")
Kinds = Mapping[str, Sequence[Observation]]


def by(key: Callable[[Observation], str], items: Iterable[Observation]) -> Kinds:
    found: dict[str, list[Observation]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def truths(observations: Iterable[Observation]) -> list[Observation]:
    """The priced faults of sets that nothing was set on, of which a gain was foretold."""
    return [one for one in observations if one.priced and one.foretold and not one.split.endswith("tune")]


def off(item: Observation) -> float:
    """How far the truth is from the price, in sides of its interval: at most 1 inside."""
    told = item.foretold
    assert told is not None
    side = told.high - told.value if item.gain > told.value else told.value - told.low
    return abs(item.gain - told.value) / max(side, NARROWEST)


def width(item: Observation, factor: float = 1.0) -> float:
    """Of the step, the interval widened by a factor."""
    told = item.foretold
    assert told is not None
    sides = (max(told.value - told.low, NARROWEST), max(told.high - told.value, NARROWEST))
    return min(told.value + factor * sides[1], 1.0) - max(told.value - factor * sides[0], -1.0)


def factor_of(items: Sequence[Observation]) -> float:
    """By what intervals are widened to hold four of five of these, and never made narrower."""
    offs = sorted(map(off, items))
    return max(offs[min(int(HELD * len(offs)), len(offs) - 1)], 1.0) if offs else 1.0


def row(kind: str, items: Sequence[Observation]) -> tuple[str, ...]:
    """One kind: as its prices are, and as the other sets would have had them."""
    sets = by(lambda item: item.split, items)
    factors = {name: factor_of([one for one in items if one.split != name]) for name in sets}
    held = [off(one) <= factors[one.split] for one in items]
    return (
        kind, str(len(items)), str(len(sets)), f"{statistics.fmean(off(one) <= 1 for one in items):.0%}",
        f"{100 * statistics.fmean(map(width, items)):.1f}", f"{statistics.fmean(factors.values()):.1f}",
        f"{statistics.fmean(held):.0%}",
        f"{100 * statistics.fmean(width(one, factors[one.split]) for one in items):.1f}",
        "a bound" if len(items) < LEAST else "an interval",
    )  # fmt: skip


def told(observations: Iterable[Observation]) -> str:
    """The table: kinds with most truths first, then all of them."""
    items = truths(observations)
    kinds = sorted(by(lambda item: item.owed, items).items(), key=lambda named: (-len(named[1]), named[0]))
    return table(HEADINGS, [row(*one) for one in [*kinds, ("all", items)]])


def kept(path: Path) -> list[Observation]:
    """The observations that a score has written."""
    found = []
    for one in json.loads(path.read_text(encoding="utf-8")):
        foretold = Foretold(**one.pop("foretold")) if one["foretold"] else one.pop("foretold")
        found.append(Observation(**one, foretold=foretold))
    return found


if __name__ == "__main__":
    print(told(kept(Path(sys.argv[1]))))
