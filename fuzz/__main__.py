"""Fuzz by mutation: `python -m fuzz [--minutes 10] [--seed N] [--cases N] [TARGET ...]`; all targets if none is named.

Each target runs in a process of its own, under the invariants of `fuzz.guard`, for so many minutes of CPU time or so
many cases. What breaks an invariant is kept under build/fuzz/found and the run ends with status 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from fuzz.guard import Broken, holds
from fuzz.mutations import mutated
from fuzz.seeds import ROOT
from fuzz.targets import Target, groups

FOUND = ROOT / "build" / "fuzz" / "found"
MOST_FOUND = 25  # of one target; more of the same teaches nothing
ADDRESS_SPACE_BYTES = 24 << 30  # a bomb ends in MemoryError, not in the machine's memory


def tried(target: Target, data: bytes) -> str:
    """The declared error, or "". `Broken` where an invariant does not hold."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ.update(XDG_CACHE_HOME=folder, TIMESINK_CACHE_DIR=folder)
        return holds(target.work, target.placed(data, Path(folder)))


def fuzz(name: str, minutes: float, cases: int, seed: int) -> tuple[int, int, dict[str, Broken]]:
    """Cases run, cases refused, and what broke, by the place it broke at."""
    group = groups()[name]
    for target in group:
        for data in target.seeds():
            tried(target, data)  # imports done, and no seed is broken itself
    rng, run, refused, broken = random.Random(seed), 0, 0, {}
    until = _cpu_s() + 60 * minutes
    current = FOUND / name / "current"
    current.parent.mkdir(parents=True, exist_ok=True)
    while run < cases and _cpu_s() < until and len(broken) < MOST_FOUND:
        target = rng.choice(group)
        seeds = target.seeds()
        data = mutated(rng.choice(seeds), rng, seeds)
        current.write_bytes(data)  # what is left if the process dies
        run += 1
        try:
            refused += bool(tried(target, data))
        except Broken as found:
            place = _place(found)
            if place not in broken:
                broken[place] = found
                file = f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
                (current.parent / file).write_bytes(data)
                print(f"{file}: {found}\n  {place}", flush=True)
    current.unlink(missing_ok=True)
    return run, refused, broken


def _place(found: Broken) -> str:
    """Where it broke: the innermost line of timesink."""
    cause = found.__cause__ or found
    frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if "timesink" in frame.filename]
    last = frames[-1] if frames else None
    return f"{type(cause).__name__} {last.filename.partition('src/')[2]}:{last.lineno}" if last else str(found)


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def _apart(options: argparse.Namespace, name: str) -> bool:
    """The target in a process of its own; whether it ended well."""
    command = [sys.executable, "-m", "fuzz", "--here", "--minutes", str(options.minutes)]
    command += ["--cases", str(options.cases), "--seed", str(options.seed), name]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status not in (0, 1):
        print(f"{name}: the process died with status {status}; its input is {FOUND / name / 'current'}", flush=True)
    return status == 0


def main() -> int:
    """0 where every invariant held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", choices=[[], *groups()])
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU time, for each target")
    parser.add_argument("--cases", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.targets or list(groups())
    if not options.here:
        ended_well = [_apart(options, name) for name in names]
        return 0 if all(ended_well) else 1
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, resource.RLIM_INFINITY))
    (name,) = names
    before = _cpu_s()
    run, refused, broken = fuzz(name, options.minutes, options.cases, options.seed)
    took_s = _cpu_s() - before
    print(f"{name}: {run} inputs, {refused} refused, {len(broken)} broken, {took_s:.0f} s of CPU", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
