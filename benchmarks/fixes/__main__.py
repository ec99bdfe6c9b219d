"""Repair every program of the suite unattended, on all GPUs of a host (or its CPU), beside the repairs made by hand.

    python -m benchmarks.fixes OUT [--set-aside] [--seconds 420]

Each program is repaired in a copy by `timesink fix` and timed with its hand-made repairs. `OUT/results.json` has a row
a program: the step as it was, as `fix` left it, as by hand; what was kept; and, of a trap, whether it was left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from benchmarks.fixes.suite import FAULTS, SET_ASIDE, SEVERAL, TRAPS, Piece, program


def run_step_ms(folder: Path, script: str, environment: dict[str, str]) -> float:
    """Milliseconds a step: the median of 30, as `timesink fix` takes them."""
    code = (
        "import sys; from pathlib import Path; from statistics import median\n"
        "from timesink.trials.run import ProgramRuns\n"
        "runs = ProgramRuns([sys.executable, sys.argv[1]], Path(sys.argv[2]), '', True)\n"
        "print(median(runs.fixed().steps_ms))"
    )
    words = [sys.executable, "-c", code, script, str(folder)]
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return float(ran.stdout.split()[-1])


def repair(name: str, pieces: tuple[Piece, ...], out: Path, gpu: str, budget_s: float) -> dict[str, Any]:
    """The row of one program. `gpu` is the one that it may see; empty on a host without."""
    folder, environment = out / name, {**os.environ, **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(program(pieces))
    (folder / "by_hand.py").write_text(program(pieces, mended=True))
    only = ",".join(sorted({piece.fix for piece in pieces}))
    words = ["fix", "--quiet", "--only", only, "--budget", f"{budget_s:.0f}s", "--copy", str(folder / "copy")]
    words += ["--format", "json", "-o", str(folder / "page.json"), "--", sys.executable, "train.py"]
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "timesink", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    row: dict[str, Any] = {"program": name, "seconds": time.monotonic() - began, "status": ran.returncode}
    if ran.returncode not in (0, 1):
        return {**row, "error": ran.stderr[-500:]}
    page = json.loads((folder / "page.json").read_text())
    row["kept"] = [one["fix"] for one in page.get("kept", ())]
    if pieces[0] in TRAPS:
        left = (folder / "copy" / "train.py").read_text() == (folder / "train.py").read_text()
        return {**row, "left_alone": left}
    (folder / "repaired.py").write_text((folder / "copy" / "train.py").read_text())
    for side, script in (("before_ms", "train.py"), ("fixed_ms", "repaired.py"), ("by_hand_ms", "by_hand.py")):
        row[side] = run_step_ms(folder, script, environment)
    known = row["before_ms"] - row["by_hand_ms"]
    row["share_of_gain"] = (row["before_ms"] - row["fixed_ms"]) / known if known > 0 else None
    return row


def main() -> None:
    """All programs, one at a time on each GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--set-aside", action="store_true", help="the programs with several faults that count")
    parser.add_argument("--seconds", type=float, default=420.0)
    given = parser.parse_args()
    asked = ["nvidia-smi", "-L"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout if shutil.which(asked[0]) else ""
    gpus = [str(at) for at, _ in enumerate(listed.splitlines())] or [""]
    singles = {piece.name: (piece,) for piece in (*FAULTS, *TRAPS)}
    several = {name: pieces for name, pieces in SEVERAL.items() if (name in SET_ASIDE) is given.set_aside}
    programs = several if given.set_aside else singles | several
    budget_s = given.seconds * len(gpus) / len(programs) - 25  # the hand-made repairs are timed too
    free: Queue[str] = Queue()
    for gpu in gpus:
        free.put(gpu)

    def one(name: str) -> dict[str, Any]:
        gpu = free.get()
        try:
            return repair(name, programs[name], given.out.resolve(), gpu, max(budget_s, 30.0))
        finally:
            free.put(gpu)

    with ThreadPoolExecutor(len(gpus)) as pool:
        rows = list(pool.map(one, programs))
    (given.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
