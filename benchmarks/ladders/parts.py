"""What the programs share: toggles of precision, attention, compilation, optimizers, loaders and CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import place
from benchmarks.faults.program import Step
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

Model = TypeVar("Model", bound=nn.Module)
Changes = frozenset[str]


@dataclass(frozen=True, slots=True)
class Context:
    """Where a program runs, which of its changes are made, and how many times as large its batch is."""

    machine: Machine
    on: Changes
    times: int = 1

    def __contains__(self, change: str) -> bool:
        return change in self.on

    def items(self, full: int, tiny: int) -> int:
        """How many items a batch has."""
        return self.times * self.machine.size(full, tiny)

    def place(self, make: Callable[[], Model]) -> Model:
        """The model in fp32 on the device, with the same weights every time."""
        return place(self.machine, make, torch.float32)

    def laid_out(self, thing: Any) -> Any:
        """A model or pictures, with channels last where that change is made."""
        return thing.to(memory_format=torch.channels_last) if "channels_last" in self else thing

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.machine.device.type, torch.bfloat16) if "bf16" in self else nullcontext()

    def compile(self, modules: Sequence[nn.Module]) -> None:
        """Alike modules are one compilation."""
        if "compile" in self:
            for module in modules:
                module.compile(backend=self.backend, dynamic=False)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, backend=self.backend, dynamic=False) if "compile" in self else function

    @property
    def backend(self) -> str:
        return "aot_eager" if self.machine.tiny else "inductor"

    def normal(self, *shape: int, seed: int = 0) -> Tensor:
        return self.machine.random(*shape, dtype=torch.float32, seed=seed)

    def adamw(self, model: nn.Module, loop: bool = False) -> torch.optim.AdamW:
        """AdamW as it comes, or where `loop` one parameter at a time; as a change, in one pass."""
        if "fused_optimizer" in self:
            return torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        return torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False if loop else None)


class Attention(nn.Module):
    """Attention of several heads, to itself or to `memory`; written out, or as a change in one kernel."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, hidden: Tensor) -> Tensor:
        return hidden.view(hidden.shape[0], hidden.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, hidden: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        source = hidden if memory is None else memory
        query, key, value = self.split(self.query(hidden)), self.split(self.key(source)), self.split(self.value(source))
        if self.fused:
            mask = bias if bias is None else bias.to(query.dtype)
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) * query.shape[-1] ** -0.5
            if bias is not None:
                scores = scores + bias
            mixed = torch.matmul(torch.softmax(scores.float(), dim=-1).to(value.dtype), value)
        return self.out(mixed.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Norm, attention, norm, MLP with GELU."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.norm1(hidden))
        return hidden + self.down(F.gelu(self.up(self.norm2(hidden))))


def endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def loaded(context: Context, dataset: Dataset[Any], batch: int | None, workers: int = 5) -> Iterator[list[Tensor]]:
    """Batches on the device: from this process or, as a change, from workers; pageable or, as a change, pinned."""
    pinned = "pin_memory" in context and context.machine.cuda
    several = workers if "loader_workers" in context else 0
    if context.machine.tiny:
        several = min(several, 1)
    loader = DataLoader(
        dataset, batch_size=batch, num_workers=several, pin_memory=pinned, persistent_workers=several > 0
    )
    for parts in endless(loader):
        yield [part.to(context.machine.device, non_blocking=pinned) for part in parts]


def graphed(context: Context, work: Callable[[], Any]) -> Callable[[], Any]:
    """`work` as a CUDA graph where that change is made."""
    return context.machine.graphed(work) if "cuda_graph" in context else work


def until_ended(context: Context, say: Callable[[], Any], ended: Tensor, count: int) -> None:
    """So many words at most; unless a change has removed that, the host asks after each whether all have ended."""
    for _ in range(count):
        say()
        if "remove_sync" not in context and bool(ended.all()):
            break


@torch.no_grad()
def follow(context: Context, mean: list[Tensor], own: list[Tensor], share: float, in_one: bool = True) -> None:
    """A moving average takes in `share` of the weights: one parameter at a time or, as a change, over lists, in one
    operation or two."""
    if "list_operations" not in context:
        for kept, value in zip(mean, own, strict=True):
            kept.mul_(1 - share).add_(value, alpha=share)
    elif in_one:
        torch._foreach_lerp_(mean, own, share)
    else:
        torch._foreach_mul_(mean, 1 - share)
        torch._foreach_add_(mean, own, alpha=share)


def followed(train: Step, after: Callable[[], Any]) -> Step:
    """A training step with something after it."""

    def step() -> Tensor:
        loss = train()
        after()
        return loss

    return step


def trained(context: Context, loss_of: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> Step:
    """A training step by the loss that `loss_of` works out."""

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with context.autocast():
            loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
