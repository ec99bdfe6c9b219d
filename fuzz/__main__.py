"""Fuzz by mutation: `python -m fuzz [--minutes 10] [--jobs 2] [TARGET ...]`; all targets if none is named.

Each target gets so many minutes of CPU time (`--in-all`: all of them together), in slices that take turns, each in a
process of its own under the invariants of `fuzz.guard`. Every slice writes a line into LOG/log.jsonl: its target,
inputs, what broke, CPU seconds. The same command again goes on where the log ends. What breaks an invariant is kept
under LOG/found and the run ends with status 1. With `--guided`, an input that takes a way through the code of timesink
that none before it took is kept under LOG/corpus and mutated further.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from fuzz.coverage import SUPPORTED, Corpus
from fuzz.guard import Broken, holds
from fuzz.seeds import ROOT
from fuzz.targets import Target, groups

LOG = ROOT / "build" / "fuzz"
MOST_FOUND = 25  # of one slice; more of the same teaches nothing
ADDRESS_SPACE_BYTES = 24 << 30  # a bomb ends in MemoryError, not in the machine's memory
TRACED = 3.0  # times slower, at most, is what notes its branches
SLICE_S = 60.0  # of CPU time, beside some seconds of imports


def tried(target: Target, data: bytes, slower: float = 1.0) -> str:
    """The declared error, or "", of something that is made so many times slower. `Broken` where an invariant does not
    hold."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ.update(XDG_CACHE_HOME=folder, TIMESINK_CACHE_DIR=folder)
        tempfile.tempdir = folder  # what a reader writes for itself
        try:
            return holds(target.work, target.placed(data, Path(folder)), slower)
        finally:
            tempfile.tempdir = None


def fuzz(
    name: str, log: Path, seconds: float, cases: int, seed: int, *, guided: bool = False
) -> tuple[int, int, dict[str, Broken]]:
    """Cases run, cases refused, and what broke, by the place it broke at."""
    group = groups()[name]
    for target in group:
        for data in target.seeds()[:2]:
            tried(target, data)  # imports done, and no seed is broken itself
    kept = {target.name: Corpus(log / "corpus" / target.name) for target in group if guided}
    rng, run, refused, broken = random.Random(seed), 0, 0, {}
    until = cpu_s() + seconds
    current = log / "found" / f"current.{name}"
    current.parent.mkdir(parents=True, exist_ok=True)
    while run < cases and cpu_s() < until and len(broken) < MOST_FOUND:
        target = rng.choice(group)
        seeds = target.seeds()
        corpus = kept.get(target.name)
        data = target.change(
            rng.choice(corpus.grown if corpus and corpus.grown and rng.random() < 0.7 else seeds), rng, seeds
        )
        current.write_bytes(data)  # what is left if the process dies
        run += 1
        try:
            with corpus.noting(data) if corpus else nullcontext():
                refused += bool(tried(target, data, TRACED if corpus else 1.0))
        except Broken as found:
            place = place_of(found)
            if place not in broken:
                broken[place] = found
                file = f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
                (current.parent / file).write_bytes(data)
                print(f"{file}: {found}\n  {place}", flush=True)
    current.unlink(missing_ok=True)
    return run, refused, broken


def place_of(found: Broken) -> str:
    """Where it broke: the innermost line of timesink."""
    cause = found.__cause__ or found
    frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if "timesink" in frame.filename]
    last = frames[-1] if frames else None
    return f"{type(cause).__name__} {last.filename.partition('src/')[2]}:{last.lineno}" if last else str(found)


def cpu_s() -> float:
    """CPU time of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


@dataclass(frozen=True, slots=True)
class Slice:
    """Some seconds of one target, with the seed of its random numbers."""

    name: str
    seconds: float
    seed: int


def left_of(spent: Counter[str], taken: Counter[str], minutes: float, names: list[str], seed: int) -> list[Slice]:
    """The slices that are left of a budget for each target, taking turns, each with a seed of its own."""
    left, least = [], min(SLICE_S, 60 * minutes) / 20  # what is less was spent: a slice ends with an input
    for name in names:
        number, rest = taken[name], 60 * minutes - spent[name]
        while rest > least:
            left.append((number, Slice(name, min(SLICE_S, rest), seed + 1_000 * number)))
            number, rest = number + 1, rest - SLICE_S
    return [one for _, one in sorted(left, key=lambda entry: entry[0])]


def logged(log: Path, seed: int) -> tuple[Counter[str], Counter[str], int]:
    """CPU seconds and slices by target that the log tells of, and how much broke."""
    spent: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    broken = 0
    if (log / "log.jsonl").exists():
        for row in map(json.loads, (log / "log.jsonl").read_text().splitlines()):
            if row["seed"] % 1_000 == seed:
                spent[row["target"]] += row["cpu_s"]
                taken[row["target"]] += 1
                broken += row["broken"]
    return spent, taken, broken


def apart(one: Slice, log: Path, cases: int, *, guided: bool = False) -> bool:
    """The slice in a process of its own; whether it ended well."""
    command = [sys.executable, "-m", "fuzz", "--here", "--log", str(log), "--minutes", str(one.seconds / 60)]
    command += ["--cases", str(cases), "--seed", str(one.seed), one.name, *(["--guided"] if guided else [])]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status not in (0, 1):
        current, died = (log / "found" / f"{state}.{one.name}" for state in ("current", "died"))
        if current.exists():
            current.rename(died)
        print(f"{one.name}: the process died with status {status}; its input is {died}", flush=True)
        _write(log, one, 0, 0, 1, one.seconds)
    return status == 0


def here(one: Slice, log: Path, cases: int, *, guided: bool = False) -> bool:
    """The slice in this process; whether nothing broke."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, resource.RLIM_INFINITY))
    before = cpu_s()
    run, refused, broken = fuzz(one.name, log, one.seconds, cases, one.seed, guided=guided)
    took_s = cpu_s() - before
    _write(log, one, run, refused, len(broken), took_s)
    print(f"{one.name}: {run} inputs, {refused} refused, {len(broken)} broken, {took_s:.0f} s of CPU", flush=True)
    return not broken


def _write(log: Path, one: Slice, run: int, refused: int, broken: int, took_s: float) -> None:
    row = {"target": one.name, "seed": one.seed, "inputs": run, "refused": refused, "broken": broken}
    log.mkdir(parents=True, exist_ok=True)
    with (log / "log.jsonl").open("a") as file:
        file.write(json.dumps({**row, "cpu_s": round(took_s, 1)}) + "\n")


def main() -> int:
    """0 where every invariant held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[[], *groups()])
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU time, for each target")
    parser.add_argument("--in-all", type=float, metavar="MINUTES", help="of CPU time, for all targets together")
    parser.add_argument("--jobs", type=int, default=1, help="so many at once")
    parser.add_argument("--cases", type=int, default=1 << 60, help="at most so many inputs in a slice")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="0 to 999: another run")
    parser.add_argument("--log", type=Path, default=LOG, metavar="DIR", help="where the log and what broke go")
    parser.add_argument("--guided", action="store_true", help="led by what inputs reach; needs Python 3.12")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.guided and not SUPPORTED:
        parser.error("--guided needs Python 3.12 or newer: it asks Python which way branches go")
    names, log = options.targets or list(groups()), options.log.resolve()
    minutes = options.minutes if options.in_all is None else options.in_all / len(names)
    if options.here:
        return 0 if here(Slice(names[0], 60 * minutes, options.seed), log, options.cases, guided=options.guided) else 1
    spent, taken, broken = logged(log, options.seed)
    slices = left_of(spent, taken, minutes, names, options.seed)
    with ThreadPoolExecutor(options.jobs) as pool:
        held = [*pool.map(lambda one: apart(one, log, options.cases, guided=options.guided), slices)]
    return 0 if all(held) and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
