"""Healthy jobs of two ranks that look like those with faults: figures summed and not read, features gathered once."""

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place
from benchmarks.faults.program import Program
from benchmarks.faults.third_models import layers, replicated
from benchmarks.faults.thirteenth.lates import of_all_ranks
from torch import Tensor, nn

RATE = 1e-4


def pairs_contrasted_across_ranks(_: str, machine: Machine) -> Program:
    """Questions and passages are told apart among those of both ranks, gathered once a step."""
    width, pairs, words = machine.size(4096), machine.size(1024, 4), 16
    questions, passages = (machine.random(pairs * words, width, seed=10 * number + machine.rank) for number in range(2))
    labels = torch.arange(pairs, device=machine.device) + machine.rank * pairs
    towers = replicated(place(machine, lambda: Mlp(width, machine.size(6, 2))))
    optimizer = adamw(towers.parameters(), lr=RATE)

    def step() -> Tensor:
        found = towers(torch.cat([questions, passages])).unflatten(0, (2, pairs, words)).mean(2)
        asked, answered = F.normalize(found.float(), dim=-1).to(found.dtype).unbind()
        loss = F.cross_entropy(20 * (asked @ of_all_ranks(machine, answered).T).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(step, step)


def records_rebuilt_from_shards(_: str, machine: Machine) -> Program:
    """FSDP2 with bf16 weights rebuilds wide records; gradients are clipped by their norm, on the device."""
    from torch.distributed.fsdp import fully_shard

    width, rows, count = machine.size(6144, 16), machine.size(16384), machine.size(5, 2)
    records = machine.random(rows, width, seed=machine.rank)
    coder = place(machine, lambda: nn.Sequential(*(Mlp(width, 2) for _ in range(count))))
    for part in coder:
        fully_shard(part)
    fully_shard(coder)
    optimizer = adamw(coder.parameters(), lr=RATE)

    def step() -> Tensor:
        loss = F.mse_loss(coder(records), records)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(coder.parameters(), 1.0)
        optimizer.step()
        return loss.detach().float()

    return Program(step, step, tolerance=2e-2)


def answers_preferred(_: str, machine: Machine) -> Program:
    """A policy learns from pairs of answers beside a frozen one; margins are summed over the ranks and never read."""
    width, pairs, length = machine.size(2048, 32), machine.size(6, 1), machine.size(1024)
    answers = machine.random(2 * pairs, length, width, seed=machine.rank)
    frozen, learning = (place(machine, lambda: layers(width, 16, machine.size(5, 1))) for _ in range(2))
    policy = replicated(learning)
    frozen.requires_grad_(False)
    optimizer = adamw(policy.parameters(), lr=RATE)
    margins, on_its_way = torch.zeros((), device=machine.device), list[dist.Work]()

    def scored(model: nn.Module) -> Tensor:
        better, worse = model(answers).mean((1, 2)).float().chunk(2)
        return better - worse

    def step() -> Tensor:
        with torch.no_grad():
            before = scored(frozen)
        margin = scored(policy) - before
        loss = -F.logsigmoid(10 * margin).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if on_its_way:
            on_its_way.pop().wait()
        margins.copy_(margin.detach().mean())
        on_its_way.append(dist.all_reduce(margins, async_op=True))
        return loss.detach()

    return Program(step, step)
