"""The states that a plan followed to the letter goes through, each captured on a GPU with its step without a profiler.

    python -m benchmarks.worked.followed OUT [--dry] STATE ...     such as gpt2:tf32+compile layer:ahead

Compilations run first, side by side, and fill their caches; then one state at a time is captured and timed. OUT gets
`states.json` (steps without a profiler, in ms) and NAME.captures.tar as `run.py` leaves them. Needs no timesink but its
standard library part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.worked import pack

from timesink import capture
from timesink.capture.schedule import StepSchedule

SCHEDULES = {"gpt2": StepSchedule(4, 20, 2, 6), "layer": StepSchedule(20, 100, 2, 6)}
STEPS, LIMIT_S = 300, 90.0


def words(state: str, steps: int, dry: bool) -> list[str]:
    name, _, flags = state.partition(":")
    ask = [f"--{flag}" for flag in flags.split("+") if flag and flag != "plain"]
    return [sys.executable, "-m", f"benchmarks.worked.{name}", *ask, "--steps", str(steps), *(["--dry"] if dry else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("states", nargs="+")
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="followed-"))
    compiled = [words(state, 2, given.dry) for state in given.states if "compile" in state]
    first = [subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for line in compiled]
    for process in first:
        process.wait()
    found: dict[str, object] = {}
    for state in given.states:
        name, _, flags = state.partition(":")
        folder, began = scratch / name / (flags or "plain"), time.monotonic()
        folder.parent.mkdir(exist_ok=True)
        schedule = StepSchedule(2, 4, 1, 2) if given.dry else SCHEDULES[name]
        line = words(state, 20 if given.dry else STEPS, given.dry)
        try:
            made = capture.torch(line, steps=schedule, out=folder, quiet=True, timeout_s=LIMIT_S)
            found[state] = {"step_ms": made.unprofiled_step_ms, "steps_ms": made.unprofiled_steps_ms}
        except Exception as problem:  # noqa: BLE001 - GPU time is scarce: no state stops the others
            found[state] = {"failed": f"{type(problem).__name__}: {problem}"[-800:]}
        print(f"{state}: {found[state]}, {time.monotonic() - began:.0f} s", flush=True)
        (given.out / "states.json").write_text(json.dumps(found, indent=1))
    for name in sorted({state.partition(":")[0] for state in given.states}):
        pack.captures(scratch / name, given.out, name)


if __name__ == "__main__":
    main()
