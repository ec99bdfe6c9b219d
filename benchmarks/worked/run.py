"""Both worked examples on a GPU: capture every state, write predictions down, then measure every change.

    python -m benchmarks.worked.run OUT [--only layer|gpt2] [--seconds 540] [--dry]

Needs PyTorch with CUDA and Triton, and timesink. For each example OUT gets NAME.json (what was named, predicted and
measured), NAME.ledger.jsonl (the predictions, dated, and what became of them), NAME.captures.tar (traces cut to a few
steps, without folders) and NAME.details.tar.xz (diagnoses, reports of `verify`, logs). A part that fails is recorded
and stops no other; NAME.json is rewritten after every part.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.worked import pack
from benchmarks.worked.ladders import EXAMPLES, Change, Example, Flags, slug
from benchmarks.worked.measured import machine, measured
from benchmarks.worked.predict import TIMESINK, looked_at, prediction

from timesink.capture.recorded_run import slowest_rank
from timesink.untrusted.whole_file import whole_file

ROOT = Path(__file__).resolve().parents[2]
ACTIVE, WARM_UP = 6, 2
RUN_LIMIT_S = 120.0
LEAST_PAIRS, MOST_PAIRS = 2, 6
WARM_UP_PAIRS = 0  # every state was captured first: its kernels are compiled and in the caches
THRESHOLD = "1%"


@dataclass(slots=True)
class Session:
    """One example: where its files go, when it must be done, and what is known so far."""

    example: Example
    out: Path
    work: Path
    deadline_s: float
    dry: bool
    known: dict[str, Any] = field(default_factory=dict)
    run_s: dict[Flags, float] = field(default_factory=dict)

    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def program(self, flags: Flags, steps: int) -> list[str]:
        words = [sys.executable, "-m", f"benchmarks.worked.{self.example.name}", *flags]
        return [*words, "--steps", str(20 if self.dry else steps), *(["--dry"] if self.dry else [])]

    def save(self) -> None:
        with whole_file(self.out / f"{self.example.name}.json") as part:
            part.write_text(json.dumps(self.known, indent=1), encoding="utf-8")

    def attempt(self, row: dict[str, Any], what: str, part: Callable[[], None]) -> None:
        """Run one part; what goes wrong stands in its row."""
        begin = time.monotonic()
        try:
            part()
        except Exception as problem:  # noqa: BLE001 - GPU time is scarce: no part stops the others
            row[f"{what}_failed"] = f"{type(problem).__name__}: {problem}"[-800:]
        row[f"{what}_s"] = round(time.monotonic() - begin, 1)
        print(f"{time.strftime('%H:%M:%S')} {self.example.name} {what} {row.get('name')} {row[f'{what}_s']} s "
              f"{row.get(f'{what}_failed', '')}", flush=True)  # fmt: skip
        self.save()


def ended(words: list[str], limit_s: float, log: Path) -> int:
    """The exit status of a program. Past its limit it is interrupted, so that it ends its own children, then killed."""
    with log.open("ab") as text:
        process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=text, stderr=text)
        try:
            return process.wait(max(1.0, limit_s))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise


def capture(session: Session, flags: Flags, row: dict[str, Any]) -> None:
    """torch.profiler over a few steps of one state, and the step's time without it."""
    example, folder = session.example, session.work / "captures" / slug(flags)
    counts = {"--settle": example.settle, "--timed": example.timed, "--warm-up": WARM_UP, "--steps": ACTIVE}
    if session.dry:
        counts |= {"--settle": 2, "--timed": 4}
    options = [word for name, value in counts.items() for word in (name, str(value))]
    words = [*TIMESINK, "capture", "torch", "--output", str(folder), *options, "--", *session.program(flags, 300)]
    log = session.work / f"capture.{slug(flags)}.log"
    begin = time.monotonic()
    status = ended(words, min(RUN_LIMIT_S, session.left_s()), log)
    session.run_s[flags] = time.monotonic() - begin
    if not (folder / "manifest.json").exists():
        raise RuntimeError(f"status {status}: {log.read_text(errors='replace')[-600:]}")
    manifest = json.loads((folder / "manifest.json").read_text())
    for what in ("unprofiled", "profiled"):
        row[f"{what}_step_ms"] = (slowest_rank(manifest, what) or (None,))[0]
    said = [line for line in (folder / "log.txt").read_text(errors="replace").splitlines() if line.startswith("{")]
    row["agreement"] = json.loads(said[0]) if said else None


def look(session: Session, flags: Flags, row: dict[str, Any], wanted: list[Change]) -> None:
    """Diagnose one capture and price what may follow it."""
    found = looked_at(session.work / "captures" / slug(flags), wanted)
    (session.work / f"looked.{slug(flags)}.json").write_text(json.dumps(found, indent=1))
    row["named"] = [
        {key: finding[key] for key in ("code", "name", "message", "recoverable_ms_per_step")}
        for finding in found["diagnosis"]["findings"]
    ]
    row["verdict"] = found["diagnosis"]["verdict"]
    row["devices"] = found["diagnosis"]["devices"]
    row["predicted"] = {change.name: prediction(change, found) for change in wanted}


def write_down(session: Session, change: Change, row: dict[str, Any]) -> None:
    """Open the ledger's entry: from here on the prediction stands."""
    state = session.known["states"][slug(change.before)]
    foreseen = row["predicted"] = state["predicted"][change.name]
    numbers = ",".join(f"{foreseen[key]:.6f}" for key in ("low", "value", "high"))
    words = [*TIMESINK, "verify", "--ledger", "--root", str(session.work), "add", f"{change.name}: {change.hypothesis}"]
    words += ["--predicted", numbers, "--change", f"{slug(change.before)} -> {slug(change.after)}"]
    words += ["--finding", " ".join(foreseen["codes"])] if foreseen["codes"] else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-400:])
    row["ledger"] = int(done.stdout.split()[1])  # "Entry 3 is open in …"


def measure(session: Session, change: Change, row: dict[str, Any], pairs: int) -> None:
    """`timesink verify`: both sides in fresh processes, taking turns; it closes the ledger's entry."""
    if session.left_s() < 20:
        raise RuntimeError("no time left")
    report = session.work / f"verify.{slug(change.after)}.json"
    sides = {"--before": change.before, "--after": change.after}
    words = [*TIMESINK, "verify", "--pairs", str(pairs), "--threshold", THRESHOLD]
    words += ["--warm-up-pairs", str(WARM_UP_PAIRS)]
    for side, flags in sides.items():
        words += [side, shlex.join(session.program(flags, change.steps))]
    words += ["--format", "json", "-o", str(report)]
    words += ["--check-tolerance", session.example.check_tolerance, "--timeout", str(RUN_LIMIT_S), "--exit-zero"]
    words += ["--ledger", str(row["ledger"]), "--root", str(session.work)] if "ledger" in row else []
    log = session.work / f"verify.{slug(change.after)}.log"
    status = ended(words, session.left_s() - 5, log)
    if not report.exists():
        raise RuntimeError(f"status {status}: {log.read_text(errors='replace')[-600:]}")
    row["measured"] = measured(json.loads(report.read_text()), pairs)


def affordable(session: Session, left: list[Change], pace: float) -> int:
    """As many pairs per change as the time left allows for all that is left, by how long captures took."""
    both = sum(session.run_s.get(change.before, 8.0) + session.run_s.get(change.after, 8.0) for change in left)
    pairs = int((session.left_s() - 15) / (both * pace)) - WARM_UP_PAIRS
    return LEAST_PAIRS if session.dry else max(LEAST_PAIRS, min(MOST_PAIRS, pairs))


def measure_all(session: Session, rows: list[dict[str, Any]]) -> None:
    """The ladder's changes first, then those beside it."""
    both = list(zip(session.example.changes, rows, strict=True))
    order = [pair for pair in both if pair[0].kept] + [pair for pair in both if not pair[0].kept]
    pace = 0.7  # of a capture's time, until a change was measured: a plain run neither records nor exports
    for place, (change, row) in enumerate(order):
        pairs = affordable(session, [later for later, _ in order[place:]], pace)
        session.attempt(row, "measure", lambda c=change, r=row, p=pairs: measure(session, c, r, p))
        if "measured" in row and row["measured"]["outcome"] != "invalid":
            runs = session.run_s.get(change.before, 8.0) + session.run_s.get(change.after, 8.0)
            pace = row["measure_s"] / ((WARM_UP_PAIRS + pairs) * runs)


def work(session: Session) -> None:
    """One example, start to end."""
    example = session.example
    states = {slug(flags): {"name": slug(flags), "flags": list(flags)} for flags in example.states}
    rows = [
        {"name": change.name, "before": slug(change.before), "after": slug(change.after), "kept": change.kept,
         "hypothesis": change.hypothesis, "codes": list(change.codes)} for change in example.changes
    ]  # fmt: skip
    session.known = {"example": example.name, "attainable_ms": example.attainable_ms, "machine": machine(),
                     "states": states, "changes": rows, "dry": session.dry}  # fmt: skip
    with ThreadPoolExecutor(3) as threads:  # diagnosing needs no GPU
        looks = []
        for flags in example.states:
            row = states[slug(flags)]
            session.attempt(row, "capture", lambda f=flags, r=row: capture(session, f, r))
            if "capture_failed" not in row:
                following = [change for change in example.changes if change.before == flags]
                looks.append((row, threads.submit(look, session, flags, row, following)))
        for row, future in looks:
            session.attempt(row, "look", future.result)
    for change, row in zip(example.changes, rows, strict=True):
        session.attempt(row, "predict", lambda c=change, r=row: write_down(session, c, r))
    session.attempt(session.known, "pack", lambda: pack.captures(session.work / "captures", session.out, example.name))
    measure_all(session, rows)
    ledger = session.work / "ledger.jsonl"
    if ledger.exists():
        (session.out / f"{example.name}.ledger.jsonl").write_bytes(ledger.read_bytes())
    session.attempt(session.known, "details", lambda: pack.details(session.work, session.out, example.name))


def chosen(example: Example, names: str) -> Example:
    """The example with these changes alone, or all of them."""
    wanted = [part for part in names.split(",") if part]
    return replace(example, changes=tuple(c for c in example.changes if not wanted or c.name in wanted))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=sorted(EXAMPLES), help="this example alone")
    parser.add_argument("--changes", default="", help="these changes alone, by name, separated by commas")
    parser.add_argument("--seconds", type=float, default=540.0, help="wall-clock limit of the whole call")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    given = parser.parse_args()
    begin = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    work_folder = Path(tempfile.mkdtemp(prefix="worked-"))
    places = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(place for place in places if place)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work_folder / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(work_folder / "triton")
    names = [given.only] if given.only else list(EXAMPLES)
    for place, name in enumerate(names):
        folder = work_folder / name
        folder.mkdir()
        share = (given.seconds - (time.monotonic() - begin)) / (len(names) - place)
        session = Session(chosen(EXAMPLES[name], given.changes), given.out, folder, time.monotonic() + share, given.dry)
        work(session)


if __name__ == "__main__":
    main()
