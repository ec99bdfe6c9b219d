"""Layers of experts on two GPUs whose tokens go to the experts of one of them more often; balanced, for the truth.

    python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.serving.exchange OUT

Every rank sends each token to an expert's rank, both compute what they received, and send it back. OUT gets
`exchange.json`, the time of a step at every share, and a capture of each rank by torch at each uneven share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function

SHARES = (0.5, 0.6, 0.72)
"""Of all tokens, those that experts of rank 0 work on."""
STEPS, BLOCKS, RECORDED = 30, 6, 6
DRY = not torch.cuda.is_available()
TOKENS, WIDTH, INNER, LAYERS = (64, 16, 32, 2) if DRY else (8192, 2048, 8192, 4)


class Experts(nn.Module):
    """One layer: what every rank does with its own tokens, dispatch, the experts, combine."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor, share: float) -> Tensor:
        first = round(TOKENS * share)
        sent = [first, TOKENS - first]
        received = [sent[dist.get_rank()]] * 2
        x = x + self.mix(self.norm(x))
        there = x.new_empty(sum(received), WIDTH)
        dist.all_to_all_single(there, x, received, sent)
        there = self.down(functional.gelu(self.up(there)))
        back = torch.empty_like(x)
        dist.all_to_all_single(back, there, sent, received)
        return x + back


def timed_ms(step: Callable[[], object], steps: int) -> float:
    """The slower rank's mean step."""
    step()
    synchronize()
    dist.barrier()
    synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    took = torch.tensor((time.perf_counter() - began) / steps * 1e3, device="cpu" if DRY else "cuda")
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def synchronize() -> None:
    if not DRY:
        torch.cuda.synchronize()


@torch.no_grad()
def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ["LOCAL_RANK"])
    if DRY:
        dist.init_process_group("gloo")
    else:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    device, dtype = ("cpu", torch.float32) if DRY else (f"cuda:{rank}", torch.bfloat16)
    layers = nn.ModuleList(Experts() for _ in range(LAYERS)).to(device, dtype)
    tokens = torch.randn(TOKENS, WIDTH, device=device, dtype=dtype)

    def step(share: float) -> Tensor:
        x = tokens
        with record_function("execute_model"):
            for layer in layers:
                x = layer(x, share)
        return x

    times: dict[float, list[float]] = {share: [] for share in SHARES}
    for number in range(BLOCKS):
        for share in SHARES if number % 2 == 0 else reversed(SHARES):
            times[share].append(round(timed_ms(partial(step, share), 2 if DRY else STEPS), 4))
    if rank == 0:
        print(times, flush=True)
        (out / "exchange.json").write_text(json.dumps(times))
    activities = [ProfilerActivity.CPU] + ([] if DRY else [ProfilerActivity.CUDA])
    for share in SHARES:
        for steps in (1, RECORDED):
            timed_ms(partial(step, share), 2)
            with profile(activities=activities) as profiler:
                for _ in range(steps):
                    step(share)
                synchronize()
        profiler.export_chrome_trace(str(out / f"share_{round(100 * share)}.rank{rank}.json"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
