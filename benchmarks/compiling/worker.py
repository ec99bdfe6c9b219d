"""Run one program in a process of its own: unprofiled times, then a capture.

    python -m benchmarks.compiling.worker program NAME broken|fixed OUT [--dry]
    python -m benchmarks.compiling.worker spike KIND,KIND SEED OUT [--dry]
    python -m benchmarks.compiling.worker captured KIND,KIND SEED OUT [--dry]    the same by `timesink capture torch`

The caller sets TORCH_TRACE and TORCH_LOGS. Writes OUT/<stem>.json (a trace) and OUT/<stem>.measured.json.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import random
import shutil
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from benchmarks.blocks import blocks_ms
from benchmarks.compiling import spikes
from benchmarks.compiling.programs import PROGRAMS, SLOW, Setting
from torch.profiler import ProfilerActivity, profile, schedule

WARM, ACTIVE, LEAD_IN, SETTLE = 8, 12, 2, 6
ROUNDS, PER_ROUND = 7, 20
SEEDS = 2


def synchronize(setting: Setting) -> None:
    if not setting.dry:
        torch.cuda.synchronize()


def profiler(setting: Setting, active: int, target: Path, shapes: bool, collections: bool = False) -> profile:
    kinds = [ProfilerActivity.CPU] + ([] if setting.dry else [ProfilerActivity.CUDA])
    config = torch._C._profiler._ExperimentalConfig
    try:
        chosen = config(enable_cuda_sync_events=True, **({"record_python_gc_info": True} if collections else {}))
    except TypeError:
        chosen = config(enable_cuda_sync_events=True)
    return profile(
        activities=kinds,
        schedule=schedule(wait=0, warmup=LEAD_IN, active=active, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(target)),
        record_shapes=shapes,
        experimental_config=chosen,
    )


def run_program(name: str, variant: str, out: Path, setting: Setting) -> None:
    step = PROGRAMS[name](variant == "broken", setting)
    wait = functools.partial(synchronize, setting)
    (first_ms,) = blocks_ms(step, wait, 1, 1)
    slow = name in SLOW
    for _ in range(4 if slow else WARM):
        step()
    rounds = blocks_ms(step, wait, 3 if slow else ROUNDS, 4 if slow or setting.dry else PER_ROUND)
    target = out / f"{name}.{variant}.rank{rank()}.json"
    with profiler(setting, ACTIVE, target, shapes=True) as running:
        for _ in range(LEAD_IN + ACTIVE):
            step()
            running.step()
    measured = {"name": name, "variant": variant, "step_ms": statistics.median(rounds), "rounds_ms": rounds}
    write(out, target.stem, {**measured, "first_step_s": first_ms / 1e3})


def planted(kind: str, seed: int) -> int:
    """The step, counted from the first recorded one, at which the cause strikes."""
    return random.Random(f"{kind} {seed}").randrange(8, spikes.STEPS - 4)


def settled(kind: str, at: int, scratch: Path, setting: Setting) -> spikes.Loop:
    loop = spikes.Loop(kind, setting, at + SETTLE + LEAD_IN, scratch)
    for _ in range(SETTLE):
        loop.tick()
    loop.prepare()
    synchronize(setting)
    return loop


def run_captured(kind: str, seed: int, out: Path, dry: bool) -> None:
    """The loop as a program of its own that knows of no profiler, captured from outside."""
    from timesink import capture
    from timesink.capture.schedule import StepSchedule

    for number in range(seed, seed + SEEDS):
        stem = f"captured_{kind}.{number}.rank0"
        program = [sys.executable, "-m", "benchmarks.compiling.worker", "loop", kind, str(number), str(out)]
        steps = StepSchedule(settle=SETTLE, timed=0, warm_up=LEAD_IN, active=spikes.STEPS)
        done = capture.torch([*program, *(["--dry"] if dry else [])], steps=steps, out=out / stem, quiet=True)
        with gzip.open(done.files[0]) as packed, (out / f"{stem}.json").open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        shutil.rmtree(out / stem)
        write(out, stem, {"kind": kind, "seed": number, "step": planted(kind, number)})


def run_loop(kind: str, seed: int, out: Path, setting: Setting) -> None:
    """As many steps as it takes to be captured, and some."""
    loop = settled(kind, planted(kind, seed), out, setting)
    for _ in range(LEAD_IN + spikes.STEPS + 8):
        loop.tick()


def run_spike(kind: str, seed: int, out: Path, setting: Setting) -> None:
    """Several captures of one loop, the planted step drawn anew for each."""
    for number in range(seed, seed + SEEDS):
        at = planted(kind, number)
        torch._dynamo.reset()  # what an earlier loop compiled may not help this one
        loop = settled(kind, at, out, setting)
        target, times_ms = out / f"{kind}.{number}.rank{rank()}.json", []
        with profiler(setting, spikes.STEPS, target, shapes=False, collections=kind == "gc_marked") as running:
            for _ in range(LEAD_IN + spikes.STEPS):
                begin = time.perf_counter()
                loop.tick()
                running.step()
                times_ms.append((time.perf_counter() - begin) * 1e3)
            synchronize(setting)
        write(out, target.stem, {"kind": kind, "seed": number, "step": at, "host_ms": times_ms[LEAD_IN:]})
        del loop
        if not setting.dry:
            torch.cuda.set_per_process_memory_fraction(1.0)
            torch.cuda.empty_cache()


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def write(out: Path, stem: str, measured: dict[str, object]) -> None:
    machine = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none"}
    (out / f"{stem}.measured.json").write_text(json.dumps({**measured, **machine}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("program", "spike", "captured", "loop"))
    parser.add_argument("name")
    parser.add_argument("variant")
    parser.add_argument("out", type=Path)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    setting = Setting("cpu" if options.dry else "cuda", options.dry)
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    if options.dry:
        torch.compile = functools.partial(torch.compile, backend="eager")
    if "WORLD_SIZE" in os.environ:
        if not options.dry:
            torch.cuda.set_device(rank())
        dist.init_process_group("gloo" if options.dry else "nccl")
    if options.what == "program":
        run_program(options.name, options.variant, options.out, setting)
    for kind in options.name.split(","):
        if options.what == "spike":
            run_spike(kind, int(options.variant), options.out, setting)
        elif options.what == "captured":
            run_captured(kind, int(options.variant), options.out, options.dry)
        elif options.what == "loop":
            run_loop(kind, int(options.variant), options.out, setting)
    sys.stdout.flush()
    os._exit(0)  # compile workers and communicators need no orderly end


if __name__ == "__main__":
    main()
