"""Verdicts on step times recorded on a real GPU (`verify_on_gpu.py`): ours, and common rules beside it.

usage: python -m benchmarks.recorded_verdicts                 print the rates
       python -m benchmarks.recorded_verdicts adopt RESULTS   keep a result folder as tests/data/verify (32-bit floats)
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks.rivals import RULES, batch_means

from timesink.verify.experiment import ExperimentPlan, judge
from timesink.verify.outcomes import ChangeVerdict, RunRow
from timesink.verify.runs import RunSteps, summarise

KEPT = Path(__file__).resolve().parents[1] / "tests" / "data" / "verify"
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Recorded:
    """One verification: what was planted, and step times of its runs in order, as (side, seconds)."""

    planted_ratio: float
    runs: tuple[tuple[str, Values], ...]

    def verdict(self, plan: ExperimentPlan) -> ChangeVerdict:
        """The plan's verdict; the first pair was for warming up."""
        rows: list[RunRow] = [
            summarise(RunSteps(tuple(map(float, seconds))), side, number)
            for number, (side, seconds) in enumerate(self.runs, 1)
        ][2:]
        pairs = []
        for pair in range(len(rows) // 2):
            two = rows[2 * pair : 2 * pair + 2]
            pairs.append((two[0], two[1]) if two[0].side == "before" else (two[1], two[0]))
        verdicts = [judge(pairs[:look], plan) for look in plan.looks if look <= len(pairs)]
        return next((one for one in verdicts if one.outcome != "inconclusive"), verdicts[-1])


def recorded(folder: Path = KEPT) -> list[Recorded]:
    """All verifications of a kept recording that made at least one look."""
    planted = json.loads((folder / "jobs.json").read_text())
    runs: dict[str, list[tuple[str, Values]]] = defaultdict(list)
    with np.load(folder / "steps.npz") as steps:
        for name in sorted(steps.files):
            job, _, side = name.split("_")
            runs[job].append((side, steps[name].astype(np.float64)))
    return [Recorded(planted[job], tuple(made)) for job, made in sorted(runs.items()) if len(made) >= 14]


def neighbours(found: list[Recorded], steps: int) -> tuple[Values, Values]:
    """Step times of neighbouring runs of unchanged programs: what two captures of one program look like."""
    same = [one.runs for one in found if one.planted_ratio == 0]
    pairs = [(runs[i][1], runs[i + 1][1]) for runs in same for i in range(2, len(runs) - 1, 2)]
    before, after = (np.array([pair[side][-steps:] for pair in pairs]) for side in (0, 1))
    return before, after


def adopt(results: Path, target: Path = KEPT) -> None:
    target.mkdir(parents=True, exist_ok=True)
    report = json.loads((results / "results.json").read_text())
    planted = {f"{one['job']:02d}": one["planted_ratio"] for one in report["verifications"] if "error" not in one}
    with np.load(results / "steps.npz") as steps:
        kept = {name: steps[name].astype(np.float32) for name in steps.files if name[:2] in planted}
    np.savez_compressed(target / "steps.npz", **kept)
    (target / "jobs.json").write_text(json.dumps(planted, indent=1, sort_keys=True) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["adopt"]:
        adopt(Path(sys.argv[2]))
    found = recorded()
    for planted in sorted({one.planted_ratio for one in found}):
        outcomes = [
            str(one.verdict(ExperimentPlan(threshold_ratio=0.01)).outcome)
            for one in found
            if one.planted_ratio == planted
        ]
        counts = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
        print(f"planted +{planted:.0%}: {counts}")
    before, after = neighbours(found, 120)
    print(f"{len(before)} pairs of neighbouring runs of one program, last 120 steps; share called different:")
    for name, rule in {**RULES, "8 batch means, t": batch_means}.items():
        print(f"  {name:20} {rule(before, after).mean():.3f}")
    for percent in (1, 2, 3):
        for first in (10, 120):
            off = np.abs(after[:, :first].mean(-1) / before[:, :first].mean(-1) - 1) > percent / 100
            print(f"  one run a side, {first} steps, {percent} % rule: {off.mean():.3f}")


if __name__ == "__main__":
    main()
