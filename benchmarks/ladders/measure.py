"""One program in one process: every set of its changes timed without a profiler, or its base under a profiler.

    python -m benchmarks.ladders.measure graph_training --out raw/ [--tool nsys] [--wait] [--dry]

Everything is built, compiled and warmed up first. With `--wait` the process then writes `raw/NAME.TOOL.ready` and
waits for `raw/NAME.TOOL.go`: processes compile side by side and are timed one at a time.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from benchmarks.faults import machine as machines
from benchmarks.faults.machine import Machine, Ranges
from benchmarks.faults.measure import RECEIPTS, timed_ms
from benchmarks.faults.program import Step
from benchmarks.faults.receipts import equal
from benchmarks.ladders import suite
from benchmarks.ladders.parts import Context
from benchmarks.ladders.suite import Ladder, slug
from torch.profiler import ProfilerActivity, profile

BLOCK_S, BLOCK_STEPS, BLOCKS = 0.05, 6, 4
PREFETCHED = 14
"""Steps that use up what a loader's workers had ready."""
WARM = 6


def chosen(machine: Machine, changes: tuple[str, ...]) -> None:
    """Set what holds for the whole process."""
    torch.set_float32_matmul_precision("high" if "tf32" in changes else "highest")
    torch.backends.cudnn.allow_tf32 = True


def built(machine: Machine, ladder: Ladder, variants: list[tuple[str, ...]]) -> tuple[dict[str, Step], dict[str, Any]]:
    """Steps of all variants, warm, and their receipts or the end of a traceback."""
    steps: dict[str, Step] = {}
    found: dict[str, Any] = {}
    for changes in variants:
        began, name = time.perf_counter(), slug(changes)
        try:
            chosen(machine, changes)
            step = ladder.builder()(Context(machine, frozenset(changes)))
            receipts = [float(step()) for _ in range(RECEIPTS)]
            for _ in range(WARM if not machine.tiny else 1):
                step()
            machine.synchronize()
            steps[name], found[name] = step, {"receipts": receipts}
        except Exception:  # noqa: BLE001 - any failure is this variant's result
            found[name] = {"failed": traceback.format_exc()[-1500:]}
        print(f"{ladder.name} {name}: built in {time.perf_counter() - began:.1f} s {found[name]}", flush=True)
    return steps, found


def timed(machine: Machine, ladder: Ladder, steps: dict[str, Step], blocks: int) -> dict[str, list[float]]:
    """Block means in ms, all variants in order, then in the reverse order, and so on."""
    sets = {slug(changes): changes for changes in ladder.variants()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    counts: dict[str, int] = {}
    for number in range(blocks):
        for name in list(steps) if number % 2 == 0 else reversed(steps):
            chosen(machine, sets[name])
            settle = PREFETCHED if "loader_workers" in sets[name] else 2
            if name not in counts:
                first = timed_ms(machine, steps[name], settle, 2)
                counts[name] = max(BLOCK_STEPS, min(100, math.ceil(BLOCK_S * 1e3 / max(first, 1e-3))))
            wanted = (1, 1) if machine.tiny else (settle, counts[name])
            times[name].append(round(timed_ms(machine, steps[name], *wanted), 5))
    return times


def under_torch(machine: Machine, step: Step, target: Path) -> None:
    """A plain capture of some steps, as a stranger takes it: no schedule, no mark."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if machine.cuda else [])
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    for steps in (1, suite.STEPS):  # the first starts the profiler's own machinery
        for _ in range(2):
            step()
        machine.synchronize()
        with profile(activities=activities, record_shapes=True, experimental_config=config) as profiler:
            for _ in range(steps):
                step()
            machine.synchronize()
    profiler.export_chrome_trace(str(target))


def under_nsys(machine: Machine, step: Step) -> None:
    for _ in range(WARM):
        step()
    machine.synchronize()
    if machine.cuda:
        torch.cuda.profiler.start()
    for _ in range(suite.STEPS):
        step()
    machine.synchronize()
    if machine.cuda:
        torch.cuda.profiler.stop()


def turn(out: Path, name: str, wait: bool) -> None:
    """Wait until this process is the only one at work."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    gc.collect()
    gc.freeze()
    (out / f"{name}.ready").touch()
    while wait and not (out / f"{name}.go").exists():
        time.sleep(0.05)


def measured(machine: Machine, ladder: Ladder, given: argparse.Namespace) -> None:
    steps, found = built(machine, ladder, ladder.variants())
    turn(given.out, f"{ladder.name}.{given.label}", given.wait)
    for name, values in timed(machine, ladder, steps, given.blocks).items():
        found[name] |= {
            "ms": round(statistics.median(values), 5),
            "blocks_ms": values,
            "receipts_equal": equal(found["base"]["receipts"], found[name]["receipts"], ladder.tolerance),
        }
    (given.out / f"{ladder.name}.{given.label}.json").write_text(json.dumps(found, indent=1))
    if given.label == "measure0":
        chosen(machine, ())
        under_torch(machine, steps["base"], given.out / f"{ladder.name}.torch.json")


def captured(machine: Machine, ladder: Ladder, given: argparse.Namespace) -> None:
    steps, found = built(machine, ladder, [()])
    if "base" not in steps:
        raise SystemExit(found["base"]["failed"])
    turn(given.out, f"{ladder.name}.{given.label}", given.wait)
    under_nsys(machine, steps["base"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--label", default="measure0", help="measureK, of which the first captures too, or nsys")
    parser.add_argument("--wait", action="store_true", help="be timed when told so")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    given = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    machine, ladder = machines.choose(Ranges.OFF, given.dry), suite.find(given.name)
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        (captured if given.label == "nsys" else measured)(machine, ladder, given)
    finally:  # the turn is over, whatever came of it
        (given.out / f"{given.name}.{given.label}.done").touch()


if __name__ == "__main__":
    main()
