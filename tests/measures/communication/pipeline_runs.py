"""Pipelines worked out item by item, as their program would have logged them: the truth that logs are read against."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SHIFT_NS = 10**12  # between the clocks of two ranks


@dataclass(frozen=True)
class Run:
    """When each stage worked on each item, on one clock: `work[stage][item]` is (begin, end) in nanoseconds."""

    work: list[list[tuple[int, int]]]

    def period_ns(self, item: int) -> int:
        """Between two items leaving the last stage."""
        return self.work[-1][item][1] - self.work[-1][item - 1][1]

    def mesh_idle_ns(self, item: int) -> int:
        """How long no stage worked between an item leaving the last stage and the one before, in the obvious way."""
        begin, end = self.work[-1][item - 1][1], self.work[-1][item][1]
        marks = sorted({begin, end, *(t for line in self.work for span in line for t in span if begin < t < end)})
        return sum(
            late - early
            for early, late in pairwise(marks)
            if not any(start <= early and late <= stop for line in self.work for start, stop in line)
        )


def scheduled(lengths: Sequence[Sequence[int]], depth: int, transfer_ns: int = 0) -> Run:
    """Items go through the stages in order; an item enters when the one `depth` before it has left.

    `lengths[stage][item]`; moving to the next stage takes `transfer_ns`.
    """
    work: list[list[tuple[int, int]]] = [[] for _ in lengths]
    for item in range(len(lengths[0])):
        ready = work[-1][item - depth][1] if item >= depth else 0
        for stage, line in enumerate(work):
            begin = max(ready, line[-1][1] if line else 0)
            line.append((begin, begin + lengths[stage][item]))
            ready = line[-1][1] + transfer_ns
    return Run(work)


def logged(run: Run, folder: Path, *, one_clock: bool = False) -> list[Path]:
    """A log per stage, each on a clock of its own unless they share one."""
    paths = []
    for stage, line in enumerate(run.work):
        shift = 0 if one_clock else SHIFT_NS * stage
        name = "ABCDEFGH"[stage]
        head = {"unit": "ns", "rank": stage, "clock": "host" if one_clock else f"host{stage}"}
        records = [
            {"item": item, f"t{name}0": begin + shift, f"t{name}1": end + shift}
            for item, (begin, end) in enumerate(line)
        ]
        path = folder / f"stage{stage}.jsonl"
        path.write_text("\n".join(json.dumps(record) for record in [head, *records]))
        paths.append(path)
    return paths
