"""Hold what a plan foretells of single changes, of every rung of a ladder and of their order against what was measured.

python -m benchmarks.ladders score [--split tune] [--tool torch] [--blind] [--details] [--only a,b]
python -m benchmarks.ladders score --noise  # what either round of the measurements foretells of the other
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ladders import suite
from benchmarks.ladders.adopt import unpacked
from benchmarks.ladders.truth import Order, Truth, everything

from timesink.diagnosis.plan.order import LATER, Gain, expected, leads_to, near_best
from timesink.diagnosis.verdicts import Quantity

TOOLS = {"torch": "json", "nsys": "sqlite"}
ROUNDS = ("first round", "second round")
RUNS_APART = 0.01  # of the step: as two runs of a program are


class Foretold:
    """What sets of changes win by timesink, as shares of the step; nothing where it proposes none of them."""

    def __init__(self, capture: Path, step_ms: float | None, names: Sequence[str]) -> None:
        import timesink
        from timesink.diagnosis import headline
        from timesink.diagnosis.plan.ladder import changes_offered
        from timesink.measures.steps import steps

        trace = timesink.read(capture)
        if step_ms is not None:
            alike = max(round(steps(trace).frame.height / suite.KEPT), 1)  # a program's step may be several updates
            trace = trace.with_unprofiled_step(step_ms / alike * 1e6)
        self.step_ms = headline.step_ms(trace) or 0.0
        self.names = names
        joint = changes_offered(trace, timesink.diagnose(trace))
        assert not isinstance(joint, str), joint
        self.joint = joint

    def holds(self, changes: Iterable[str], gain: float) -> bool:
        """Whether the interval of these changes holds a gain, to a hundredth of the step."""
        worth = self.quantity(changes)
        ends = (0.0, 0.0) if worth is None else ((worth.low or 0.0) / self.step_ms, worth.most / self.step_ms)
        return ends[0] - RUNS_APART <= gain <= ends[1] + RUNS_APART

    def quantity(self, changes: Iterable[str]) -> Quantity | None:
        chosen = set(changes)
        if {"compile", "cuda_graph"} <= chosen:
            chosen = chosen - {"compile", "cuda_graph"} | {"compile_graph"}
        return self.joint.gain(chosen & self.joint.offered.keys())

    def gain(self, changes: Iterable[str]) -> float:
        worth = self.quantity(changes)
        return worth.value / self.step_ms if worth and self.step_ms else 0.0

    def order(self) -> Order:
        """All changes, whatever they win, as a plan orders them."""
        return in_order(self.names, self.quantity)


def in_order(names: Sequence[str], gain: Gain) -> Order:
    """All of some changes, whatever they win, in the order in which a plan makes them."""

    def likely(names: Collection[str]) -> float:
        worth = gain(names)
        return 0.0 if worth is None else worth.value

    taken: list[str] = []
    while len(taken) < len(names):
        rest = [name for name in names if name not in taken]
        wins = {name: expected(gain({*taken, name})) - expected(gain(taken)) for name in rest}
        near = near_best(wins, LATER.default) if taken else near_best(wins)
        taken.append(max(near, key=lambda name: leads_to(name, taken, rest, gain, likely)))
    return tuple(taken)


class Repeated(Foretold):
    """The same by what one round of the measurements says."""

    def __init__(self, truth: Truth) -> None:
        self.truth, self.step_ms, self.names = truth, truth.base_ms, truth.ladder.changes

    def quantity(self, changes: Iterable[str]) -> Quantity | None:
        gain = self.truth.gain(changes) if set(changes) else 0.0
        return None if gain is None else Quantity(gain * self.step_ms, "ms", gain * self.step_ms, gain * self.step_ms)


@dataclass(frozen=True, slots=True)
class Scored:
    """One program by one tool: pairs of foretold and measured gains, and what the order costs above the best."""

    name: str
    tool: str
    singles: dict[str, tuple[float, float]]
    rungs: dict[Order, tuple[float, float]]
    first: str
    best: Order
    order: Order
    order_cost: float
    is_held: bool  # whether the interval of all changes together holds what they win

    @property
    def right(self) -> bool:
        return self.first in self.best


def scored(name: str, tool: str, told: Foretold, truth: Truth) -> Scored:
    order, best = told.order(), truth.best_order()
    prefixes = [best[: count + 1] for count in range(len(best))]
    return Scored(
        name,
        tool,
        {one: (told.gain([one]), gain) for one in truth.ladder.changes if (gain := truth.gain([one])) is not None},
        {rung: (told.gain(rung), gain) for rung in prefixes if (gain := truth.gain(rung)) is not None},
        max(truth.ladder.changes, key=lambda one: expected(told.quantity([one]))),
        truth.best(),
        order,
        truth.spent_ms(order) / truth.spent_ms(best) - 1,
        told.holds(best, truth.gain(best) or 0.0),
    )


def points(pairs: Iterable[tuple[float, float]]) -> float:
    """Mean distance in points of the step."""
    return statistics.fmean(100 * abs(told - measured) for told, measured in pairs)


def row(split: str, tool: str, found: Sequence[Scored]) -> list[str]:
    rungs = [points(one.rungs.values()) for one in found]
    ends = [one.rungs[max(one.rungs, key=len)] for one in found]
    return [
        split, tool, str(len(found)), f"{statistics.fmean(one.right for one in found):.0%}",
        f"{points(pair for one in found for pair in one.singles.values()):.1f}", f"{statistics.fmean(rungs):.1f}",
        f"{sum(100 * abs(a - b) <= 8 for one in found for a, b in one.rungs.values())} of "
        f"{sum(len(one.rungs) for one in found)}",
        f"{100 * statistics.fmean(one.order_cost for one in found):.1f}%",
        f"{points(ends):.1f}", f"{100 * statistics.fmean(told - gain for told, gain in ends):+.1f}",
        f"{statistics.fmean(one.is_held for one in found):.0%}",
    ]  # fmt: skip


HEADINGS = [
    "split", "tool", "programs", "best first", "single", "rungs", "within 8", "order", "end", "too good by", "end held",
]  # fmt: skip


def table(found: Sequence[Scored]) -> str:
    """A Markdown table: a line a split and tool."""
    rows = [HEADINGS, ["---"] * len(HEADINGS)]
    for split in suite.SPLITS:
        for tool in (*TOOLS, *ROUNDS):
            part = [one for one in found if one.tool == tool and suite.split(one.name) == split]
            if part:
                rows.append(row(split, tool, part))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def detailed(one: Scored) -> str:
    singles = ", ".join(f"{name} {told:.0%} for {real:.0%}" for name, (told, real) in one.singles.items())
    rungs = ", ".join(f"{rung[-1]} {told:.0%} for {real:.0%}" for rung, (told, real) in one.rungs.items())
    return (
        f"{one.name} {one.tool}: first {one.first} ({'right' if one.right else 'best ' + ' or '.join(one.best)}), "
        f"order {' '.join(one.order)} costs {one.order_cost:.1%}\n   alone: {singles}\n   rungs: {rungs}"
    )


def selected(given: argparse.Namespace) -> list[Scored]:
    names = [
        one.name for one in suite.LADDERS if given.split in ("", suite.split(one.name)) and one.name in everything()
    ]
    names = [name for name in names if not given.only or name in given.only.split(",")]
    if given.noise:
        pairs = [(name, at, Truth(name, at), Truth(name, 1 - at)) for name in names for at in range(len(ROUNDS))]
        return [scored(name, ROUNDS[at], Repeated(one), other) for name, at, one, other in pairs]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for tool in [given.tool] if given.tool else TOOLS:
            unpacked(tool, Path(folder))
            for name in names:
                truth = Truth(name)
                step_ms, capture = None if given.blind else truth.base_ms, Path(folder) / f"{name}.{TOOLS[tool]}"
                found.append(scored(name, tool, Foretold(capture, step_ms, truth.ladder.changes), truth))
                if given.details:
                    print(detailed(found[-1]), flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--split", choices=suite.SPLITS, default="")
    parser.add_argument("--tool", choices=list(TOOLS), default="")
    parser.add_argument("--only", default="", help="names of programs, separated by commas")
    parser.add_argument("--blind", action="store_true", help="withhold the step without a profiler")
    parser.add_argument("--noise", action="store_true", help="score either round of the measurements by the other")
    parser.add_argument("--details", action="store_true")
    found = selected(parser.parse_args(arguments))
    print(table(found))


if __name__ == "__main__":
    main()
