"""One rank of a job: its device, its neighbours, and the sizes it works with (tiny ones on the CPU)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class World:
    rank: int
    size: int
    device: torch.device
    tiny: bool
    nvtx: bool

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def last(self) -> bool:
        return self.rank == self.size - 1

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.cuda else torch.float32

    def pick(self, full: int, tiny: int = 8) -> int:
        """`full`, or `tiny` on the CPU."""
        return tiny if self.tiny else full

    def random(self, *shape: int, seed: int) -> Tensor:
        """Normal numbers, the same on every rank for the same seed."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(*shape, generator=generator, device=self.device).to(self.dtype)

    def stack(self, layers: int, width: int, seed: int = 1) -> nn.Sequential:
        """Square linear layers with a GELU after each, equal on every rank."""
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for _ in range(layers):
            parts += [nn.Linear(width, width, bias=False), nn.GELU()]
        return nn.Sequential(*parts).to(self.device, self.dtype)

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def meet(self) -> None:
        """All ranks are here, and their devices are done."""
        self.synchronize()
        dist.barrier()
        self.synchronize()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A named stretch: an NVTX range under Nsight Systems, else one of torch.profiler."""
        if self.nvtx and self.cuda:
            torch.cuda.nvtx.range_push(name)
            try:
                yield
            finally:
                torch.cuda.nvtx.range_pop()
        else:
            with torch.profiler.record_function(name):
                yield


def join(tiny: bool, nvtx: bool) -> World:
    """This process's place in the job that torchrun started."""
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu" if tiny else f"cuda:{local}")
    if not tiny:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    return World(dist.get_rank(), dist.get_world_size(), device, tiny, nvtx)
