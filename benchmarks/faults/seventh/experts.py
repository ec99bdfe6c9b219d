"""Experts and sequences that the ranks share: expert and context parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.fifth.split_layers import attended
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import causal_attention
from benchmarks.faults.program import Program, Step
from benchmarks.faults.seventh.transformer import (
    LAYERS,
    LENGTH,
    WIDTH,
    answered_in_turn,
    by_head,
    heads_of,
    sequences,
)  # fmt: skip
from torch import Tensor

EXPERT_LAYERS, BATCH_TOKENS = 3, 4 * LENGTH


class Exchanged(torch.autograd.Function):
    """Rows to other ranks, `given` to each, and `taken` from each; gradients back the same way."""

    @staticmethod
    def forward(context: Any, rows: Tensor, given: list[int], taken: list[int]) -> Tensor:  # type: ignore[override]
        context.given, context.taken = given, taken
        got = rows.new_empty(sum(taken), rows.shape[1])
        dist.all_to_all_single(got, rows, taken, given)
        return got

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        back = gradient.new_empty(sum(context.given), gradient.shape[1])
        dist.all_to_all_single(back, gradient.contiguous(), context.given, context.taken)
        return back, None, None


class ExpertLayer:
    """Attention that each rank has whole, and one expert a rank: all hold the same, so that any may be asked."""

    def __init__(self, machine: Machine, number: int) -> None:
        width, self.heads = machine.size(WIDTH, 32), heads_of(machine)
        self.width = (width,)
        weights = [machine.random(width, width, seed=50 * number + at) / width**0.5 for at in range(4)]
        self.inward, self.out = weights[:3], weights[3]
        self.up = machine.random(4 * width, width, seed=50 * number + 4) / width**0.5
        self.down = machine.random(width, 4 * width, seed=50 * number + 5) / width**0.5 / 2

    @property
    def weights(self) -> list[Tensor]:
        return [*self.inward, self.out, self.up, self.down]

    def attention(self, hidden: Tensor) -> Tensor:
        seen = F.layer_norm(hidden, self.width)
        found = causal_attention(*(by_head(F.linear(seen, weight), self.heads) for weight in self.inward))
        return hidden + F.linear(found.transpose(1, 2).reshape_as(hidden), self.out)

    def expert(self, rows: Tensor) -> Tensor:
        return F.linear(F.gelu(F.linear(rows, self.up)), self.down)


def expert_layers(machine: Machine) -> list[ExpertLayer]:
    """Three layers of a quarter billion each, over all ranks: 1.02 billion."""
    return [ExpertLayer(machine, number) for number in range(machine.size(EXPERT_LAYERS, 2))]


def experts_uneven(_: str, machine: Machine) -> Program:
    """The router sends 52 % of the tokens to the expert of rank 0; fixed, a quarter to each."""
    every = machine.size(BATCH_TOKENS, 64) // 16

    def step_with(sixteenths: Sequence[int]) -> Step:
        layers = expert_layers(machine)
        weights = [weight.requires_grad_() for one in layers for weight in one.weights]
        optimizer = torch.optim.SGD(weights, lr=1e-6, foreach=True)
        batch = sequences(machine, machine.size(4), seed=20 + machine.rank)
        given = [every * part for part in sixteenths]
        taken = [given[machine.rank]] * machine.ranks

        def step() -> Tensor:
            hidden = batch
            for one in layers:
                hidden = one.attention(hidden)
                rows = F.layer_norm(hidden, one.width).flatten(0, 1)
                back = Exchanged.apply(one.expert(Exchanged.apply(rows, given, taken)), taken, given)
                hidden = hidden + back.view_as(hidden)
            loss = F.mse_loss(hidden.float(), batch.float())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return step

    return Program(step_with([7, 3, 3, 3]), step_with([4, 4, 4, 4]), tolerance=3e-2)


def experts_even(_: str, machine: Machine) -> Program:
    """A prefill with experts whose halves compute and are exchanged in turn."""
    layers, batch = expert_layers(machine), sequences(machine, 16, seed=20 + machine.rank)

    def passes(at: int, halves: list[Tensor]) -> Iterator[None]:
        for one in layers:
            hidden = one.attention(halves[at])
            rows = F.layer_norm(hidden, one.width).flatten(0, 1)
            got, back = torch.empty_like(rows), torch.empty_like(rows)
            out = dist.all_to_all_single(got, rows, async_op=True)
            yield
            out.wait()
            found = one.expert(got)
            home = dist.all_to_all_single(back, found, async_op=True)
            yield
            home.wait()
            halves[at] = hidden + back.view_as(hidden)

    step = answered_in_turn(passes, batch, 2)
    return Program(step, step, tolerance=3e-2)


def ring(machine: Machine, length: int, later: bool) -> Step:
    """A prefill of context parallel: keys and values pass around the ranks; `later`, while the last came ones are
    attended to."""
    layers = [ExpertLayer(machine, number) for number in range(machine.size(LAYERS, 2))]
    batch = sequences(machine, 1, length, seed=30 + machine.rank)
    following, before = (machine.rank + 1) % machine.ranks, (machine.rank - 1) % machine.ranks

    def pass_on(held: Tensor) -> tuple[Tensor, list[dist.Work]]:
        coming = torch.empty_like(held)
        both = [dist.P2POp(dist.isend, held, following), dist.P2POp(dist.irecv, coming, before)]
        return coming, dist.batch_isend_irecv(both)

    def attention(one: ExpertLayer, hidden: Tensor) -> Tensor:
        query, key, value = (by_head(F.linear(F.layer_norm(hidden, one.width), w), one.heads) for w in one.inward)
        held, found, weight = torch.stack([key, value]), None, None
        for hop in range(machine.ranks):
            coming, under_way = pass_on(held) if hop < machine.ranks - 1 else (held, [])
            for work in [] if later else under_way:
                work.wait()
            out, normaliser = attended(machine, query, held[0], held[1])
            if found is None or weight is None:
                found, weight = out, normaliser
            else:
                found = torch.lerp(found, out, torch.sigmoid(normaliser - weight)[..., None].to(out.dtype))
                weight = torch.logaddexp(weight, normaliser)
            for work in under_way if later else []:
                work.wait()
            held = coming
        assert found is not None
        return hidden + F.linear(found.transpose(1, 2).reshape_as(hidden), one.out)

    @torch.no_grad()
    def step() -> Tensor:
        hidden = batch
        for one in layers:
            hidden = attention(one, hidden)
            hidden = hidden + one.expert(F.layer_norm(hidden, one.width))
        return hidden.float().square().mean()

    return step


def ring_in_line(_: str, machine: Machine) -> Program:
    """Context parallel passes keys and values on, then attends; fixed, it attends meanwhile."""
    return Program(ring(machine, 4096, later=False), ring(machine, 4096, later=True), tolerance=3e-2)


def ring_ahead(_: str, machine: Machine) -> Program:
    """Context parallel of longer sequences that attends while keys and values are passed on."""
    step = ring(machine, 8192, later=True)
    return Program(step, step, tolerance=3e-2)
