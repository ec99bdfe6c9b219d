"""The programs of the ladders under trial, in one process each, and what their full truth says of the same changes.

    python -m benchmarks.trials.ladders run OUT [--only mixer_training] [--budget 40] [--seconds 560]
    python -m benchmarks.trials.ladders score results.json

Every program prints what was measured of each change beside the truth (the shortest block of three rounds in fresh
processes), and the host's noise: what two rounds of the truth are apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.ladders.suite import LADDERS, find
from benchmarks.trials.__main__ import SWITCHABLE, of_compile

HERE = Path(__file__).parent
RESULTS = HERE / "ladders.json"


def names_of(name: str) -> list[str]:
    """The changes of a ladder that can be switched from outside."""
    ladder = find(name)
    return [change for change in ladder.changes if change in SWITCHABLE] + of_compile(ladder)


def run(out: Path, only: list[str], budget_s: float, seconds: float) -> None:
    """One process a program; results are rewritten after each."""
    from timesink.trials.run import ProgramRuns

    began, results = time.monotonic(), {}
    for ladder in LADDERS:
        changes = names_of(ladder.name)
        if not changes or (only and ladder.name not in only) or time.monotonic() - began > seconds:
            continue
        folder = Path("/tmp/trials") / ladder.name
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        runs = ProgramRuns([sys.executable, "-m", "benchmarks.trials.ladder_script", ladder.name], folder, "", True)
        try:
            found = runs.in_place(changes, budget_s)
        except Exception as error:  # noqa: BLE001 - any failure is this program's result
            print(f"{ladder.name}: {error}", flush=True)
            continue
        results[ladder.name] = asdict(found) | {"losses": [], "seconds": time.monotonic() - started}
        (out / "ladders.json").write_text(json.dumps(results, indent=1))
        print(f"{ladder.name}: {time.monotonic() - started:.0f} s, kept {found.kept}", flush=True)


def score(results: dict[str, dict[str, Any]]) -> None:
    """Each single beside the truth, then the sums over all."""
    from benchmarks.ladders.truth import Truth

    errors, first, ends, noise = [], [], [], []
    for name, found in results.items():
        truth, rounds = Truth(name), (Truth(name, 0), Truth(name, 1))
        singles = {one["name"]: one for one in found["tried"] if not one["beside"] and one["pairs"]}
        if "compile_blocks" in singles:
            singles["compile"] = singles.pop("compile_blocks")
        gains = {change: 1 - one["shortest"] for change, one in singles.items() if change in truth.ladder.changes}
        for change, gain in gains.items():
            real, between = truth.gain([change]), [one.gain([change]) for one in rounds]
            if real is None:
                continue
            errors.append(abs(gain - real))
            noise.append(abs(between[0] - between[1]) if None not in between else 0.0)
            print(f"{name:24} {change:18} {gain:7.1%} truth {real:7.1%} (two rounds {noise[-1]:.1%} apart)")
        switchable = [change for change in gains if truth.gain([change]) is not None]
        if switchable:
            most = max(truth.gain([change]) for change in switchable)
            first.append(truth.gain([max(switchable, key=lambda change: gains[change])]) >= most - 0.02)
        if found["joint"]:
            made = ["compile" if change == "compile_blocks" else change for change in found["kept"]]
            real = truth.gain(made)
            if real is not None:
                ends.append(abs(1 - found["joint"]["shortest"] - real))
                print(f"{name:24} together {1 - found['joint']['shortest']:7.1%} truth {real:7.1%}: {' + '.join(made)}")
    print(
        f"{len(errors)} singles {100 * fmean(errors):.1f} points off ({sum(e <= 0.03 for e in errors)} within 3; "
        f"two rounds of the truth {100 * fmean(noise):.1f}), best first {sum(first)} of {len(first)}, "
        f"{len(ends)} ends {100 * fmean(ends):.1f} points off ({sum(e <= 0.05 for e in ends)} within 5)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "score"))
    parser.add_argument("path", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    if given.what == "run":
        run(given.path, [name for name in given.only.split(",") if name], given.budget, given.seconds)
    else:
        score(json.loads(given.path.read_text()))


if __name__ == "__main__":
    main()
