"""Capture each case: with torch.profiler, one file a case, or as the program that Nsight Systems watches.

    python -m benchmarks.faults.capture torch --only item_per_layer --out raw/
    nsys profile … python -m benchmarks.faults.capture nsys --only item_per_layer --out raw/

torch records shapes and synchronisation events, no stacks: a plain, affordable capture. Under nsys a case is an NVTX
range "case fault/severity/variant"; `trim.py` cuts one report into one file a case. Under torchrun every rank writes a
file of its own, and one report holds all ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from benchmarks.faults import machine as machines
from benchmarks.faults import suite
from benchmarks.faults.machine import Machine, Ranges
from benchmarks.faults.measure import VARIANTS, WARMUPS, usable, write_whole
from benchmarks.faults.program import Program, Step
from torch.profiler import ProfilerActivity, profile, record_function, schedule

LEAD_IN = 2
"""Steps between the warm-up and the first recorded one: what comes every few steps then falls into neither end."""
IDLE_S = 1.2
"""Long enough for the driver's figure of how busy a GPU is to forget the program's own work."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One capture: a case and which of its two variants runs."""

    case: suite.Case
    variant: str

    def __str__(self) -> str:
        return f"{self.case}/{self.variant}"

    @property
    def stem(self) -> str:
        return f"{self.case.fault}.{self.case.severity}.{self.variant}"


def shots(only: str, split: str = "", variant: str = "") -> list[Shot]:
    """The faults of all cases, and the fix of the highest severity where the registry asks for it; of one `variant`."""
    found = []
    for case in suite.cases(only, split):
        found.append(Shot(case, "fault"))
        if suite.find(case.fault).fix_captured and case.severity == suite.PLANTED[0]:
            found.append(Shot(case, "fix"))
    return [shot for shot in found if variant in ("", shot.variant)]


@contextmanager
def collections_marked(machine: Machine) -> Iterator[None]:
    """Python's garbage collections as ranges "Python GC", which no profiler records by itself without stacks."""
    opened: list[record_function] = []

    def mark(phase: str, _: dict[str, int]) -> None:
        if machine.ranges is Ranges.NVTX and machine.cuda:
            if phase == "start":
                torch.cuda.nvtx.range_push("Python GC")
            else:
                torch.cuda.nvtx.range_pop()
        elif phase == "start":
            opened.append(record_function("Python GC"))
            opened[-1].__enter__()
        elif opened:
            opened.pop().__exit__(None, None, None)

    gc.callbacks.append(mark)
    try:
        yield
    finally:
        gc.callbacks.remove(mark)


def count(program: Program, wanted: int) -> int:
    """How many steps to record: whole periods, `wanted` steps or more."""
    return math.ceil(wanted / program.period) * program.period


def target(machine: Machine, shot: Shot, out: Path) -> Path:
    """The file of this shot; of several ranks, of this rank."""
    return out / (f"{shot.stem}.rank{machine.rank}.json" if machine.ranks > 1 else f"{shot.stem}.json")


def warm(program: Program, step: Step, machine: Machine) -> None:
    rounds = 1 if program.slow else program.settle if machine.ranks > 2 else WARMUPS + program.settle
    for _ in range(math.ceil(rounds / program.period) * program.period):
        step()
    machine.meet()


def with_torch(machine: Machine, step: Step, active: int, stacks: bool, target: Path) -> None:
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if machine.cuda else [])
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with (
        profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=LEAD_IN, active=active, repeat=1),
            on_trace_ready=lambda done: done.export_chrome_trace(str(target)),
            record_shapes=True,
            with_stack=stacks,
            profile_memory=stacks,
            experimental_config=config,
        ) as profiler,
        collections_marked(machine),
    ):
        for _ in range(LEAD_IN + active):
            step()
            profiler.step()


def with_torch_unmarked(machine: Machine, step: Step, active: int, target: Path) -> None:
    """A trace without a mark of steps, as of a program that only starts and stops its profiler; the first start, which
    costs most, is thrown away."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if machine.cuda else [])
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    for count in (LEAD_IN, active):
        machine.meet()
        with profile(activities=activities, record_shapes=True, experimental_config=config) as profiler:
            for _ in range(count):
                step()
    profiler.export_chrome_trace(str(target))


def with_one_range(machine: Machine, step: Step, active: int, name: str) -> None:
    """The stretch to cut out of a report, and no mark within it."""
    for _ in range(LEAD_IN):
        step()
    machine.meet()
    if machine.cuda:
        torch.cuda.nvtx.range_push(f"case {name}")
    for _ in range(active):
        step()
    machine.synchronize()
    if machine.cuda:
        torch.cuda.nvtx.range_pop()


def with_ranges(machine: Machine, step: Step, active: int, name: str) -> None:
    for _ in range(LEAD_IN):
        step()
    machine.meet()
    with machine.phase(f"case {name}"), collections_marked(machine):
        machine.synchronize()
        for _ in range(active):
            with machine.phase("step"):
                step()
        machine.synchronize()


def keep_settings(machine: Machine, target: Path) -> None:
    """What a manifest says beside a trace: the settings of the program, and how busy others keep the GPU."""
    from timesink.capture.agent.settings import program_settings  # machines of later sets need not have timesink
    from timesink.capture.manifest import gpus

    machine.synchronize()
    time.sleep(IDLE_S)
    target.write_text(json.dumps({"settings": program_settings(), "gpus": gpus()}))


def take(machine: Machine, shot: Shot, out: Path) -> None:
    fault = suite.find(shot.case.fault)
    seen = machine if fault.marked else replace(machine, ranges=Ranges.OFF)
    program = fault.builder()(shot.case.severity, seen)
    step = program.fault if shot.variant == "fault" else program.fix
    active = count(program, fault.recorded)
    try:
        warm(program, step, machine)
        if fault.part == 4:
            keep_settings(machine, out / f"{shot.stem}.settings")
        if not fault.marked and machine.ranges is Ranges.NVTX:
            with_one_range(machine, step, active, str(shot))
        elif not fault.marked:
            with_torch_unmarked(machine, step, active, target(machine, shot, out))
        elif machine.ranges is Ranges.NVTX:
            with_ranges(machine, step, active, str(shot))
        else:
            with_torch(machine, step, active, fault.stacks, target(machine, shot, out))
        machine.meet()
    finally:
        program.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", choices=("torch", "nsys"))
    parser.add_argument("--only", default="", help="fault, fault/severity or topic:, separated by commas")
    parser.add_argument("--split", choices=suite.SPLITS, default="", help="the programs of one split only")
    parser.add_argument("--variant", choices=VARIANTS, default="", help="one only")
    parser.add_argument("--out", type=Path, required=True, help="folder of captures and of the log of what was taken")
    parser.add_argument("--taken", default="taken.json", help="name of that log")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    options = parser.parse_args()
    machine = machines.choose(Ranges.NVTX if options.tool == "nsys" else Ranges.PROFILER, options.dry)
    options.out.mkdir(parents=True, exist_ok=True)
    taken: dict[str, str] = {}
    for shot in shots(options.only, options.split, options.variant):
        begin = time.perf_counter()
        try:
            take(machine, shot, options.out)
            taken[str(shot)] = "taken"
        except Exception:  # noqa: BLE001 - any failure is this case's result
            taken[str(shot)] = traceback.format_exc()[-2000:]
        with contextlib.suppress(RuntimeError):  # a lost context fails here too: `usable` says so below
            machines.reset()
        if machine.rank == 0:
            write_whole(options.out / options.taken, taken)
        print(shot, taken[str(shot)].splitlines()[-1], f"{time.perf_counter() - begin:.1f} s", flush=True)
        if not usable(machine):
            raise SystemExit(f"the device is lost after {shot}; start again with the rest")
    machines.leave()


if __name__ == "__main__":
    main()
