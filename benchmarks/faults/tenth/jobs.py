"""Three jobs of two ranks, and places in a step where one rank may have work of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place
from benchmarks.faults.program import Step
from benchmarks.faults.third_models import layers, replicated, sequences, sharded
from torch import Tensor, nn

RATE = 1e-4
WIDTH, TOKENS, LAYERS = 4096, 32768, 6
Own = Callable[[int], None]
"""What a rank does by itself, told the step's number from 0."""


def nothing(_: int) -> None:
    """No work of its own."""


def each(period: int, work: Callable[[], object], at: int = 0) -> Own:
    """`work` in every step whose number leaves `at` when divided by `period`."""

    def own(number: int) -> None:
        if number % period == at:
            work()

    return own


@dataclass(frozen=True, slots=True)
class Work:
    """What a rank does by itself: before a step, between its passes and its optimizer, and after it."""

    before: Own = nothing
    between: Own = nothing
    after: Own = nothing


NONE = Work()


def trained(
    machine: Machine, model: nn.Module, batch: Tensor, target: Tensor, own: Work = NONE, read: bool = False
) -> Step:
    """A training step with the rank's own work in it; the loss is read or not."""
    optimizer = adamw(model.parameters(), lr=RATE)
    done, seen = [0], [0.0]

    def step() -> Tensor:
        number = done[0]
        done[0] += 1
        own.before(number)
        loss = F.mse_loss(model(batch), target).float()
        loss.backward()
        own.between(number)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if read:
            seen[0] += loss.item()
        own.after(number)
        return loss.detach()

    return step


def rows(machine: Machine, width: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of this rank."""
    return machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)


def replicas(machine: Machine, own: Work = NONE, read: bool = False) -> Step:
    """DDP over a network of six wide products."""
    width = machine.size(WIDTH)
    model = replicated(place(machine, lambda: Mlp(width, machine.size(LAYERS, 2))))
    return trained(machine, model, *rows(machine, width, machine.size(TOKENS)), own, read)


def shards(machine: Machine, own: Work = NONE) -> Step:
    """FSDP2 over four transformer layers."""
    width = machine.size(2048, 32)
    model = place(machine, lambda: layers(width, 16, machine.size(4, 2)))
    sharded(model, model)
    inputs = sequences(machine, machine.size(12, 2), machine.size(1024), width)
    return trained(machine, model, inputs, inputs, own)


def summed(machine: Machine, between: Own = nothing) -> Step:
    """Gradients summed by hand after the backward pass, weight by weight, as tutorials write it."""
    width, tokens = machine.size(WIDTH), machine.size(TOKENS)
    model = place(machine, lambda: Mlp(width, machine.size(4, 2)))

    def exchange(number: int) -> None:
        between(number)
        for weight in model.parameters():
            assert weight.grad is not None
            dist.all_reduce(weight.grad)
            weight.grad /= machine.ranks

    return trained(machine, model, *rows(machine, width, tokens), Work(between=exchange))


def own_tokens(machine: Machine, count: int) -> Callable[[], dict[int, int]]:
    """Count so many tokens in Python."""
    tokens = [number * 7919 % 32000 for number in range(machine.size(count, 100))]

    def count_tokens() -> dict[int, int]:
        seen: dict[int, int] = {}
        for token in tokens:
            seen[token] = seen.get(token, 0) + 1
        return seen

    return count_tokens


def evaluation(machine: Machine) -> Callable[[Tensor], None]:
    """A network that judges rows, and has nothing to do with the one that learns."""
    judge = place(machine, lambda: Mlp(machine.size(WIDTH), machine.size(LAYERS, 2)))

    @torch.no_grad()
    def judged(held_out: Tensor) -> None:
        if len(held_out):
            judge(held_out)

    return judged
