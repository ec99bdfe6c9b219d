"""Small models whose time is known to go to matrix products, so that a planted fault is the only thing to find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


class Mlp(nn.Module):
    """`layers` square linear layers with ReLU."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=(2 / width) ** 0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = F.relu(layer(hidden))
        return hidden


class Block(nn.Module):
    """A pre-norm transformer block; `attend` maps query, key, value [batch, heads, length, head width] to one such."""

    def __init__(
        self, width: int, heads: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.attend = attend or causal_attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.qkv(self.norm1(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = self.attend(query, key, value).transpose(1, 2).reshape(batch, length, width)
        hidden = hidden + self.out(attended)
        return hidden + self.down(F.gelu(self.up(self.norm2(hidden))))


class Convolutions(nn.Module):
    """3 × 3 convolutions of `width` channels with ReLU and residuals."""

    def __init__(self, width: int, layers: int, norm: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) if norm else nn.Identity() for _ in range(layers))
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=(1 / (9 * width)) ** 0.5)

    def forward(self, image: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            image = F.relu(norm(layer(image)))
        return image


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def place(machine: Machine, make: Callable[[], Model], dtype: torch.dtype = torch.bfloat16) -> Model:
    """The model on the device; the same weights at every call."""
    torch.manual_seed(0)
    with torch.device(machine.device):
        return make().to(machine.device, dtype)


def adamw(parameters: Iterable[nn.Parameter], fused: bool = True, lr: float = 1e-3) -> torch.optim.AdamW:
    return (
        torch.optim.AdamW(parameters, lr=lr, fused=True)
        if fused
        else torch.optim.AdamW(parameters, lr=lr, foreach=False)
    )


def update(machine: Machine, loss: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """Backward and optimizer step; the detached loss."""
    with machine.phase("backward"):
        loss.backward()
    with machine.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def accumulating(
    machine: Machine,
    model: nn.Module,
    batches: Sequence[Tensor],
    target: Tensor,
    rate: float,
    exchange: Callable[[int], AbstractContextManager[None]],
) -> Callable[[], Tensor]:
    """A step over micro-batches by mean squared error; `exchange` of a micro-batch's number is around its passes."""
    optimizer = adamw(model.parameters(), lr=rate)

    def step() -> Tensor:
        total = torch.zeros((), device=machine.device)
        for part, batch in enumerate(batches):
            with exchange(part):
                with machine.phase("forward"):
                    loss = F.mse_loss(model(batch), target) / len(batches)
                with machine.phase("backward"):
                    loss.backward()
            total += loss.detach()
        with machine.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total

    return step


def training(
    machine: Machine, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Callable[[Tensor, Tensor], Tensor]:
    """A plain training step on (input, target) by mean squared error."""

    def step(batch: Tensor, target: Tensor) -> Tensor:
        with machine.phase("forward"):
            loss = F.mse_loss(model(batch), target)
        return update(machine, loss, optimizer)

    return step


def head_training(
    machine: Machine, trunk: nn.Module, head: nn.Module, optimizer: torch.optim.Optimizer, frozen: bool
) -> Callable[[Tensor, Tensor], Tensor]:
    """The same of a head on a trunk that learns too, unless it is frozen."""

    def step(batch: Tensor, target: Tensor) -> Tensor:
        with machine.phase("forward"):
            with torch.set_grad_enabled(not frozen):
                hidden = trunk(batch)
            loss = F.mse_loss(head(hidden), target)
        return update(machine, loss, optimizer)

    return step
