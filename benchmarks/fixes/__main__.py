"""Repair every program of the suite unattended, on all GPUs of a host (or its CPU), beside the repairs made by hand.

    python -m benchmarks.fixes OUT [--set singles,traps,several,set-aside] [--seconds 460] [--beside 3]

Each program is repaired in a copy by `timesink fix` and timed with its hand-made repairs, `--beside` of them at a time
on each GPU, each on cores of its own. `OUT/results.json` has a row a program, and is written anew after each: the step
as it was, as `fix` left it, as by hand; what was kept; whether that is the program as by hand; and, of a trap, whether
it was left alone. `OUT/NAME` holds programs, page, log and diff.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, Final, NamedTuple

from benchmarks.fixes.scripts import SCRIPTS
from benchmarks.fixes.suite import FAULTS, SET_ASIDE, SEVERAL, TRAPS, program

_ROUNDS: Final = 2
_RUN_S: Final = 60.0
_TIMED: Final = """
import shutil, sys
from pathlib import Path
from timesink.trials.run import ProgramRuns
folder, rounds, *sides = sys.argv[1:]
runs = ProgramRuns([sys.executable, "timed.py"], Path(folder), "", True, Path(folder))
times = [[] for _ in sides]
for _ in range(int(rounds)):
    for side, all_ms in zip(sides, times):
        shutil.copyfile(Path(folder, side), Path(folder, "timed.py"))
        steps_ms = runs.fixed().steps_ms
        all_ms.append(sum(steps_ms) / len(steps_ms))
runs.close()
print(times)
"""


class Job(NamedTuple):
    """One program: its text, the text as a person would repair it, and the fixes that its faults are mended by."""

    name: str
    text: str
    by_hand: str
    only: str
    is_trap: bool = False


def jobs(sets: list[str]) -> dict[str, Job]:
    """The programs of these sets, what counts most first."""
    found: list[Job] = []
    for name, pieces in SEVERAL.items():
        if ("set-aside" if name in SET_ASIDE else "several") in sets:
            only = ",".join(sorted({piece.fix for piece in pieces}))
            found.append(Job(name, program(pieces), program(pieces, mended=True), only))
    if "singles" in sets:
        found += [Job(one.name, one.program(), one.program(mended=True), one.fix) for one in SCRIPTS]
    if "traps" in sets:
        found += [Job(one.name, program((one,)), "", one.fix, True) for one in TRAPS]
    if "singles" in sets:
        found += [Job(one.name, program((one,)), program((one,), mended=True), one.fix) for one in FAULTS]
    return {job.name: job for job in found}


def ended(words: list[str], folder: Path, environment: dict[str, str], limit_s: float) -> tuple[int, str]:
    """Status and output of a process; the process and what it started end at the limit."""
    log = folder / "log.txt"
    with log.open("a") as said:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                status = process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
            said.write(f"\nended after {limit_s:.0f} s\n")
    return status, log.read_text(errors="replace")


def steps_ms(folder: Path, scripts: list[str], environment: dict[str, str], on: list[str]) -> list[list[float]]:
    """Of each script the mean milliseconds of a step in each of its runs, as `timesink fix` times them, in turns."""
    words = [*on, sys.executable, "-c", _TIMED, str(folder), str(_ROUNDS), *scripts]
    status, said = ended(words, folder, environment, _RUN_S * _ROUNDS)
    if status:
        raise RuntimeError(f"{scripts} could not be timed: {said[-300:]}")
    times: list[list[float]] = json.loads(said.splitlines()[-1])
    return times


def repair(job: Job, folder: Path, environment: dict[str, str], budget_s: float, on: list[str]) -> dict[str, Any]:
    """The row of one program; `on` is what a command begins with that keeps to its own cores."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(job.text)
    (folder / "by_hand.py").write_text(job.by_hand)
    copy, page = folder / "copy", folder / "page.json"
    words = ["fix", "--only", job.only, "--budget", f"{budget_s:.0f}s", "--copy", str(copy), "--format", "json"]
    words += ["-o", str(page), "--", sys.executable, "train.py"]
    began = time.monotonic()
    status, said = ended([*on, sys.executable, "-m", "timesink", *words], folder, environment, budget_s + 45)
    row: dict[str, Any] = {"program": job.name, "seconds": round(time.monotonic() - began, 1), "status": status}
    row["told"] = [line for line in said.splitlines() if line.startswith("fix: ")]
    if status not in (0, 1):
        row["error"] = said[-600:]
    if not (copy / "train.py").exists():
        return row
    kept = ["git", "log", "--format=%h %(trailers:key=Fix,valueonly,separator=%x2C)", "--reverse"]
    history = subprocess.run(kept, cwd=copy, capture_output=True, text=True, check=False).stdout.splitlines()
    row["kept"] = [line.partition(" ")[2] for line in history if line.partition(" ")[2]]
    show = ["git", "log", "-p", "--reverse"]
    (folder / "branch.log").write_text(
        subprocess.run(show, cwd=copy, capture_output=True, text=True, check=False).stdout
    )
    head = subprocess.run(["git", "show", "HEAD:./train.py"], cwd=copy, capture_output=True, text=True, check=False)
    if job.is_trap:
        return {**row, "left_alone": head.stdout == job.text}
    (folder / "repaired.py").write_text(head.stdout)
    row["is_by_hand"] = ast.dump(ast.parse(head.stdout)) == ast.dump(ast.parse(job.by_hand))
    sides = {"before_ms": "train.py", "fixed_ms": "repaired.py", "by_hand_ms": "by_hand.py"}
    try:
        times = dict(zip(sides, steps_ms(folder, list(sides.values()), environment, on), strict=True))
    except RuntimeError as error:
        return {**row, "error": str(error)}
    row |= {side: min(all_ms) for side, all_ms in times.items()} | {"all_ms": times}
    known = row["before_ms"] - row["by_hand_ms"]
    row["known_share"] = known / row["before_ms"]
    row["share_of_gain"] = (row["before_ms"] - row["fixed_ms"]) / known if known > 0 else None
    return row


def whole_cores() -> list[str]:
    """One logical core of each physical one: steps whose threads share one are of two lengths."""
    known, found = Path("/sys/devices/system/cpu"), dict[str, str]()
    for core in sorted(os.sched_getaffinity(0)):
        siblings = known / f"cpu{core}" / "topology" / "thread_siblings_list"
        found.setdefault(siblings.read_text() if siblings.is_file() else str(core), str(core))
    return list(found.values())


def main() -> None:
    """All programs, some at a time on each GPU, until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--set", default="singles,traps,several", help="sets of programs")
    parser.add_argument("--only", default="", help="names of programs, of all sets")
    parser.add_argument("--seconds", type=float, default=460.0, help="of everything")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds for each program's repair, at most")
    parser.add_argument("--beside", type=int, default=1, help="programs at a time on each GPU")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    asked = ["nvidia-smi", "-L"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout if shutil.which(asked[0]) else ""
    gpus = [str(at) for at, _ in enumerate(listed.splitlines())] or [""]
    chosen = jobs(["singles", "traps", "several", "set-aside"] if given.only else given.set.split(","))
    names = given.only.split(",") if given.only else list(chosen)
    out, rows, lock = given.out.resolve(), dict[str, dict[str, Any]](), threading.Lock()
    out.mkdir(parents=True, exist_ok=True)
    free: Queue[tuple[str, list[str]]] = Queue()
    cores = whole_cores()
    share = max(1, len(cores) // (len(gpus) * given.beside))
    for at, gpu in enumerate(gpus * given.beside):
        free.put((gpu, ["taskset", "-c", ",".join(cores[at * share : (at + 1) * share] or cores)]))

    def one(name: str) -> None:
        gpu, on = free.get()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}
        try:
            left_s = until - time.monotonic() - 60  # what is repaired is timed beside the hand-made repair
            row: dict[str, Any] = {"program": name, "error": "the time was up before it began"}
            if left_s > 30:
                row = repair(chosen[name], out / name, environment, min(given.budget, left_s), on)
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            row = {"program": name, "error": repr(error)[:600]}
        finally:
            free.put((gpu, on))
        with lock:
            rows[name] = row
            (out / "results.json").write_text(json.dumps(list(rows.values()), indent=1) + "\n")
            print(json.dumps(row), flush=True)

    with ThreadPoolExecutor(len(gpus) * given.beside) as pool:
        list(pool.map(one, names))


if __name__ == "__main__":
    main()
