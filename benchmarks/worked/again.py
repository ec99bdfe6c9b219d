"""Measure changes of a finished ladder once more; what was predicted stays what it was.

    python -m benchmarks.worked.again gpt2 OUT --changes "fused AdamW" [--pairs 3] [--steps 200] [--seconds 240]

Takes predictions and ledger from `results/`. Each change goes through `timesink verify`, after one run of either side
that fills the caches and is not counted. An entry of the ledger that is still open is closed; one that is closed stays.
OUT gets NAME.json and NAME.ledger.jsonl, each with what is new added, and every report. Neither captures nor Polars are
needed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.worked.measured import machine, measured

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parents[1], HERE / "results"
CHECK_TOLERANCES = {"layer": "0", "gpt2": "2%"}
RUN_LIMIT_S = 120


def program(example: str, state: str, steps: int, dry: bool) -> list[str]:
    """The command of one state, whose name holds its flags."""
    flags = [] if state == "plain" else [f"--{flag}" for flag in state.split("+")]
    words = [sys.executable, "-m", f"benchmarks.worked.{example}", *flags, "--steps", str(steps)]
    return [*words, "--dry"] if dry else words


def verification(given: argparse.Namespace, change: dict[str, Any], is_open: bool, report: Path) -> list[str]:
    """The command of `timesink verify` for one change."""
    words = [sys.executable, "-m", "timesink", "verify", "--pairs", str(given.pairs), "--threshold", "1%"]
    words += ["--warm-up-pairs", "0", "--check-tolerance", CHECK_TOLERANCES[given.example], "--exit-zero"]
    for side in ("before", "after"):
        words += [f"--{side}", shlex.join(program(given.example, change[side], given.steps, given.dry))]
    words += ["--timeout", str(RUN_LIMIT_S), "--format", "json", "-o", str(report)]
    return [*words, "--ledger", str(change["ledger"]), "--root", str(given.out)] if is_open else words


def warm(given: argparse.Namespace, change: dict[str, Any]) -> None:
    """One run of either side, both at once: what they compile lies in the caches afterwards."""
    sides = [program(given.example, change[side], 10, given.dry) for side in ("before", "after")]
    running = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) for words in sides]
    for process in running:
        if status := process.wait(RUN_LIMIT_S):
            raise RuntimeError(f"{shlex.join(process.args)}: status {status}")


def measure(given: argparse.Namespace, change: dict[str, Any], is_open: bool, end_s: float) -> None:
    """Put the outcome into the change's row; what the first run had said there is kept beside it."""
    warm(given, change)
    report = given.out / f"verify.{change['after']}.json"
    words = verification(given, change, is_open, report)
    subprocess.run(words, cwd=ROOT, timeout=max(1.0, end_s - time.monotonic()), check=True)
    first = {key: change.pop(key) for key in ("measured", "measure_failed", "measure_s", "cut_off") if key in change}
    change["measured"] = measured(json.loads(report.read_text(encoding="utf-8")), given.pairs)
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
    change["second_run"] = {"date": date, "steps": given.steps, "machine": machine(), "first_run": first}


def still_open(ledger: Path) -> set[int]:
    """Numbers of the entries without an outcome."""
    events = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    return {event["number"] for event in events} - {event["number"] for event in events if event["event"] == "close"}


def main() -> None:
    given = parsed()
    end_s = time.monotonic() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    result = json.loads((RESULTS / f"{given.example}.json").read_text(encoding="utf-8"))
    ledger = given.out / "ledger.jsonl"
    shutil.copyfile(RESULTS / f"{given.example}.ledger.jsonl", ledger)
    caches = Path(tempfile.mkdtemp(prefix="worked-"))
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "TRITON_CACHE_DIR": str(caches / "triton")}
    places = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(place for place in places if place)
    rows = {change["name"]: change for change in result["changes"]}
    needed_s = 0.0
    for name in given.changes.split(","):
        begin_s = time.monotonic()
        if end_s - begin_s < needed_s:
            print(f"{name}: no time left", flush=True)
            continue
        measure(given, rows[name], rows[name].get("ledger") in still_open(ledger), end_s)
        needed_s = time.monotonic() - begin_s
        print(f"{name}: {needed_s:.0f} s, {rows[name]['measured']['headline']}", flush=True)
        (given.out / f"{given.example}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        shutil.copyfile(ledger, given.out / f"{given.example}.ledger.jsonl")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example", choices=sorted(CHECK_TOLERANCES))
    parser.add_argument("out", type=Path)
    parser.add_argument("--changes", required=True, help="names of changes, separated by commas")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200, help="steps of every run")
    parser.add_argument("--seconds", type=float, default=240.0, help="wall-clock limit of the whole call")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    return parser.parse_args()


if __name__ == "__main__":
    main()
