"""A pipeline of as many stages as ranks: all micro-batches forward, then all backward (GPipe)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from benchmarks.ranks.world import World
from torch import Tensor

LAYERS = 6


def pipelined(world: World, micro_batches: int) -> Callable[[], Tensor]:
    """A training step; the receipt is the loss, known on the last stage and 0 elsewhere."""
    width, tokens = world.pick(4096), world.pick(16384) // micro_batches
    stage = world.stack(LAYERS, width, seed=5 + world.rank)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3, foreach=True)
    parts = [part.contiguous() for part in world.random(tokens * micro_batches, width, seed=9).split(tokens)]

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        held: list[tuple[Tensor, Tensor]] = []
        sent: list[tuple[dist.Work, Tensor]] = []
        for number in range(micro_batches):
            x = parts[number] if world.rank == 0 else received(world, parts[number], world.rank - 1)
            x.requires_grad_(world.rank > 0)
            with world.phase(f"stage {world.rank} forward"):
                y = stage(x)
            held.append((x, y))
            if not world.last:
                sent.append(sending(y.detach(), world.rank + 1))
        total = torch.zeros((), device=world.device)
        for x, y in reversed(held):
            if world.last:
                with world.phase(f"stage {world.rank} backward"):
                    loss = y.float().square().mean() / micro_batches
                    loss.backward()
                total += loss.detach()
            else:
                gradient = received(world, y.detach(), world.rank + 1)
                with world.phase(f"stage {world.rank} backward"):
                    y.backward(gradient)
            if world.rank > 0:
                sent.append(sending(x.grad, world.rank - 1))
        for work, _ in sent:
            work.wait()
        optimizer.step()
        return total

    return step


def received(world: World, like: Tensor, source: int) -> Tensor:
    """The next tensor of that shape from a neighbour."""
    with world.phase("receive"):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, source).wait()
        return tensor


def sending(tensor: Tensor, target: int) -> tuple[dist.Work, Tensor]:
    """The tensor on its way to a neighbour; it must be kept until it has arrived."""
    kept = tensor.contiguous()
    return dist.isend(kept, target), kept
