"""Real calibrations, and whether the slow-down that each states as its limit is then seen.

usage: python -m benchmarks.gate_limits [COUNT]      # of this machine, now: ten
       python -m benchmarks.gate_limits --recorded   # of runs that were recorded on two machines with an H200

A program that computes for a quarter of a second is calibrated; then it is verified against itself with a wait that
makes each run longer by the limit that the calibration stated. The load of the machine is printed beside each. Of
recorded runs the first eleven are the calibration, and every run of the changed side takes so much longer.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.recorded_verdicts import recorded

from timesink.records import replace
from timesink.verify.calibration import deviation
from timesink.verify.experiment import ExperimentPlan, verify
from timesink.verify.outcomes import RunRow
from timesink.verify.runs import RunSteps, Side, summarise

_SPINS = Path(__file__).parent / "pairs/captures/spins.json.xz"
_CALIBRATING, _QUIET_RUNS = 11, 37  # runs: the first is discarded

_PROGRAM = """
import sys, time
begun, longer = time.perf_counter(), float(sys.argv[1])
total = 0
for number in range(1_500_000):
    total += number * number
end = time.perf_counter() + (time.perf_counter() - begun + 0.03) * longer
while time.perf_counter() < end:
    total += 1
"""


def _said(folder: str, *words: str) -> Any:
    command = [sys.executable, "-m", "timesink", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def calibrated(program: Path, folder: str) -> tuple[float, float, str]:
    """The limit that a calibration states, how much runs differed, and what `verify` says of a slow-down so large."""
    run = f"{sys.executable} -I -S {program}"
    page = _said(folder, "gate", "calibrate", "--whole", "--runs", "10", "-f", "json", "--", *run.split(), "0")
    (figures,) = page["calibration"]
    limit = ExperimentPlan().limit_here(figures["run_sd_ratio"], figures["runs"] - 1).slow_down_ratio
    told = _said(folder, "verify", "--whole", "--before", f"{run} 0", "--after", f"{run} {limit}", "-f", "json")
    return limit, figures["run_sd_ratio"], told["outcome"]


def recorded_sessions() -> Iterator[tuple[str, list[RunRow]]]:
    """Runs in the order they were made: of a program of a tenth of a second on a busy host, each a process; and of the
    steps of a GPU program on a quiet one."""
    for spins in json.loads(lzma.decompress(_SPINS.read_bytes())):
        rows = [summarise(RunSteps((outside,), told_in_s=0.0), "before", 1) for outside, _, _ in spins]
        yield "a busy host", [replace(row, probe_s=spin[2]) for row, spin in zip(rows, spins, strict=True)]
    quiet = [run for one in recorded() for side, run in one.runs if side == "before" or not one.planted_ratio]
    for at in range(0, len(quiet) - _QUIET_RUNS + 1, _QUIET_RUNS):
        session = quiet[at : at + _QUIET_RUNS]
        yield (
            "a quiet GPU",
            [summarise(RunSteps(tuple(map(float, run)), told_in_s=0.0), "before", 1) for run in session],
        )


def replayed(rows: list[RunRow]) -> tuple[float, float, str]:
    """As `calibrated`, of recorded runs."""
    calibration = deviation([row.mean_s for row in rows[1:_CALIBRATING]])
    limit = ExperimentPlan().limit_here(calibration.run_sd_ratio, calibration.df).slow_down_ratio

    def launch(side: Side, number: int) -> RunRow:
        row, times = rows[_CALIBRATING + number - 1], 1 + limit * (side == "after")
        longer = {name: getattr(row, name) * times for name in ("mean_s", "median_s", "p95_s")}
        return replace(row, side=side, number=number, **longer)

    try:
        return limit, calibration.run_sd_ratio, str(verify(ExperimentPlan(), launch).verdict.outcome)
    except IndexError:
        return limit, calibration.run_sd_ratio, "undecided when the recording ends"


def main() -> None:
    if "--recorded" in sys.argv:
        told = [(name, *replayed(rows)) for name, rows in recorded_sessions()]
        for name, limit, run_sd, outcome in told:
            print(f"{name}: runs differ by {100 * run_sd:.2g} %, limit {100 * limit:.3g} %: {outcome}")
        for name in dict.fromkeys(one[0] for one in told):
            own = [one[-1] == "slower" for one in told if one[0] == name]
            print(f"{name}: {sum(own)} of {len(own)} limits met")
        return
    count, met = int(sys.argv[1]) if len(sys.argv) > 1 else 10, 0
    with tempfile.TemporaryDirectory() as at:
        program = Path(at) / "spin.py"
        program.write_text(_PROGRAM, encoding="utf-8")
        for number in range(count):
            folder = Path(at) / str(number)  # so that no calibration adds to another
            folder.mkdir()
            limit, run_sd, outcome = calibrated(program, str(folder))
            met += outcome == "slower"
            figures = f"runs differ by {100 * run_sd:.2g} %, limit {100 * limit:.3g} %"
            print(f"{number}: load {os.getloadavg()[0]:.1f}, {figures}: {outcome}", flush=True)
    print(f"{met} of {count} limits met")


if __name__ == "__main__":
    main()
