"""Ten real calibrations of this machine, and whether the slow-down that each states as its limit is then seen.

usage: python -m benchmarks.gate_limits [COUNT]

A program that computes for a quarter of a second is calibrated; then it is verified against itself with a wait that
makes each run longer by the limit that the calibration stated. The load of the machine is printed beside each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from timesink.verify.experiment import ExperimentPlan

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


def main() -> None:
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
