"""Pairs of torch.profiler with their operators taken away: what is joined by place in the step, and how much wrongly.

    python -m benchmarks.pairs.blind [--side tune] [--only NAME,NAME]

What is joined by place is wrong as far as the launches, before and after, are not of the same operators.
"""

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults.pack import unpacked
from benchmarks.pairs import score

import timesink
from timesink.measures.steps.work import StepWork, step_work
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.verify.by_place import places
from timesink.verify.changes import explained_change


class Blind(NamedTuple):
    """One pair without operators: shares of compute joined, joined by place, and joined by place to other work."""

    name: str
    joined_ratio: float
    placed_ratio: float
    wrong_ratio: float


def without_operators(trace: Trace) -> Trace:
    """As Nsight Systems would have recorded it."""
    return replace(trace, tables={name: table for name, table in trace.tables.items() if name != HOST_OPS})


def blind(name: str, sides: tuple[Trace, Trace]) -> Blind:
    """What is joined without operators, held against the operators."""
    works = step_work(without_operators(sides[0])), step_work(without_operators(sides[1]))
    made = explained_change(*works)
    truth = [_launches(step_work(side)) for side in sides]
    groups: dict[int, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for side, placed in enumerate(places(works[0].order, works[1].order)):
        for kernel, number in placed.items():
            groups[number][side].update(truth[side][kernel.kernel, kernel.grid])
    launches = sum(before.total() + after.total() for before, after in groups.values())
    same = sum(2 * (before & after).total() for before, after in groups.values())
    placed_ratio, wrong = made.placed_ratio or 0.0, 1 - same / launches if launches else 0.0
    return Blind(name, made.joined_ratio or 0.0, placed_ratio, wrong * placed_ratio)


def _launches(work: StepWork) -> dict[tuple[str, str], Counter[str]]:
    """Per kernel and launch size the operators that launched it in a step, and how often."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for kernel, grid, op, count in work.frame.select("kernel", "grid", "op", "count").iter_rows():
        found[kernel, grid][op] += round(count / work.step_count)
    return found


def all_blind(side: str = "", only: Sequence[str] = ()) -> Iterator[Blind]:
    """Every pair of torch.profiler, of one side of the split or of both."""
    for of_set in score.SETS:
        for archive in sorted(of_set.folder.glob("*.torch.tar.xz")):
            name = archive.name.partition(".")[0]
            if name in of_set.owed and side in ("", score.SIDE_OF[name]) and (not only or name in only):
                with tempfile.TemporaryDirectory() as scratch:
                    unpacked(archive, folder := Path(scratch))
                    files = [next(folder.glob(f"{name}.{one}.json"), None) for one in of_set.sides]
                    traces = [timesink.read(file) for file in files if file]
                if len(traces) == len(files):
                    yield blind(name, (traces[0], traces[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", choices=("tune", "aside"), default="")
    parser.add_argument("--only", default="", help="pairs, separated by commas")
    given = parser.parse_args()
    for one in all_blind(given.side, [name for name in given.only.split(",") if name]):
        shares = [f"{100 * ratio:.1f} %" for ratio in one[1:]]
        print(f"{one.name}: joined {shares[0]}, by place {shares[1]}, of other operators {shares[2]}", flush=True)


if __name__ == "__main__":
    main()
