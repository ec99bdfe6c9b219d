"""Attention spelled out in matrix products and softmax where one fused kernel does the same."""

from __future__ import annotations

import math

import torch
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Block, adamw, causal_attention, place, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn


def attention_by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax of the masked scores, times the values, with every intermediate in memory."""
    length = query.shape[-2]
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    future = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ value


def attention_written_out(severity: str, machine: Machine) -> Program:
    """A GPT trains with softmax(QKᵀ)V written out; fixed, scaled_dot_product_attention. Harmless: sequences of 64."""
    width, heads, batch, length, layers = {
        "high": (1024, 16, 4, 1024, 4), "low": (2048, 16, 8, 512, 3), "harmless": (4096, 32, 128, 64, 1)
    }[severity]  # fmt: skip
    width, batch, length = machine.size(width, 32), machine.size(batch, 2), machine.size(length)

    def step_with(attend: object) -> Step:
        blocks = place(machine, lambda: nn.Sequential(*(Block(width, heads, attend) for _ in range(layers))))
        optimizer = adamw(blocks.parameters())
        inputs = machine.random(batch, length, width)

        def step() -> Tensor:
            with machine.phase("forward"):
                loss = blocks(inputs).square().mean()
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(attention_by_hand), step_with(causal_attention), tolerance=2e-2)


def attention_weights_kept(severity: str, machine: Machine) -> Program:
    """MultiheadAttention is asked for weights nobody reads, so leaves the fused path; fixed, need_weights=False."""
    width, heads, batch, length, layers = {
        "high": (1024, 16, 4, 1024, 6), "low": (2048, 16, 4, 512, 6), "harmless": (4096, 32, 128, 64, 2)
    }[severity]  # fmt: skip
    width, batch, length = machine.size(width, 32), machine.size(batch, 2), machine.size(length)

    def step_with(weights: bool) -> Step:
        layer = lambda: nn.MultiheadAttention(width, heads, batch_first=True)  # noqa: E731
        models = place(machine, lambda: nn.ModuleList(layer() for _ in range(layers)).train())
        inputs = machine.random(batch, length, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = inputs
            for attend in models:
                hidden = attend(hidden, hidden, hidden, need_weights=weights)[0]
            return hidden.float().square().mean()

        return step

    return Program(step_with(weights=True), step_with(weights=False), tolerance=5e-2)
