"""How often `timesink verify` says what is false, on step times whose truth is known: by noise and by true change.

usage: python -m benchmarks.false_verdicts [--experiments 60] [--commands 63] [--models N] [--write]

Each experiment is a session of up to 38 runs of 100 steps, drawn by the seeds (SEED, noise, experiment), which are
printed; runs of the changed side take `1 + change` times as long. `timesink.verify.experiment.verify` makes the runs it
asks for, at its own settings (threshold 2 %, looks after 6, 12, 18 and 30 pairs).

False is: slower or faster where nothing changed; any of slower, faster, no difference at a change of exactly the
threshold (2 %), where none of them holds; faster or no difference at +5 %. And an interval without the true change.

`--models` counts, on N sessions of each model of noise of an audit and of as many of our own, unchanged programs that
are called slower or faster, and at a threshold of 1 % how often +2 % is found. The counts stand in `models`.

The same through the command line: a program that hands over the same step times, each run in a fresh process. Whether
an answer is that of the Python interface is checked for each. `--write` keeps the counts for the page that shows them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.noise import HARDER, MODELS, Kind, Values, runs
from numpy.random import default_rng

from timesink.cli.app import run as timesink
from timesink.records import replace
from timesink.verify.experiment import ExperimentPlan, Verification, verify
from timesink.verify.outcomes import ChangeVerdict, Outcome, RunRow
from timesink.verify.runs import RunSteps, summarise

SEED = 20_261_126
STEP_S = 1e-5  # a run that hands its times over at once may not have made more than it lasts
CHANGES = (0.0, 0.02, 0.05)
PLAN = ExperimentPlan()
SOON = 12  # pairs
TIMES_ALONE = [at for at, one in enumerate(HARDER) if not (one.carry or one.after_sd or one.clock_sd or one.host_sd)]
KEPT = Path(__file__).with_suffix(".json")
_FALSE = {
    0.0: {Outcome.SLOWER, Outcome.FASTER},
    0.02: {Outcome.SLOWER, Outcome.FASTER, Outcome.NO_DIFFERENCE},
    0.05: {Outcome.FASTER, Outcome.NO_DIFFERENCE},
}
PROGRAM = 'cp "$TABLE/$(basename "$(dirname "$TIMESINK_STEPS")")" "$TIMESINK_STEPS"\n'


def series(noise: int, experiment: int, kinds: Sequence[Kind] = HARDER) -> Values:
    """Step times in seconds (runs in the order they are made, steps) of one session."""
    drawn = default_rng((SEED, noise, experiment))
    return STEP_S * runs(drawn, kinds[noise], 1, 2 * (PLAN.warm_up_pairs + PLAN.looks[-1]), kinds[noise].steps)[0]


class Session:
    """One session's runs, whichever plan asks for them. Times of the changed side are multiplied by 1 + change."""

    def __init__(self, times: Values, kind: Kind, seed: tuple[int, ...]) -> None:
        self.times, self.kind = times, kind
        self.rows: dict[int, RunRow] = {}
        drawn = default_rng((*seed, 1))
        self.clock, self.host, self.read, self.after = drawn.standard_normal((4, len(times)))

    def verified(self, plan: ExperimentPlan, change: float) -> Verification:
        ran = ["before"]

        def launch(side: str, number: int) -> RunRow:
            if number not in self.rows:
                self.rows[number] = summarise(
                    RunSteps(tuple(self.times[number - 1].tolist()), told_in_s=0.0), side, number
                )
            row, scale = self.rows[number], self._scale(side, ran[-1], number - 1) * (1 + change * (side == "after"))
            ran.append(side)
            times = {"mean_s": row.mean_s * scale, "median_s": row.median_s * scale, "p95_s": row.p95_s * scale}
            return replace(row, side=side, **times, **self._recorded(number - 1))

        return verify(plan, launch)

    def _scale(self, side: str, before_it: str, at: int) -> float:
        """How much longer a run takes for what depends on its side, on the run before it, and on what is recorded."""
        kind = self.kind
        own = kind.after_sd * self.after[at] if kind.after_sd and side == "after" else 0.0
        carried = kind.carry * (before_it == "after")
        return float(np.exp(own + carried + kind.clock_sd * self.clock[at] + kind.host_sd * self.host[at]))

    def _recorded(self, at: int) -> dict[str, float | None]:
        """The clock in its steps of 15 MHz, and the host's speed as well as a probe of 5 ms reads it."""
        clock = 15 * round(1800 * np.exp(-self.kind.clock_sd * self.clock[at]) / 15)
        probe = 5e-3 * np.exp(self.kind.host_sd * self.host[at] + 0.004 * self.read[at])
        return {"sm_mhz": clock, "probe_s": probe}


def misses(verdict: ChangeVerdict, change: float) -> bool:
    """Whether its interval leaves the true change out."""
    return verdict.effect is not None and not verdict.effect.low <= 1 + change <= verdict.effect.high


def counts(noise: int, experiments: int) -> dict[str, int]:
    """How many of the experiments with this noise end falsely, and how many find what there is, soon or at all."""
    found = Counter[str]()
    for experiment in range(experiments):
        session = Session(series(noise, experiment), HARDER[noise], (SEED, noise, experiment))
        for change in CHANGES:
            verdict = session.verified(PLAN, change).verdict
            found[f"false at {change:.0%}"] += verdict.outcome in _FALSE[change]
            found[f"missed at {change:.0%}"] += misses(verdict, change)
            found[f"{verdict.outcome} at {change:.0%}"] += 1
            found[f"pairs at {change:.0%}"] += verdict.pairs
            found[f"soon at {change:.0%}"] += verdict.outcome is not Outcome.INCONCLUSIVE and verdict.pairs <= SOON
    return dict(sorted(found.items()))


class ModelCount(NamedTuple):
    """One model of noise: sessions, unchanged programs called changed or not, and of +2 % at 1 % found or denied."""

    name: str
    sessions: int
    false: int
    decided: int
    found: int
    denied: int


FINE = replace(PLAN, threshold_ratio=0.01)


def model_count(model: int, sessions: range) -> ModelCount:
    """What `verify` makes of so many sessions of one model of `MODELS`."""
    kind, seen = MODELS[model], Counter[Outcome]()
    found = denied = 0
    for number in sessions:
        session = Session(series(model, number, MODELS), kind, (SEED, model, number))
        seen[session.verified(PLAN, 0.0).verdict.outcome] += 1
        outcome = session.verified(FINE, 0.02).verdict.outcome
        found += outcome is Outcome.SLOWER
        denied += outcome in (Outcome.FASTER, Outcome.NO_DIFFERENCE)
    false = seen[Outcome.SLOWER] + seen[Outcome.FASTER]
    return ModelCount(kind.name, len(sessions), false, seen[Outcome.NO_DIFFERENCE], found, denied)


def models(sessions: int) -> list[ModelCount]:
    """All models, in parallel processes, printed as they come."""
    made = []
    with ProcessPoolExecutor() as pool:
        for one in pool.map(model_count, range(len(MODELS)), [range(sessions)] * len(MODELS)):
            print(f"{one.name}: false {one.false}, no difference {one.decided}, +2 % found {one.found}", flush=True)
            made.append(one)
    false, tried = sum(one.false for one in made), sum(one.sessions for one in made)
    print(f"unchanged programs called changed: {false} of {tried}")
    return made


def by_command(noise: int, experiment: int, change: float, folder: Path) -> tuple[str, str]:
    """The outcome of one session by `timesink verify` with a program that hands its times over, and by Python."""
    times = series(noise, experiment)
    table = folder / f"{noise}-{experiment}"
    table.mkdir()
    for number, run in enumerate(times, 1):
        for side, scale in (("before", 1.0), ("after", 1 + change)):
            lines = (f'{{"step": {at}, "seconds": {seconds * scale!r}}}' for at, seconds in enumerate(run.tolist(), 1))
            (table / f"run{number:03d}_{side}").write_text("\n".join(lines) + "\n")
    program, answer = table / "program.sh", table / "answer.json"
    program.write_text(PROGRAM)
    os.environ["TABLE"] = str(table)
    timesink(("verify", "--toggle", "SIDE=0/1", "--quiet", "-f", "json", "-o", str(answer), "--", "sh", str(program)))
    told = json.loads(answer.read_text())["outcome"]
    session = Session(times, HARDER[noise], (SEED, noise, experiment))
    return str(told), str(session.verified(PLAN, change).verdict.outcome)


def commands(count: int) -> dict[str, int]:
    """Sessions of each noise and change in turn, through the command line."""
    found = Counter[str]()
    for experiment in range(count):
        noise, change = TIMES_ALONE[experiment % len(TIMES_ALONE)], CHANGES[experiment // len(TIMES_ALONE) % 3]
        with tempfile.TemporaryDirectory(prefix="timesink-") as folder:
            told, wanted = by_command(noise, experiment, change, Path(folder))
        found["experiments"] += 1
        found["as by Python"] += told == wanted
        found[f"false at {change:.0%}"] += told in {str(outcome) for outcome in _FALSE[change]}
        found[f"tried at {change:.0%}"] += 1
    return dict(sorted(found.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=60)
    parser.add_argument("--commands", type=int, default=63)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--models", type=int, default=0)
    given = parser.parse_args()
    if given.models:
        counted = [one._asdict() for one in models(given.models)]
        if given.write:
            kept = json.loads(KEPT.read_text(encoding="utf-8"))
            kept["models"] = {"seed": SEED, "counted": counted}
            KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    rows = {}
    for noise, kind in enumerate(HARDER):
        print(f"{kind.name}: seeds ({SEED}, {noise}, 0 to {given.experiments - 1})", flush=True)
        rows[kind.name] = counts(noise, given.experiments)
        print("   ", rows[kind.name], flush=True)
    by_commands = commands(given.commands)
    print("by commands:", by_commands)
    kept = {"seed": SEED, "experiments": given.experiments, "noise": rows, "commands": by_commands}
    if given.write:
        KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
