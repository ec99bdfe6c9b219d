"""One program in one process: every set of its changes timed without a profiler, or its base under a profiler.

    python -m benchmarks.ladders.measure graph_training --out raw/ [--tool nsys] [--wait] [--dry]

Everything is built, compiled and warmed up first. With `--wait` the process then writes `raw/NAME.TOOL.ready` and
waits for `raw/NAME.TOOL.go`, which says for how many seconds: processes compile side by side and are timed one at a
time, on cores that nobody else keeps busy.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
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

BLOCK_S, BLOCK_STEPS, BLOCKS = 0.03, 4, 4
AGREE = 0.01
"""A variant whose `BLOCKS` shortest blocks are the same within this share is timed no more."""
CORES, PROBES, MOVE_S = 4, 6, 2.0
"""A process gets so many cores, those that do a piece of work soonest, and is moved after so long."""
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


def piece_of_work() -> float:
    """Seconds that about half a millisecond of Python takes now."""
    began = time.perf_counter()
    sum(number * number for number in range(8000))
    return time.perf_counter() - began


def siblings(core: int) -> frozenset[int]:
    """The threads of one physical core, where the machine says so."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    text = path.read_text() if path.exists() else str(core)
    ends = [part.split("-") for part in text.strip().split(",")]
    return frozenset(number for part in ends for number in range(int(part[0]), int(part[-1]) + 1))


def quickest(every: frozenset[int], probes: int = PROBES) -> tuple[list[int], str]:
    """Physical cores on which work takes least now, and what was seen of all; the calling thread is left on the last
    that was looked at."""
    took: dict[int, float] = dict.fromkeys(every, 0.0)
    for _ in range(probes):
        for core in every:
            os.sched_setaffinity(0, {core})
            took[core] += piece_of_work() / probes
    chosen: list[int] = []
    for core in sorted(every, key=lambda core: took[core]):
        if not siblings(core) & set(chosen) and len(chosen) < CORES:
            chosen.append(core)
    return chosen, f"cores {chosen}, " + " ".join(f"{took[core] * 1e3:.2f}" for core in sorted(every)) + " ms"


def move_to_quiet_cores(every: frozenset[int]) -> str:
    """Pin all threads of this process to those; what was seen of all cores."""
    chosen, seen = quickest(every)
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), chosen)
        except OSError:  # it has ended
            continue
    return seen


def agreed(blocks: list[float]) -> bool:
    """Whether the shortest blocks are the same."""
    least = sorted(blocks)[:BLOCKS]
    return len(least) == BLOCKS and least[-1] <= (1 + AGREE) * least[0]


def timed(machine: Machine, ladder: Ladder, steps: dict[str, Step], seconds: float) -> dict[str, list[float]]:
    """Block means in ms, all variants in order, then in the reverse order, and so on, for so long; at least `BLOCKS`
    of each."""
    sets = {name: suite.of_slug(name) for name in steps}
    times: dict[str, list[float]] = {name: [] for name in steps}
    counts: dict[str, int] = {}
    every, moved, number = frozenset(os.sched_getaffinity(0)), 0.0, 0
    until = time.monotonic() + seconds
    while open_ones := [name for name in steps if not agreed(times[name])]:
        if number >= (1 if machine.tiny else BLOCKS) and time.monotonic() > until:
            break
        for name in open_ones if number % 2 == 0 else reversed(open_ones):
            if time.monotonic() > moved + MOVE_S:
                print(f"{ladder.name}: {move_to_quiet_cores(every)}", flush=True)
                moved = time.monotonic()
            chosen(machine, sets[name])
            settle = PREFETCHED if "loader_workers" in sets[name] else 2
            if name not in counts:
                first = timed_ms(machine, steps[name], settle, 2)
                counts[name] = max(BLOCK_STEPS, min(100, math.ceil(BLOCK_S * 1e3 / max(first, 1e-3))))
            wanted = (1, 1) if machine.tiny else (settle, counts[name])
            times[name].append(round(timed_ms(machine, steps[name], *wanted), 5))
        number += 1
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


def turn(out: Path, name: str, wait: bool) -> float:
    """Wait until this process is the only one at work; for how many seconds it may be."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    gc.collect()
    gc.freeze()
    (out / f"{name}.ready").touch()
    go = out / f"{name}.go"
    while wait and not go.exists():
        time.sleep(0.05)
    return float(go.read_text()) if wait else 0.0


def measured(machine: Machine, ladder: Ladder, given: argparse.Namespace) -> None:
    steps, found = built(machine, ladder, [suite.of_slug(name) for name in given.sets] or ladder.variants())
    seconds = turn(given.out, f"{ladder.name}.{given.label}", given.wait) or given.seconds
    for name, values in timed(machine, ladder, steps, seconds).items():
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
    print(move_to_quiet_cores(frozenset(os.sched_getaffinity(0))), flush=True)
    under_nsys(machine, steps["base"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--label", default="measure0", help="measureK, of which the first captures too, or nsys")
    parser.add_argument("--wait", action="store_true", help="be timed when told so")
    parser.add_argument("--sets", nargs="*", default=[], metavar="base|CHANGE[+CHANGE]", help="these, not every set")
    parser.add_argument("--seconds", type=float, default=0.0, help="without --wait: timed for so long")
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
