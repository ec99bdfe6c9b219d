"""Healthy jobs of two ranks whose hosts do something by themselves, all of it behind the queue of their GPUs."""

from __future__ import annotations

import torch
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place
from benchmarks.faults.program import Program
from benchmarks.faults.tenth.jobs import RATE, Work, each, own_tokens, replicas
from benchmarks.faults.third_models import layers, sequences, sharded
from torch import Tensor, nn


def hosts_of_varied_length(_: str, machine: Machine) -> Program:
    """DDP whose hosts both do a little Python, now the one more, now the other."""
    works = [own_tokens(machine, count) for count in (20_000, 90_000, 40_000, 60_000)]

    def work(number: int) -> None:
        works[(3 * number + machine.rank) % 4]()

    step = replicas(machine, Work(work))
    return Program(step, step, period=4)


def counted_by_both(_: str, machine: Machine) -> Program:
    """DDP whose hosts both count words before every step, while their GPUs work."""
    step = replicas(machine, Work(each(1, own_tokens(machine, 150_000))))
    return Program(step, step)


def sharded_and_clipped(_: str, machine: Machine) -> Program:
    """FSDP2 in mixed lengths of the same tokens, gradients clipped by their norm on the device."""
    width = machine.size(2048, 32)
    model = place(machine, lambda: layers(width, 16, machine.size(5, 2)))
    sharded(model, model)
    optimizer = adamw(model.parameters(), lr=RATE)
    batches = [
        sequences(machine, machine.size(count, 2), machine.size(length), width)
        for count, length in ((12, 1024), (6, 2048))
    ]

    def step() -> Tensor:
        total = torch.zeros((), device=machine.device)
        for at, batch in enumerate(batches):
            model.set_requires_gradient_sync(at == len(batches) - 1)  # type: ignore[operator]
            loss = (model(batch) - batch).float().square().mean()
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return Program(step, step, tolerance=2e-2)


def loss_logged_later(_: str, machine: Machine) -> Program:
    """Rank 0 of DDP logs the loss of two steps before, which its GPU has long finished."""
    plain, kept, seen = replicas(machine), list[Tensor](), [0.0]

    def step() -> Tensor:
        loss = plain()
        kept.append(loss)
        if machine.rank == 0 and len(kept) > 2:
            seen[0] += kept.pop(0).item()
        return loss

    return Program(step, step)
