"""Optimizers that update parameter by parameter, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Convolutions, Mlp, adamw, head_training, place, training
from benchmarks.faults.program import Program, Step
from torch import nn

Optimizer = torch.optim.Optimizer


def adamw_one_by_one(severity: str, machine: Machine) -> Program:
    """AdamW(foreach=False) runs a dozen kernels for each parameter; fixed, fused=True. Harmless: only a small head."""
    width, tokens, layers = {"high": (1024, 8192, 24), "low": (2048, 16384, 10), "harmless": (4096, 8192, 8)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    frozen = severity == "harmless"
    classes = 16 if frozen else width

    def step_with(fused: bool) -> Step:
        trunk = place(machine, lambda: Mlp(width, layers))
        head = place(machine, lambda: nn.Linear(width, classes))
        trained = [*head.parameters()] if frozen else [*trunk.parameters(), *head.parameters()]
        train = head_training(machine, trunk, head, adamw(trained, fused=fused), frozen)
        batch, target = machine.random(tokens, width), machine.random(tokens, classes, seed=1)
        return lambda: train(batch, target).float()

    return Program(step_with(fused=False), step_with(fused=True), tolerance=2e-2)


def sgd_one_by_one(severity: str, machine: Machine) -> Program:
    """SGD with momentum and weight decay, foreach=False, on a convolutional network; fixed, foreach=True."""
    width, side, batch, layers = {"high": (128, 28, 64, 24), "low": (256, 28, 64, 16), "harmless": (512, 28, 64, 2)}[
        severity
    ]
    width, side, batch = machine.size(width), machine.size(side), machine.size(batch, 2)

    def step_with(make: Callable[[Iterable[nn.Parameter]], Optimizer]) -> Step:
        model = place(machine, lambda: Convolutions(width, layers)).to(memory_format=torch.channels_last)
        plain = training(machine, model, make(model.parameters()))
        images = machine.random(batch, width, side, side).to(memory_format=torch.channels_last)
        target = machine.random(batch, width, side, side, seed=1).to(memory_format=torch.channels_last)
        return lambda: plain(images, target).float()

    def separate(parameters: Iterable[nn.Parameter]) -> Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.02, nesterov=True, foreach=False)

    def together(parameters: Iterable[nn.Parameter]) -> Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.02, nesterov=True, foreach=True)

    return Program(step_with(separate), step_with(together), tolerance=2e-2)
