"""Time fault and fix without any profiler: blocks of steps in turn (ABBA), the device synchronised only at block ends.

    python -m benchmarks.faults.measure --only item_per_layer --out measured.0.json [--dry]

One run of this module is one process; the truth is the median of at least three. Under torchrun it is one job, whose
step is that of its slowest rank.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmarks.faults import machine as machines
from benchmarks.faults import suite
from benchmarks.faults.machine import Machine, Ranges
from benchmarks.faults.program import Program, Step
from benchmarks.faults.receipts import same
from torch import Tensor

VARIANTS = ("fault", "fix")
HALVES = ("first_fixed", "second_fixed")
"""Of two faults, the other is left."""
SAID = (*(f"{name}_ms" for name in (*VARIANTS, *HALVES)), "receipts_equal", "failed")
RECEIPTS = 3
WARMUPS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: `pairs` fault-fix pairs of blocks, a block at least `block_s` seconds and `steps` steps."""

    pairs: int
    block_s: float
    steps: int


FULL, SHORT, SLOW, DRY = Plan(6, 0.04, 6), Plan(4, 0.04, 5), Plan(3, 0.05, 1), Plan(2, 0.0, 1)
OF_FOUR = Plan(3, 0.04, 4)
LASTING = Plan(3, 0.4, 12)
"""Long enough for the queue of a GPU to fill: what it hides of a late host is told apart from what it does not."""
OF_ONE = Plan(3, 0.12, 4)
OF_TWO = Plan(3, 0.3, 12)
PLANS = (4, FULL), (6, SHORT), (9, OF_FOUR), (10, LASTING), (12, OF_ONE), (13, OF_TWO)
"""Of each plan the last set that it measures."""


def receipts(machine: Machine, steps: dict[str, Step]) -> dict[str, list[float]]:
    """What the first steps of each variant return, as numbers: the sum over the ranks."""
    first: dict[Step, list[Tensor]] = {}
    for step in steps.values():
        if step not in first:
            first[step] = [step() for _ in range(RECEIPTS)]
    return {name: [machine.total(value) for value in first[step]] for name, step in steps.items()}


def timed_ms(machine: Machine, step: Step, settle: int, steps: int) -> float:
    """Mean milliseconds of a step over one block, on the slowest rank."""
    for _ in range(settle):
        step()
    machine.meet()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    machine.synchronize()
    return machine.slowest((time.perf_counter() - begin) / steps * 1e3)


def steps_per_block(machine: Machine, program: Program, variants: dict[str, Step], plan: Plan) -> int:
    """As many steps as fill the block with the faster variant, a multiple of the period."""
    fastest = min(timed_ms(machine, step, 0, max(1, program.period)) for step in variants.values())
    wanted = max(plan.steps, min(200, math.ceil(plan.block_s * 1e3 / max(fastest, 1e-3))))
    return math.ceil(wanted / program.period) * program.period


def interleaved(machine: Machine, program: Program, variants: dict[str, Step], plan: Plan) -> dict[str, list[float]]:
    """Block means in ms of each variant, taken in the order fault fix fix fault fault fix …"""
    steps = steps_per_block(machine, program, variants, plan)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for pair in range(plan.pairs):
        for name in list(variants) if pair % 2 == 0 else reversed(variants):
            times[name].append(timed_ms(machine, variants[name], program.settle, steps))
    return times


def measured(machine: Machine, case: suite.Case, names: Sequence[str] = (*VARIANTS, *HALVES)) -> dict[str, object]:
    """One case in this process: step times, and whether fault and fix computed the same where both ran."""
    program = suite.find(case.fault).builder()(case.severity, machine)
    steps = (program.fault, program.fix, *(program.halves or ()))
    variants = {name: step for name, step in zip((*VARIANTS, *HALVES), steps) if name in names}  # noqa: B905
    try:
        first = receipts(machine, variants)
        for step in variants.values():
            timed_ms(machine, step, 0, 1 if program.slow else WARMUPS)
        part = suite.find(case.fault).part
        full = next(plan for last, plan in PLANS if part <= last)
        plan = DRY if machine.tiny else SLOW if program.slow else full
        times = interleaved(machine, program, variants, plan)
    finally:
        program.close()
    return {
        **{f"{name}_ms": statistics.median(values) for name, values in times.items()},
        "blocks_ms": {name: [round(value, 5) for value in values] for name, values in times.items()},
        "receipts": {**first, "tolerance": program.tolerance},
        **({"receipts_equal": same(first, program.tolerance)} if len(first) >= len(VARIANTS) else {}),
    }


def attempt(machine: Machine, case: suite.Case, names: Sequence[str] = (*VARIANTS, *HALVES)) -> dict[str, object]:
    """`measured`, or the end of its traceback: one failing program stops no other."""
    begin = time.perf_counter()
    try:
        result = measured(machine, case, names)
    except Exception:  # noqa: BLE001 - any failure is this case's result
        result = {"failed": traceback.format_exc()[-2000:]}
    with contextlib.suppress(RuntimeError):  # a lost context fails here too: `usable` says so after the result is kept
        machines.reset()
    return {**result, "took_s": round(time.perf_counter() - begin, 2)}


def usable(machine: Machine) -> bool:
    """Whether the device still answers: after some errors a process's context is lost."""
    try:
        machine.synchronize()
        torch.ones(1, device=machine.device).add_(1)
        machine.synchronize()
    except RuntimeError:
        return False
    return True


def write_whole(target: Path, found: Mapping[str, object]) -> None:
    """What was found so far: whoever reads it meanwhile reads all of it."""
    part = target.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1))
    part.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="fault, fault/severity or topic:, separated by commas")
    parser.add_argument("--split", choices=suite.SPLITS, default="", help="the programs of one split only")
    parser.add_argument("--variant", choices=VARIANTS, help="one only, where the other needs another environment")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    options = parser.parse_args()
    machine = machines.choose(Ranges.OFF, options.dry)
    found: dict[str, object] = {}
    for case in suite.cases(options.only, options.split):
        names = (options.variant,) if options.variant else (*VARIANTS, *HALVES)
        found[str(case)] = result = attempt(machine, case, names)
        if machine.rank == 0:
            write_whole(options.out, found)
        said = {name: result.get(name) for name in SAID if name in result}
        if machine.rank == 0 or "failed" in result:
            print(case, said, flush=True)
        if not usable(machine):
            raise SystemExit(f"the device is lost after {case}; start again with the rest")
    machines.leave()


if __name__ == "__main__":
    main()
