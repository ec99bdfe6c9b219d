"""How far each assumption matters: every one moved by a quarter, down and up, and the captures diagnosed again.

python -m benchmarks.faults.score --sweep [--split tune] [--only a,b] [--processes 1]

The captures with the severest form of each fault of the splits that figures were set on, diagnosed told the step
without a profiler, and every third of them also not told it, and without the marks of its steps. An assumption is
moved for four of those whose diagnosis reads it, if they can with a finding of a rule that uses it, and for up to
eight more where nothing has moved yet. Of each, the table shows for how many it was moved, of how many a move changes
the verdict, a price or its interval, by how much a price at most (in points of the step), and what it does to the mean
error of prices. `sweep.json` keeps the figures for the page of assumptions. One that is never read here matters to
inputs that the captures are not (kernel reports, memory records): its tests speak for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from timesink.knowledge.assumptions import ALL, Assumption
from timesink.records import replace

if TYPE_CHECKING:
    from timesink.model.trace import Trace

SIDES = (0.75, 1.25)
SPLITS = ("tune", "third_tune")
How = Literal["told", "blind", "unmarked"]
HOW: tuple[How, ...] = ("told", "blind", "unmarked")
EACH, MORE = 4, 8
"""For so many inputs each assumption is moved, and for so many more where nothing has moved."""
KEPT = Path(__file__).with_name("sweep.json")
HEADINGS = ("assumption", "read by", "changed", "verdicts", "points at most", "MAE at 3/4", "MAE", "MAE at 5/4")
Figures = tuple[str, float | None, float | None, tuple[object, ...]]
"""The verdict of one diagnosis, what its findings of the planted kind promise and by how much that is off, as shares of
the step, and every finding with its interval."""
Swept = tuple[str, Figures, list[Figures]]
"""An assumption, the figures of one input as it is, and at each side."""


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
    errors = [error for _, _, error, _ in figures if error is not None]
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


def over(
    inputs: Sequence[tuple[Any, How]], run: Callable[[list[tuple[Any, How, frozenset[str] | None]]], list[list[Swept]]]
) -> dict[str, Moved]:
    """Every assumption that is read, moved; kept after each of the two rounds."""
    first = run([(*one, None) for one in inputs])
    read = [{name for name, *_ in part} for part in first]
    codes = [{str(finding[0]) for _, base, _ in part[:1] for finding in base[3]} for part in first]
    found: dict[str, Moved] = {}
    done: set[tuple[int, str]] = set()
    for most in (EACH, MORE):
        still = {name for names in read for name in names if name not in found or not found[name].changed}
        tasks = chosen(read, codes, still, most, done)
        done |= {(at, name) for at, names in tasks.items() for name in names}
        for part in run([(*inputs[at], frozenset(names)) for at, names in sorted(tasks.items())]):
            for name, base, sides in part:
                moved_one = found.setdefault(name, Moved())
                moved_one.base.append(base)
                for kept, figures in zip(moved_one.sides, sides, strict=True):
                    kept.append(figures)
        keep(found, sum(map(bool, read)))
    return found


def chosen(
    read: Sequence[set[str]], codes: Sequence[set[str]], names: set[str], most: int, done: set[tuple[int, str]]
) -> dict[int, set[str]]:
    """For each input the assumptions to move for it: each for so many of those that read it, spread evenly over
    those with a finding of a rule that uses it, where there are any."""
    tasks: dict[int, set[str]] = {}
    for name in sorted(names):
        readers = [at for at, seen in enumerate(read) if name in seen and (at, name) not in done]
        owners = set(ALL[name].rules.split()) if name in ALL else set()
        readers = [at for at in readers if codes[at] & owners] or readers
        for at in readers[:: -(-len(readers) // most) or 1]:
            tasks.setdefault(at, set()).add(name)
    return tasks


def without_marks(trace: Trace) -> Trace:
    """The trace with nothing in it that says where a step begins."""
    from timesink.model.names import matches
    from timesink.model.tables import HOST_OPS, RANGES

    tables = {**trace.tables, RANGES: trace.get(RANGES).clear()}
    if HOST_OPS in trace:
        host = trace[HOST_OPS]
        tables[HOST_OPS] = host.filter(~matches(host["name"], r"^ProfilerStep#|^Optimizer|enumerate\(DataLoader"))
    return replace(trace, tables=tables)


def keep(found: dict[str, Moved], diagnoses: int) -> None:
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
    KEPT.write_text(
        json.dumps({"diagnoses": diagnoses, "each": EACH, "more": MORE, "assumptions": kept}, indent=1) + "\n",
        encoding="utf-8",
    )
