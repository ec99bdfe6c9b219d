"""GPipe, 1F1B and interleaved 1F1B of `torch.distributed.pipelining`, measured and traced.

``torchrun --nproc-per-node 2 schedules.py OUT [NAME:MICRO_BATCHES...]``. The batch is the same for all: more
micro-batches are smaller ones. The serial one hands the whole batch from one stage to the next: one micro-batch.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.profiler import ProfilerActivity, profile, schedule

CUDA = torch.cuda.is_available()
WIDTH, TOKENS, LAYERS = (6144, 32768, 4) if CUDA else (32, 512, 4)  # layers of the whole model
WARM, STEPS, BLOCKS, ACTIVE = 3, 8, 3, 5
KINDS = {"serial": (ScheduleGPipe, 1), "gpipe": (ScheduleGPipe, 1), "1f1b": (Schedule1F1B, 1),
         "interleaved": (ScheduleInterleaved1F1B, 2)}  # fmt: skip


def built(kind: str, count: int, rank: int, device: torch.device) -> Callable[[], None]:
    """A training step of one schedule."""
    made, chunks = KINDS[kind]
    ranks, dtype = dist.get_world_size(), torch.bfloat16 if CUDA else torch.float32
    rows = TOKENS // count
    example = torch.zeros(rows, WIDTH, device=device, dtype=dtype)
    stages, modules = [], []
    for number in range(rank, ranks * chunks, ranks):
        torch.manual_seed(number)
        layers = [layer for _ in range(LAYERS // (ranks * chunks)) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        module = nn.Sequential(*layers).to(device, dtype)
        modules.append(module)
        inside = example.clone().requires_grad_()  # what passes between stages has a gradient
        taken, given = inside if number else example, inside if number < ranks * chunks - 1 else module(example)
        stages.append(PipelineStage(module, number, ranks * chunks, device, input_args=(taken,), output_args=(given,)))
    loss = lambda value, target: (value.float() - target).square().mean()  # noqa: E731
    line = made(stages if chunks > 1 else stages[0], count, loss_fn=loss)
    optimizer = torch.optim.SGD([part for module in modules for part in module.parameters()], lr=1e-3, foreach=True)
    batch = torch.randn(TOKENS, WIDTH, device=device, dtype=dtype)
    target = torch.zeros(TOKENS, WIDTH, device=device, dtype=dtype)
    last = rank == ranks - 1

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        line.step(*([batch] if rank == 0 else []), **({"target": target, "losses": []} if last else {}))
        optimizer.step()

    return step


def timed_ms(step: Callable[[], None]) -> float:
    """Mean milliseconds of a step."""
    dist.barrier()
    synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    synchronize()
    return (time.perf_counter() - begin) / STEPS * 1e3


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def traced(step: Callable[[], None], path: Path) -> None:
    dist.barrier()
    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if CUDA else [])],
        schedule=schedule(wait=1, warmup=2, active=ACTIVE, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(3 + ACTIVE):
            step()
            profiler.step()
        synchronize()


def main() -> None:
    faulthandler.dump_traceback_later(75)
    out, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    device = torch.device("cuda", rank) if CUDA else torch.device("cpu")
    if CUDA:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    measured = {}
    for name in sys.argv[2:]:
        kind, count = name.split(":")
        step = built(kind, int(count), rank, device)
        for _ in range(WARM):
            step()
        measured[f"{kind}{count}"] = [round(timed_ms(step), 4) for _ in range(BLOCKS)]
        traced(step, out / f"{kind}{count}.rank{rank}.json")
        if rank == 0:
            print(name, measured[f"{kind}{count}"], flush=True)
            (out / f"measured.{os.getpid()}.json").write_text(json.dumps(measured))
        del step
        if CUDA:
            torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
