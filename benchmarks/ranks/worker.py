"""One rank of the suite, as torchrun starts it: time each program without a profiler, then capture it.

torchrun --nproc-per-node 2 -m benchmarks.ranks.worker OUT [--only a,b] [--mode torch|nsys] [--dry]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from benchmarks.ranks.programs import BUILDERS, Program, Step
from benchmarks.ranks.serving import Served
from benchmarks.ranks.world import World, join
from torch.profiler import ProfilerActivity, profile, schedule

WARMUPS, BLOCK_STEPS, PAIRS = 5, 8, 5
PROFILER_WARMUPS, RECORDED = 2, 5


def timed_ms(world: World, step: Step, steps: int) -> float:
    """Mean milliseconds of a step over one block, on the slowest rank."""
    world.meet()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    world.synchronize()
    mine = torch.tensor([(time.perf_counter() - begin) / steps * 1e3], device=world.device)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return float(mine)


def receipt(step: Step) -> float:
    """What the step returns, summed over the ranks."""
    value = step().detach().double()
    dist.all_reduce(value)
    return float(value)


def measured(world: World, program: Program) -> dict[str, object]:
    """Blocks of fault and fix in turn (ABBA); receipts of the first steps."""
    variants = {"fault": program.fault} | ({"fix": program.fix} if program.fix else {})
    receipts = {name: [receipt(step) for _ in range(3)] for name, step in variants.items()}
    for step in variants.values():
        timed_ms(world, step, WARMUPS)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for pair in range(1 if world.tiny else PAIRS):
        for name in list(variants) if pair % 2 == 0 else list(variants)[::-1]:
            times[name].append(round(timed_ms(world, variants[name], 2 if world.tiny else BLOCK_STEPS), 5))
    equal = "fix" not in receipts or all(
        abs(a - b) <= program.tolerance * max(abs(a), abs(b), 1e-3)
        for a, b in zip(receipts["fault"], receipts["fix"], strict=True)
    )
    medians = {f"{name}_ms": statistics.median(values) for name, values in times.items()}
    return {**medians, "blocks_ms": times, "receipts": receipts, "receipts_equal": equal}


def captured(world: World, step: Step, target: Path) -> None:
    """One file a rank."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if world.cuda else [])
    world.meet()
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=PROFILER_WARMUPS, active=RECORDED, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(target)),
        record_shapes=True,
        experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True),
    ) as profiler:
        for _ in range(PROFILER_WARMUPS + RECORDED):
            step()
            profiler.step()
    world.meet()


def ranged(world: World, step: Step, name: str) -> None:
    """The stretch that is cut out of an Nsight Systems report."""
    for _ in range(WARMUPS):
        step()
    world.meet()
    with world.phase(f"case {name}"):
        for _ in range(RECORDED):
            with world.phase("step"):
                step()
        world.synchronize()
    world.meet()


def attempt(world: World, name: str, mode: str, out: Path) -> dict[str, object]:
    program = BUILDERS[name](world)
    variants = [("fault", program.fault)] + ([("fix", program.fix)] if program.fix else [])
    if mode == "nsys":
        for variant, step in variants:
            ranged(world, step, f"{name}/{variant}")
        return {}
    result = measured(world, program)
    for variant, step in variants:
        captured(world, step, out / f"{name}.{variant}.rank{world.rank}.json")
        if isinstance(step, Served):
            step.logged(RECORDED, out / f"{name}.{variant}.rank{world.rank}.jsonl")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(BUILDERS))
    parser.add_argument("--mode", choices=("torch", "nsys"), default="torch")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU")
    options = parser.parse_args()
    world = join(options.dry, options.mode == "nsys")
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, object] = {}
    for name in options.only.split(","):
        begin = time.perf_counter()
        try:
            found[name] = attempt(world, name, options.mode, options.out)
        except Exception:  # noqa: BLE001 - any failure is this program's result; peers that wait for it time out
            found[name] = {"failed": traceback.format_exc()[-1500:]}
        found[name]["took_s"] = round(time.perf_counter() - begin, 2)
        gc.collect()
        if world.cuda:
            torch.cuda.empty_cache()
        if world.rank == 0:
            print(name, {key: value for key, value in found[name].items() if key != "blocks_ms"}, flush=True)
        (options.out / f"measured.{options.mode}.rank{world.rank}.json").write_text(json.dumps(found, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
