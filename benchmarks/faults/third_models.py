"""Transformer layers that learn, and the two ways in which ranks share a model: replicated (DDP) or sharded (FSDP2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import causal_attention
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Layer(nn.Module):
    """Causal attention and a ReLU network four times as wide, both added to what came in; no norms."""

    def __init__(self, width: int, heads: int, attend: Attend = causal_attention) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.qkv(hidden).view(batch, length, 3, self.heads, width // self.heads)
        attended = self.attend(*parts.permute(2, 0, 3, 1, 4).unbind(0))
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.down(F.relu(self.up(hidden)))


def layers(width: int, heads: int, count: int, attend: Attend = causal_attention) -> nn.Sequential:
    return nn.Sequential(*(Layer(width, heads, attend) for _ in range(count)))


def replicated(model: nn.Module) -> DistributedDataParallel:
    """DDP as it comes, with gradients that live in its buckets."""
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def sharded(model: nn.Module, groups: Iterable[nn.Module]) -> nn.Module:
    """FSDP2: every group gathered at once when it is needed, the rest with the root."""
    from torch.distributed.fsdp import fully_shard

    for group in groups:
        fully_shard(group)
    fully_shard(model)
    return model


def sequences(machine: Machine, batch: int, length: int, width: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Another batch on every rank."""
    return machine.random(batch, length, width, dtype=dtype, seed=machine.rank)


def products(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if isinstance(part, nn.Linear)]
