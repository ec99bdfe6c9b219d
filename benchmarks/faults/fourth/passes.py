"""Work that is done twice, or once for every layer: recomputation, evaluation in the step, masks."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Block, adamw, place, training, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Recomputed(nn.Module):
    """Blocks of which the first `count` keep no activations: they run again in the backward pass."""

    def __init__(self, blocks: nn.ModuleList, count: int, reentrant: bool) -> None:
        super().__init__()
        self.blocks, self.count, self.reentrant = blocks, count, reentrant

    def forward(self, hidden: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            again = number < self.count
            hidden = checkpoint(block, hidden, use_reentrant=self.reentrant) if again else block(hidden)
        return hidden


def layers_recomputed(severity: str, machine: Machine) -> Program:
    """Every layer is checkpointed though memory is free; fixed, none is. Low: one of four, by the reentrant way."""
    width, length, batch = machine.size(1024, 64), machine.size(1024), machine.size(8, 2)
    every = severity == "high"

    def step_with(count: int) -> Step:
        blocks = place(machine, lambda: nn.ModuleList(Block(width, machine.size(16, 4)) for _ in range(4)))
        model = Recomputed(blocks, count, reentrant=not every)
        plain = training(machine, model, adamw(model.parameters()))
        batch_in = machine.random(batch, length, width).requires_grad_()
        target = machine.random(batch, length, width, seed=1)
        return lambda: plain(batch_in, target).float()

    return Program(step_with(4 if every else 1), step_with(0), tolerance=2e-2)


def evaluated_every_step(_: str, machine: Machine) -> Program:
    """A validation batch goes through the model in every training step; fixed, it does not."""
    width, length, batch = machine.size(1024, 64), machine.size(512), machine.size(8, 2)

    def step_with(evaluates: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(*(Block(width, machine.size(16, 4)) for _ in range(3))))
        optimizer = adamw(model.parameters())
        batch_in, target = machine.random(batch, length, width), machine.random(batch, length, width, seed=1)
        held, wanted = machine.random(batch, length, width, seed=2), machine.random(batch, length, width, seed=3)
        seen = torch.zeros((), device=machine.device)

        def step() -> Tensor:
            with machine.phase("forward"):
                loss = F.mse_loss(model(batch_in), target)
            kept = update(machine, loss, optimizer)
            if evaluates:
                with torch.no_grad():
                    seen.add_(F.mse_loss(model(held), wanted))
            return kept.float()

        return step

    return Program(step_with(evaluates=True), step_with(evaluates=False), tolerance=2e-2)


def masks_rebuilt(_: str, machine: Machine) -> Program:
    """Every layer makes the same causal mask anew; fixed, one mask is made once."""
    width, heads, length, batch = machine.size(1024, 64), machine.size(16, 4), machine.size(2048), machine.size(2)

    def made() -> Tensor:
        full = torch.full((length, length), float("-inf"), device=machine.device)
        return torch.triu(full, diagonal=1).to(torch.bfloat16)

    once = made()

    def anew(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=made())

    def kept(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=once)

    def step_with(own: bool) -> Step:
        attend = anew if own else kept
        model = place(machine, lambda: nn.Sequential(*(Block(width, heads, attend) for _ in range(6))))
        hidden = machine.random(batch, length, width)

        def step() -> Tensor:
            with torch.no_grad(), machine.phase("forward"):
                return model(hidden).float().square().mean()

        return step

    return Program(step_with(own=True), step_with(own=False), tolerance=2e-2)
