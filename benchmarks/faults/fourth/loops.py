"""Python loops over parameters that one list operation replaces."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn

DECAY, LARGEST = 0.999, 1.0
Weights = list[nn.Parameter]


class Narrow(nn.Module):
    """Many small layers with a bias and a norm: four parameters each."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = hidden + F.gelu(layer(norm(hidden)))
        return hidden


def trained(machine: Machine, before: Callable[[Weights], None], after: Callable[[Weights], None], layers: int) -> Step:
    """A training step with something done to all gradients before the optimizer, and to all weights after it."""
    width, tokens = machine.size(1024), machine.size(8192)
    model = place(machine, lambda: Narrow(width, layers))
    weights = [*model.parameters()]
    optimizer = adamw(weights)
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

    def step() -> Tensor:
        with machine.phase("forward"):
            loss = F.mse_loss(model(batch), target)
        with machine.phase("backward"):
            loss.backward()
        before(weights)
        with machine.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        after(weights)
        return loss.detach().float()

    return step


def nothing(_: Weights) -> None:
    """Leave them."""


def weights_averaged_one_by_one(_: str, machine: Machine) -> Program:
    """An average of the weights is kept parameter by parameter; fixed, by list operations."""

    def averaging(together: bool) -> Callable[[Weights], None]:
        kept: list[Tensor] = []

        @torch.no_grad()
        def average(weights: Weights) -> None:
            if not kept:
                kept.extend(weight.detach().clone() for weight in weights)
            if together:
                torch._foreach_mul_(kept, DECAY)
                torch._foreach_add_(kept, [*weights], alpha=1 - DECAY)
                return
            for mean, weight in zip(kept, weights, strict=True):
                mean.mul_(DECAY).add_(weight, alpha=1 - DECAY)

        return average

    fault, fix = (trained(machine, nothing, averaging(together), 12) for together in (False, True))
    return Program(fault, fix, tolerance=2e-2)


def gradients_clipped_one_by_one(_: str, machine: Machine) -> Program:
    """Gradients are clipped by their norm parameter by parameter, without a wait; fixed, by list operations."""

    @torch.no_grad()
    def clip(weights: Weights) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum().sqrt()
        factor = (LARGEST / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)

    def clip_together(weights: Weights) -> None:
        nn.utils.clip_grad_norm_(weights, LARGEST, foreach=True)

    fault, fix = (trained(machine, before, nothing, 12) for before in (clip, clip_together))
    return Program(fault, fix, tolerance=5e-2)
