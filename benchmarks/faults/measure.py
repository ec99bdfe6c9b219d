"""Time fault and fix without any profiler: blocks of steps in turn (ABBA), the device synchronised only at block ends.

    python -m benchmarks.faults.measure --only item_per_layer --out measured.0.json [--dry]

One run of this module is one process; the truth is the median of at least three.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmarks.faults import machine as machines
from benchmarks.faults import suite
from benchmarks.faults.machine import Machine, Ranges
from benchmarks.faults.program import Program, Step

RECEIPTS = 3
WARMUPS = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: `pairs` fault-fix pairs of blocks, a block at least `block_s` seconds and `steps` steps."""

    pairs: int
    block_s: float
    steps: int


FULL, SLOW, DRY = Plan(6, 0.04, 6), Plan(3, 0.05, 1), Plan(2, 0.0, 1)


def receipts(program: Program) -> tuple[list[float], list[float]]:
    """What the first steps of fault and fix return, as numbers."""
    fault = [program.fault() for _ in range(RECEIPTS)]
    fix = [program.fix() for _ in range(RECEIPTS)] if program.fix is not program.fault else fault
    return [float(value) for value in fault], [float(value) for value in fix]


def equal(fault: list[float], fix: list[float], tolerance: float) -> bool:
    return all(
        math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-3)
        for a, b in zip(fault, fix, strict=True)
    )


def timed_ms(machine: Machine, step: Step, settle: int, steps: int) -> float:
    """Mean milliseconds of a step over one block."""
    for _ in range(settle):
        step()
    machine.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    machine.synchronize()
    return (time.perf_counter() - begin) / steps * 1e3


def steps_per_block(machine: Machine, program: Program, plan: Plan) -> int:
    """As many steps as fill the block with the faster variant, a multiple of the period."""
    fastest = min(timed_ms(machine, step, 0, max(1, program.period)) for step in (program.fault, program.fix))
    wanted = max(plan.steps, min(200, math.ceil(plan.block_s * 1e3 / max(fastest, 1e-3))))
    return math.ceil(wanted / program.period) * program.period


def interleaved(machine: Machine, program: Program, plan: Plan) -> dict[str, list[float]]:
    """Block means in ms of fault and fix, taken in the order fault fix fix fault fault fix …"""
    steps = steps_per_block(machine, program, plan)
    times: dict[str, list[float]] = {"fault": [], "fix": []}
    for pair in range(plan.pairs):
        for name in ("fault", "fix") if pair % 2 == 0 else ("fix", "fault"):
            times[name].append(
                timed_ms(machine, program.fault if name == "fault" else program.fix, program.settle, steps)
            )
    return times


def measured(machine: Machine, case: suite.Case) -> dict[str, object]:
    """One case in this process: step times, and whether fault and fix computed the same."""
    program = suite.find(case.fault).builder()(case.severity, machine)
    try:
        fault, fix = receipts(program)
        for step in (program.fault, program.fix):
            timed_ms(machine, step, 0, 1 if program.slow else WARMUPS)
        plan = DRY if machine.tiny else SLOW if program.slow else FULL
        times = interleaved(machine, program, plan)
    finally:
        program.close()
    return {
        "fault_ms": statistics.median(times["fault"]),
        "fix_ms": statistics.median(times["fix"]),
        "blocks_ms": {name: [round(value, 5) for value in values] for name, values in times.items()},
        "receipts": {"fault": fault, "fix": fix, "tolerance": program.tolerance},
        "receipts_equal": equal(fault, fix, program.tolerance),
    }


def attempt(machine: Machine, case: suite.Case) -> dict[str, object]:
    """`measured`, or the end of its traceback: one failing program stops no other."""
    begin = time.perf_counter()
    try:
        result = measured(machine, case)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="fault, fault/severity or topic:, separated by commas")
    parser.add_argument("--split", choices=suite.SPLITS, default="", help="the programs of one split only")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: does everything run?")
    options = parser.parse_args()
    machine = machines.choose(Ranges.OFF, options.dry)
    found: dict[str, object] = {}
    for case in suite.cases(options.only, options.split):
        found[str(case)] = result = attempt(machine, case)
        options.out.write_text(json.dumps(found, indent=1))
        print(case, result.get("fault_ms", "FAILED"), result.get("fix_ms"), result.get("receipts_equal"), flush=True)
        if not usable(machine):
            raise SystemExit(f"the device is lost after {case}; start again with the rest")


if __name__ == "__main__":
    main()
