"""Five small GPU programs, none of which knows of timesink; `capture_on_gpu.py` captures each with three profilers.

python benchmarks/capture_programs.py train
python -m torch.distributed.run --nproc-per-node 2 benchmarks/capture_programs.py ddp
"""

from __future__ import annotations

import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 3000


def blocks(width: int, depth: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width * 4), nn.GELU(), nn.Linear(width * 4, width), nn.LayerNorm(width)]
    return nn.Sequential(*layers)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = (model(x) - x).float().square().mean()
    loss.backward()
    optimizer.step()
    return loss


def train() -> None:
    """One GPU, data on the GPU, the loss asked for every step: a host synchronisation per step."""
    model = blocks(1024, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(4096, 1024, device="cuda")
    for _ in range(STEPS):
        train_step(model, optimizer, x).item()


class Slow(Dataset[torch.Tensor]):
    """Samples that take the host 2 ms each."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.full((1024,), float(index % 7))


def loader() -> None:
    """One GPU that waits for two loading processes."""
    model = blocks(1024, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for x in DataLoader(Slow(), batch_size=32, num_workers=2, pin_memory=True):
        train_step(model, optimizer, x.cuda(non_blocking=True))


def compiled() -> None:
    """torch.compile with CUDA graphs, forward and backward."""
    model = blocks(512, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    fast = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(512, 512, device="cuda")
    for _ in range(STEPS):
        train_step(fast, optimizer, x)


def ddp() -> None:
    """Two ranks, gradients averaged by NCCL."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    model = nn.parallel.DistributedDataParallel(blocks(1024, 6).cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(1024, 1024, device="cuda")
    for _ in range(STEPS):
        train_step(model, optimizer, x)


def kernel() -> None:
    """A Triton kernel by itself, without steps: rows of a matrix, scaled and added."""
    from benchmarks.capture_kernel import scaled_sum

    x, y = torch.randn(2, 8192, 8192, device="cuda").unbind()
    for _ in range(50):
        scaled_sum(x, y)
    torch.cuda.synchronize()


PROGRAMS = {"train": train, "loader": loader, "compiled": compiled, "ddp": ddp, "kernel": kernel}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
