"""A training loop with one slow step: what makes it slow is planted once, at a step drawn at random."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from benchmarks.compiling.programs import Setting, activated
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

STEPS = 40
PLANTED = ("none", "gc", "gc_marked", "empty_cache", "allocator_retry", "checkpoint", "slow_batch", "recompile")
PLANTED_ON_TWO = ("late_peer", "none_on_two")


class Batches(IterableDataset):
    """Batches prepared in the main process; the one at `slow` takes 40 ms longer."""

    def __init__(self, setting: Setting, slow: int) -> None:
        self.setting, self.slow = setting, slow

    def __iter__(self) -> Iterator[Tensor]:
        batch = torch.randn(self.setting.size(1024), self.setting.size(1024))
        batch = batch if self.setting.dry else batch.to(torch.bfloat16).pin_memory()
        number = 0
        while True:
            if number == self.slow:
                time.sleep(0.04)
            yield batch
            number += 1


class Loop:
    """Forward, backward, AdamW. `tick` runs one step; the planted cause strikes at step `at`, counted from 0."""

    def __init__(self, kind: str, setting: Setting, at: int, scratch: Path) -> None:
        self.kind, self.setting, self.at, self.scratch = kind, setting, at, scratch
        width = setting.size(1024)
        layers = [part for _ in range(3) for part in (nn.Linear(width, width), nn.GELU())]
        self.model = nn.Sequential(*layers).to(setting.device, torch.float32 if setting.dry else torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.compiled = torch.compile(activated, dynamic=False)
        self.batches = iter(DataLoader(Batches(setting, at if kind == "slow_batch" else -1), batch_size=None))
        self.held: list[object] = []
        self.number = 0
        self.before: Callable[[], None] = getattr(self, f"_{kind}", lambda: None)

    def tick(self) -> None:
        batch = next(self.batches).to(self.setting.device, non_blocking=True)
        if self.number == self.at:
            self.before()
        rows = batch.shape[0] - (self.at if self.kind == "recompile" and self.number == self.at else 0)
        hidden = self.model(batch[:rows])
        hidden = self.compiled(hidden) if self.kind == "recompile" else activated(hidden)
        loss = hidden.float().square().mean()
        loss.backward()
        if dist.is_initialized():
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.number += 1
        if self.number % 8 == 0:
            loss.item()

    def _gc(self) -> None:
        rings = [[None] for _ in range(600_000)]
        for ring in rings:
            ring[0] = ring  # only a collection can free these
        del rings, ring
        gc.collect()

    _gc_marked = _gc_again = _gc

    def _empty_cache(self) -> None:
        if not self.setting.dry:
            torch.cuda.empty_cache()

    def _allocator_retry(self) -> None:
        """A size that only fits when cached blocks are given back."""
        self.held.append(torch.empty(self.filler_bytes() * 3 // 4, dtype=torch.uint8, device=self.setting.device))

    def filler_bytes(self) -> int:
        return 1 << 20 if self.setting.dry else 8 << 30

    def prepare(self) -> None:
        """What must stand before the first step: for a retry, a limit and blocks that fill it."""
        if self.kind == "allocator_retry" and not self.setting.dry:
            piece = self.filler_bytes() // 16
            blocks = [torch.empty(piece, dtype=torch.uint8, device="cuda") for _ in range(16)]
            del blocks
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 30)) / total)

    def _checkpoint(self) -> None:
        state = {name: value.cpu() for name, value in self.model.state_dict().items()}
        moments = {name: value["exp_avg"].cpu() for name, value in self.optimizer.state_dict()["state"].items()}
        torch.save({"model": state, "moments": moments}, self.scratch / "checkpoint.pt")

    def _late_peer(self) -> None:
        if dist.get_rank() == 1:
            time.sleep(0.03)
