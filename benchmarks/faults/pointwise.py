"""Chains of elementwise operations that read and write memory once each, where one kernel would do."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, update
from benchmarks.faults.program import Program, Step
from torch import Tensor

SHAPES = {"high": (2048, 16384, 4), "low": (4096, 8192, 3), "harmless": (8192, 8192, 2)}
"""Width, tokens, layers: the products grow with the square of the width, the elementwise work with the width."""


def projected(severity: str, machine: Machine, act: Callable[[Tensor], Tensor], train: bool) -> Step:
    """Layers of a product and `act`, trained or only run. Harmless: `act` sees a sixty-fourth of the rows."""
    width, tokens, layers = SHAPES[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    rows = max(1, tokens // 64) if severity == "harmless" else tokens
    weights = [(machine.random(width, width, seed=layer) / width**0.5).requires_grad_(train) for layer in range(layers)]
    optimizer = adamw(weights) if train else None
    batch = machine.random(tokens, width)

    def step() -> Tensor:
        with machine.phase("forward"), torch.set_grad_enabled(train):
            hidden = batch
            for weight in weights:
                hidden = hidden @ weight
                hidden = act(hidden) if rows == tokens else torch.cat([act(hidden[:rows]), hidden[rows:]])
            loss = hidden.float().square().mean()
        return update(machine, loss, optimizer) if optimizer else loss

    return step


def gelu_written_out(severity: str, machine: Machine) -> Program:
    """GELU is written out in eight elementwise operations in training; fixed, F.gelu does it in one kernel."""

    def by_hand(hidden: Tensor) -> Tensor:
        inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden * hidden * hidden)
        return 0.5 * hidden * (1 + torch.tanh(inner))

    def one_kernel(hidden: Tensor) -> Tensor:
        return F.gelu(hidden, approximate="tanh")

    return Program(
        projected(severity, machine, by_hand, train=True),
        projected(severity, machine, one_kernel, train=True),
        tolerance=2e-2,
    )


def norm_written_out(severity: str, machine: Machine) -> Program:
    """A layer norm is written out in mean, variance, difference, quotient, scale and shift; fixed, F.layer_norm."""
    width = machine.size(SHAPES[severity][0])
    scale, shift = machine.random(width, seed=8) * 0.1 + 1, machine.random(width, seed=9) * 0.1

    def by_hand(hidden: Tensor) -> Tensor:
        mean = hidden.mean(-1, keepdim=True)
        centred = hidden - mean
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + 1e-5) * scale + shift

    def one_kernel(hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, (width,), scale, shift, 1e-5)

    return Program(
        projected(severity, machine, by_hand, train=False),
        projected(severity, machine, one_kernel, train=False),
        tolerance=5e-2,
    )


def gate_not_compiled(severity: str, machine: Machine) -> Program:
    """A gated activation with clamps and residual runs eagerly; fixed, torch.compile makes one kernel of it."""

    def gate(hidden: Tensor) -> Tensor:
        left = hidden.clamp(-8.0, 8.0)
        return 0.7 * hidden + left * torch.sigmoid(1.702 * left) * (1.0 + 0.1 * torch.cos(left))

    return Program(
        projected(severity, machine, gate, train=False),
        projected(severity, machine, torch.compile(gate, dynamic=False), train=False),
        tolerance=5e-2,
    )
