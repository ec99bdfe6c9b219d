"""The programs of the ladders under trial, each beside its full truth on the same machine in the same minutes.

    python -m benchmarks.trials.ladders run OUT [--gpus 4] [--only mixer_training] [--budget 60] [--seconds 560]
    python -m benchmarks.trials.ladders score [results.json] [--plan]
    python -m benchmarks.trials.ladders keep OUT/ladders.json results.json

A program has one GPU and its share of the cores for itself. First its truth: the base and each change that can be
switched, made in the program's source, all in one fresh process (`benchmarks.ladders.measure`); then the trial of the
unchanged program; then the truth once more, with all that the trial kept. What the two rounds of the truth are apart is
the host's noise. All three are moved to those of their cores that are quickest now, by the same rule.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from threading import Lock, Thread
from typing import Any

from benchmarks.ladders.suite import LADDERS, find, slug, split
from benchmarks.trials.__main__ import SWITCHABLE

RESULTS = Path(__file__).with_name("ladders-h200.json")
PARTS = ("caption_decoding", "policy_training", "transducer_decoding")
"""Programs whose step calls parts of the model that are no repeated blocks."""
SOON_S = 2.0
STEADY = 0.02


def names_of(name: str) -> list[str]:
    """The changes of a ladder that can be switched from outside, those that take long last."""
    changes, whole = find(name).changes, "compile" if name in PARTS else "compile_blocks"
    singles = [change for change in changes if change in SWITCHABLE - {"compile"}]
    return singles + [whole] * ("compile" in changes)


def in_source(names: list[str]) -> tuple[str, ...]:
    """What the ladders call the same changes, in the order of the suite's sets."""
    return tuple("compile" if name == "compile_blocks" else name for name in names)


@dataclass(frozen=True)
class Slot:
    """One GPU and some cores."""

    gpu: int
    cores: frozenset[int]
    out: Path
    budget_s: float
    truth_s: float
    dry: bool

    def words(self, *words: str) -> list[str]:
        """The command of a Python module here."""
        return ["env", f"CUDA_VISIBLE_DEVICES={self.gpu}", sys.executable, "-m", *words]

    def truth(self, name: str, label: str, sets: list[str]) -> dict[str, list[float]]:
        """Milliseconds a step of every block, by set; of those whose losses are the base's."""
        line = self.words("benchmarks.ladders.measure", name, "--label", label, "--out", str(self.out / "raw"))
        line += ["--seconds", str(self.truth_s), *(["--dry"] if self.dry else []), "--sets", *sets]
        with (self.out / "raw" / f"{name}.{label}.log").open("wb") as log:
            subprocess.run(
                line, stdout=log, stderr=subprocess.STDOUT, check=True, timeout=240,
                preexec_fn=lambda: os.sched_setaffinity(0, self.cores),
            )  # fmt: skip
        found = json.loads((self.out / "raw" / f"{name}.{label}.json").read_text())
        return {of: one["blocks_ms"] for of, one in found.items() if one.get("receipts_equal")}

    def trial(self, name: str) -> dict[str, Any]:
        from timesink.trials.run import ProgramRuns

        folder = self.out / "raw" / name
        folder.mkdir(parents=True, exist_ok=True)
        script = self.words("benchmarks.trials.suite_script", name, *(["--dry"] if self.dry else []))
        runs = ProgramRuns(script, folder, "", True)
        keeper = get_context("fork").Process(target=keep_quick, args=(name, self.cores), daemon=True)
        keeper.start()
        try:
            return asdict(runs.in_place(names_of(name), self.budget_s)) | {"losses": []}
        finally:
            keeper.kill()

    def measure(self, name: str) -> dict[str, Any]:
        """Truth, trial, truth."""
        began = time.monotonic()
        singles = [slug((change,)) for change in in_source(names_of(name))]
        first = self.truth(name, "before", ["base", *singles])
        started = time.monotonic()
        found = self.trial(name)
        found["seconds"] = round(time.monotonic() - started, 1)
        kept = slug(in_source(found["kept"]))
        second = self.truth(name, "after", list(dict.fromkeys(["base", *singles, kept])))
        return found | {"truth": [first, second], "whole_s": round(time.monotonic() - began, 1)}


def keep_quick(name: str, cores: frozenset[int]) -> None:
    """Move a program, for ever, to those of `cores` that are quickest now; what its loaders fork stays where it was."""
    from benchmarks.ladders.measure import quickest

    while True:
        time.sleep(SOON_S)
        chosen = quickest(cores)[0]
        found = subprocess.run(
            ["pgrep", "-o", "-f", f"suite_script {name}"], capture_output=True, text=True, check=False
        )
        for thread in Path(f"/proc/{found.stdout.strip() or 'none'}/task").glob("*"):
            try:
                os.sched_setaffinity(int(thread.name), chosen)
            except OSError:  # it has ended
                continue


def run(given: argparse.Namespace) -> None:
    """Programs are taken one after another by whichever GPU is free; results are rewritten after each."""
    only = [name for name in given.only.split(",") if name]
    results = json.loads(given.path.read_text()) if given.path.is_file() else {}
    out = given.path.parent
    (out / "raw").mkdir(parents=True, exist_ok=True)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for ladder in LADDERS:
        if names_of(ladder.name) and (not only or ladder.name in only) and ladder.name not in results:
            waiting.put(ladder.name)
    began, lock = time.monotonic(), Lock()
    os.environ |= {"OMP_NUM_THREADS": "4", "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONWARNINGS": "ignore"}

    def work(slot: Slot) -> None:
        while time.monotonic() - began < given.seconds:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                found = slot.measure(name)
            except Exception as error:  # noqa: BLE001 - any failure is this program's result
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                continue
            with lock:
                results[name] = found
                given.path.write_text(json.dumps(results, indent=1))
                print(
                    f"{time.monotonic() - began:4.0f} s  {name}: {found['whole_s']:.0f} s, kept {found['kept']}",
                    flush=True,
                )

    every = sorted(os.sched_getaffinity(0))[: given.cores or None]
    each = len(every) // given.gpus
    workers = []
    for gpu in range(given.gpus):
        cores = frozenset(every[gpu * each : (gpu + 1) * each])
        slot = Slot(gpu, cores, out, given.budget, given.truth, given.dry)
        workers.append(Thread(target=work, args=(slot,)))
        workers[-1].start()
    for worker in workers:
        worker.join()


def gains(found: dict[str, Any], change: str) -> list[float]:
    """What each round of the truth says that a set of changes wins, as a share of the step: by the shortest blocks."""
    return [1 - min(of[change]) / min(of["base"]) for of in found["truth"] if of.get(change) and of.get("base")]


def foretold(names: list[str]) -> dict[str, dict[str, float]]:
    """What the plan of a program's stored torch capture says of single changes, the step without a profiler known."""
    from benchmarks.ladders.adopt import unpacked
    from benchmarks.ladders.score import Foretold
    from benchmarks.ladders.truth import Truth

    with tempfile.TemporaryDirectory() as folder:
        unpacked("torch", Path(folder))
        found = {}
        for name in names:
            changes = find(name).changes
            told = Foretold(Path(folder) / f"{name}.json", Truth(name).base_ms, changes)
            found[name] = {change: told.gain([change]) for change in changes}
    return found


def score(results: dict[str, dict[str, Any]], with_plan: bool) -> None:
    """Each single beside the truth, then the sums over all."""
    errors, first, ends, noise, seconds = [], [], [], [], []
    told, plan_errors, plan_first = foretold([*results]) if with_plan else {}, [], []
    for name, found in results.items():
        seconds.append(found["seconds"])
        tried = {in_source([one["name"]])[0]: one for one in found["tried"] if not one["beside"]}
        real = {change: fmean(rounds) for change in tried if (rounds := gains(found, change))}
        measured = {change: 1 - tried[change]["shortest"] for change in real if tried[change]["pairs"]}
        for change, one in tried.items():
            if change not in measured:
                print(f"{name:22} {change:16} not measured: {one['refused'] or one['failed'] or 'no truth'}")
                continue
            rounds = gains(found, change)
            errors.append(abs(measured[change] - real[change]))
            noise.append(max(rounds) - min(rounds))
            plan = f", foretold {told[name][change]:.1%}" if told else ""
            print(
                f"{name:22} {change:16} {measured[change]:7.1%} truth {real[change]:7.1%} (two rounds {noise[-1]:.1%} "
                f"apart, {split(name)}{plan}) by medians {1 - one['ratio']:.1%}, "
                f"{1 - one['high']:.1%} to {1 - one['low']:.1%}"
            )
        if measured:
            enough = max(real.values()) - 0.02
            first.append(real[max(measured, key=lambda change: measured[change])] >= enough)
            if told:
                plan_errors += [abs(told[name][change] - real[change]) for change in measured]
                plan_first.append(real[max(measured, key=lambda change: told[name][change])] >= enough)
        if found["joint"]:
            kept = in_source(found["kept"])
            if rounds := gains(found, slug(kept)):
                end = 1 - found["joint"]["shortest"]
                ends.append(abs(end - fmean(rounds)))
                print(f"{name:22} together {end:7.1%} truth {fmean(rounds):7.1%}: {' + '.join(kept)}")
    steady = [error for error, apart in zip(errors, noise, strict=True) if apart <= STEADY]
    print(f"{told_of(errors)}; two rounds of the truth are {100 * fmean(noise or [0]):.1f} points apart")
    print(f"where they are at most {STEADY:.0%} apart: {told_of(steady)}")
    print(f"best first {sum(first)} of {len(first)}; ends {told_of(ends, 0.05)}")
    print(f"{fmean(seconds):.0f} s a trial, {max(seconds):.0f} at most")
    if told:
        print(f"the plan: {told_of(plan_errors)}, best first {sum(plan_first)} of {len(plan_first)}")


def told_of(errors: list[float], near: float = 0.03) -> str:
    """How far off, in a few words."""
    count = sum(error <= near for error in errors)
    return f"{len(errors)} are {100 * fmean(errors or [0]):.1f} points off, {count} within {100 * near:.0f}"


def keep(results: dict[str, dict[str, Any]], path: Path) -> None:
    """What the score reads, small: of the truth the shortest blocks, of a trial what it measured."""
    for found in results.values():
        found["truth"] = [{name: [min(blocks)] for name, blocks in of.items()} for of in found["truth"]]
        for one in (*found["tried"], *filter(None, [found["joint"]])):
            for key in [key for key, value in one.items() if not value and key not in ("beside", "refused", "failed")]:
                one[key] = 0
    path.write_text(json.dumps(results) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "score", "keep"))
    parser.add_argument("path", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("into", type=Path, nargs="?")
    parser.add_argument("--plan", action="store_true", help="score what a plan foretells of the same changes too")
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--truth", type=float, default=8.0, help="seconds of one round of the truth")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no program after so long")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--cores", type=int, default=0, help="of this machine, shared by all GPUs; 0: all")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    given = parser.parse_args()
    if given.what == "run":
        run(given)
    elif given.what == "keep":
        keep(json.loads(given.path.read_text()), given.into)
    else:
        score(json.loads(given.path.read_text()), given.plan)


if __name__ == "__main__":
    main()
