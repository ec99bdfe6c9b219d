"""Layers that the ranks share: tensor parallel, its sums awaited, in pieces, and behind other work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import causal_attention
from benchmarks.faults.program import Program, Step
from benchmarks.faults.seventh.transformer import (
    LAYERS,
    RATE,
    WIDTH,
    answered_in_turn,
    by_head,
    heads_of,
    sequences,
)  # fmt: skip
from torch import Tensor


def sum_over_ranks(part: Tensor, pieces: int) -> Tensor:
    whole = part.clone()
    for piece in whole.view(-1).chunk(pieces):
        dist.all_reduce(piece)
    return whole


class Summed(torch.autograd.Function):
    """The sum over the ranks, in `pieces`; its gradient as it comes."""

    @staticmethod
    def forward(_: Any, part: Tensor, pieces: int) -> Tensor:  # type: ignore[override]  # torch's signature
        return sum_over_ranks(part, pieces)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]  # torch's signature
        return gradient, None


class Copied(torch.autograd.Function):
    """The same on each rank; the sum over the ranks of its gradient, in `pieces`."""

    @staticmethod
    def forward(context: Any, whole: Tensor, pieces: int) -> Tensor:  # type: ignore[override]  # torch's signature
        context.pieces = pieces
        return whole.view_as(whole)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]  # torch's
        return sum_over_ranks(gradient, context.pieces), None


class SplitLayer:
    """This rank's heads and columns of one layer: the first products cut by columns, the second by rows."""

    def __init__(self, machine: Machine, number: int) -> None:
        width, self.heads = machine.size(WIDTH, 32), heads_of(machine) // machine.ranks
        self.width, mine = (width,), width // machine.ranks
        seed = 100 * number + 10 * machine.rank

        def weight(rows: int, columns: int, at: int) -> Tensor:
            return machine.random(rows, columns, seed=seed + at) / width**0.5

        self.inward = [weight(mine, width, at) for at in range(3)]
        self.out = weight(width, mine, 3)
        self.up, self.down = weight(4 * mine, width, 4), weight(width, 4 * mine, 5) / 2

    @property
    def weights(self) -> list[Tensor]:
        return [*self.inward, self.out, self.up, self.down]

    def attention(self, hidden: Tensor) -> Tensor:
        """This rank's part of the sum."""
        parts = (by_head(F.linear(hidden, weight), self.heads) for weight in self.inward)
        found = causal_attention(*parts).transpose(1, 2)
        return F.linear(found.reshape(*hidden.shape[:2], -1), self.out)

    def network(self, hidden: Tensor) -> Tensor:
        return F.linear(F.gelu(F.linear(hidden, self.up)), self.down)

    def norm(self, hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, self.width)


def split_layers(machine: Machine) -> list[SplitLayer]:
    return [SplitLayer(machine, number) for number in range(machine.size(LAYERS, 2))]


def sums_in_pieces(_: str, machine: Machine) -> Program:
    """Tensor parallel sums its activations in sixteen pieces, one after another; fixed, in one."""

    def step_in(pieces: int) -> Step:
        layers = split_layers(machine)
        weights = [weight.requires_grad_() for one in layers for weight in one.weights]
        optimizer = torch.optim.SGD(weights, lr=RATE, foreach=True)
        batch = sequences(machine, 4)

        def step() -> Tensor:
            hidden = batch
            for one in layers:
                for part in (one.attention, one.network):
                    hidden = hidden + Summed.apply(part(Copied.apply(one.norm(hidden), pieces)), pieces)
            loss = F.mse_loss(hidden.float(), batch.float())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return step

    return Program(step_in(machine.size(16, 2)), step_in(1), tolerance=3e-2)


def prefilled(machine: Machine, count: int, later: bool) -> Step:
    """A prefill of tensor parallel; `later`, half of the batch computes while the other half is summed."""
    layers, batch = split_layers(machine), sequences(machine, count)

    def passes(at: int, halves: list[Tensor]) -> Iterator[None]:
        for one in layers:
            for part in (one.attention, one.network):
                out = part(one.norm(halves[at]))
                under_way = dist.all_reduce(out, async_op=later)
                yield
                if under_way:
                    under_way.wait()
                halves[at] = halves[at] + out

    return answered_in_turn(passes, batch, 2 if later else 1)


def sums_awaited(_: str, machine: Machine) -> Program:
    """A prefill of tensor parallel waits for each sum; fixed, half of the batch computes meanwhile."""
    return Program(prefilled(machine, 8, later=False), prefilled(machine, 8, later=True), tolerance=3e-2)


def halves_in_turn(_: str, machine: Machine) -> Program:
    """A prefill of tensor parallel whose halves compute and are summed in turn."""
    step = prefilled(machine, 12, later=True)
    return Program(step, step, tolerance=3e-2)
