"""The device of one rank has more to do than the other's: evaluation, averages, samples, longer or more batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, update
from benchmarks.faults.program import Program, Step
from benchmarks.faults.seventh.experts import Exchanged
from benchmarks.faults.tenth.jobs import LAYERS, RATE, WIDTH, Work, each, evaluation, replicas, shards
from benchmarks.faults.third_models import layers, replicated, sharded
from torch import Tensor


def evaluated_each_second_step(_: str, machine: Machine) -> Program:
    """Rank 0 of DDP evaluates held-out rows in each second step; fixed, each rank evaluates half of them."""
    judged, held_out = evaluation(machine), machine.random(machine.size(65536), machine.size(WIDTH), seed=77)
    half = len(held_out) // 2
    whole = held_out if machine.rank == 0 else held_out[:0]
    share = held_out[machine.rank * half :][:half]
    fault, fix = (replicas(machine, Work(after=each(2, partial(judged, mine), 1))) for mine in (whole, share))
    return Program(fault, fix, period=2)


def averages_kept_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 1 of FSDP2 keeps sixteen moving averages of weights; fixed, each rank keeps eight."""
    width = machine.size(WIDTH)
    weights = [machine.random(width, width, seed=60 + at) for at in range(6)]
    averages = [[torch.zeros_like(weight) for weight in weights] for _ in range(16)]

    def step_with(mine: Sequence[int]) -> Step:
        def average() -> None:
            for at in mine:
                torch._foreach_lerp_(averages[at], weights, 0.1 / (1 + at))

        return shards(machine, Work(after=each(1, average)))

    own = range(16) if machine.rank == 1 else ()
    return Program(step_with(own), step_with(range(8 * machine.rank, 8 * machine.rank + 8)))


def samples_drawn_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 0 of DDP draws four samples, token by token, after every step; fixed, each rank draws two."""
    judged, start = evaluation(machine), machine.random(machine.size(16, 2), machine.size(WIDTH), seed=78)

    def step_with(count: int) -> Step:
        def draw() -> None:
            for _ in range(count * machine.size(48, 2)):
                judged(start)

        return replicas(machine, Work(after=each(1, draw)))

    return Program(step_with(4 if machine.rank == 0 else 0), step_with(2))


def longer_sequences_on_one_rank(_: str, machine: Machine) -> Program:
    """Rank 1 of FSDP2 gets the longer sequences; fixed, each rank gets half of both kinds."""
    width = machine.size(2048, 32)
    long = machine.random(8, machine.size(2048, 12), width, seed=1)
    short = machine.random(8, machine.size(1024, 8), width, seed=2)
    total = long.numel() + short.numel()

    def step_with(batches: Sequence[Tensor]) -> Step:
        model = place(machine, lambda: layers(width, 16, machine.size(4, 2)))
        sharded(model, model)
        optimizer = adamw(model.parameters(), lr=RATE)
        whole, lengths = [batch for batch in batches if len(batch)], len(batches)

        def step() -> Tensor:
            losses = []
            for at, batch in enumerate(whole):
                model.set_requires_gradient_sync(at == lengths - 1)  # type: ignore[operator]
                loss = F.mse_loss(model(batch).float(), batch.float(), reduction="sum") * machine.ranks / total
                loss.backward()
                losses.append(loss.detach())
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return torch.stack(losses).sum()

        return step

    halves = [part[machine.rank :: machine.ranks].contiguous() for part in (long, short)]
    mine = long if machine.rank == 1 else short
    return Program(step_with([mine[:4], mine[4:]]), step_with(halves), tolerance=2e-2)


def pieces_accumulated_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 0 of DDP accumulates five pieces and rank 1 three; fixed, four each."""
    width, tokens, count = machine.size(WIDTH), machine.size(8192), 8
    pieces = [machine.random(tokens, width, seed=30 + at) for at in range(count)]
    target = machine.random(tokens, width, seed=9)

    def step_with(first: int) -> Step:
        model = replicated(place(machine, lambda: Mlp(width, machine.size(LAYERS, 2))))
        optimizer = adamw(model.parameters(), lr=RATE)
        mine = pieces[first:] if machine.rank else pieces[:first]

        def step() -> Tensor:
            total = torch.zeros((), device=machine.device)
            for at, piece in enumerate(mine):
                with nullcontext() if at == len(mine) - 1 else model.no_sync():
                    loss = F.mse_loss(model(piece), target).float() * machine.ranks / count
                    loss.backward()
                total += loss.detach()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return total

        return step

    return Program(step_with(5), step_with(4), tolerance=2e-2)


def tokens_routed_to_one_expert(_: str, machine: Machine) -> Program:
    """The router sends eleven sixteenths of the tokens to the expert of rank 0; fixed, half to each."""
    width, tokens, count = machine.size(2048, 16), machine.size(16384, 32), machine.size(4, 2)

    def step_with(parts: tuple[int, int]) -> Step:
        weights = [machine.random(4 * width, width, seed=at) / width**0.5 for at in range(2 * count)]
        experts = [weight.requires_grad_() for weight in weights]
        optimizer = torch.optim.SGD(experts, lr=1e-6, foreach=True)
        batch = machine.random(tokens, width, seed=20 + machine.rank)
        given = [tokens * part // 16 for part in parts]
        taken = [given[machine.rank]] * machine.ranks

        def step() -> Tensor:
            hidden = batch
            for up, down in zip(experts[::2], experts[1::2], strict=True):
                came = Exchanged.apply(F.layer_norm(hidden, (width,)), given, taken)
                found = F.gelu(came @ up.T) @ down / 2
                hidden = hidden + Exchanged.apply(found, taken, given)
            return update(machine, F.mse_loss(hidden.float(), batch.float()), optimizer)

        return step

    return Program(step_with((11, 5)), step_with((8, 8)), tolerance=3e-2)
