"""What a step takes with a larger batch, measured, and what a plan of the base foretells of it.

    python -m benchmarks.ladders batches measure OUT [--only a,b] [--dry]   each program's base, one process a program
    python -m benchmarks.ladders batches adopt OUT
    python -m benchmarks.ladders batches score [--tool torch]

Of the programs to tune on whose batch can grow (`Context.items`). A step is the shortest of its blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.ladders import suite
from benchmarks.ladders.adopt import CAPTURES, unpacked

MEASURED = CAPTURES / "batches.json"
FACTORS = (1, 2, 4, 8, 16)
BLOCKS, BLOCK_S = 6, 0.05
LIMIT_S = 100.0


def grows(name: str) -> bool:
    """Whether a program's text asks for its batch's size by `Context.items`."""
    import inspect

    return suite.split(name) == "tune" and ".items(" in inspect.getsource(suite.find(name).builder())


def timed(name: str, out: Path, dry: bool) -> None:
    """One program in this process: OUT/NAME.batch.json, rewritten after every size, without sizes that do not fit."""
    import torch
    from benchmarks.faults import machine as machines
    from benchmarks.faults.machine import Ranges
    from benchmarks.faults.measure import timed_ms
    from benchmarks.ladders.measure import chosen, move_to_quiet_cores
    from benchmarks.ladders.parts import Context

    machine, found = machines.choose(Ranges.OFF, dry), {}
    for factor in FACTORS:
        try:
            chosen(machine, ())
            step = suite.find(name).builder()(Context(machine, frozenset(), factor))
            first = min(timed_ms(machine, step, 3, 2) for _ in range(2))
        except torch.cuda.OutOfMemoryError:
            break
        print(name, factor, move_to_quiet_cores(frozenset(range(os.cpu_count() or 1))), flush=True)
        count = 1 if dry else max(4, min(100, int(BLOCK_S * 1e3 / first)))
        found[factor] = round(min(timed_ms(machine, step, 2, count) for _ in range(1 if dry else BLOCKS)), 4)
        (out / f"{name}.batch.json").write_text(json.dumps(found))
        del step
        if machine.cuda:
            torch.cuda.empty_cache()


def score(tool: str) -> None:
    """By program: the time of an item with a batch so many times as large, in percent of today's."""
    from benchmarks.ladders.score import TOOLS, Foretold
    from benchmarks.ladders.truth import Truth

    from timesink.diagnosis.plan.batch import Today

    errors: list[float] = []
    print("| program | batch | measured | foretold | low to high |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        unpacked(tool, Path(scratch))
        for name, steps in json.loads(MEASURED.read_text()).items():
            truth = Truth(name)
            told = Foretold(Path(scratch) / f"{name}.{TOOLS[tool]}", truth.base_ms, truth.ladder.changes)
            today = Today.of(told.joint, (), told.step_ms)
            for factor in (int(key) for key in steps if key != "1"):
                item = today.larger_batch(factor).per_item
                low, value, high = (100 * one / told.step_ms for one in (item.low or 0.0, item.value, item.most))
                measured = 100 * steps[str(factor)] / factor / steps["1"]
                errors.append(abs(value - measured))
                print(f"| {name} | x{factor} | {measured:.0f} % | {value:.0f} % | {low:.0f} to {high:.0f} |")
    print(f"mean distance: {sum(errors) / len(errors):.1f} points of today's step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("measure", "one", "adopt", "score"))
    parser.add_argument("out", type=Path, nargs="?", default=Path())
    parser.add_argument("--only", default="")
    parser.add_argument("--tool", default="torch")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU")
    given = parser.parse_args()
    if given.do == "score":
        score(given.tool)
    elif given.do == "one":
        timed(given.only, given.out, given.dry)
    elif given.do == "adopt":
        found = {path.name.partition(".")[0]: json.loads(path.read_text()) for path in given.out.glob("*.batch.json")}
        known = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
        MEASURED.write_text(json.dumps(known | found, sort_keys=True) + "\n")
    else:
        given.out.mkdir(parents=True, exist_ok=True)
        for ladder in suite.LADDERS:
            if ladder.name in given.only.split(",") if given.only else grows(ladder.name):
                one = ("one", str(given.out), "--only", ladder.name, *(["--dry"] if given.dry else []))
                line = [sys.executable, "-m", "benchmarks.ladders.batches", *one]
                subprocess.run(line, timeout=LIMIT_S, check=False)


if __name__ == "__main__":
    main()
