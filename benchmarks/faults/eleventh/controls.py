"""Healthy programs of the eleventh set: what looks like a fault of the others, and is none."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.eleventh.answers import Decoder
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, update
from benchmarks.faults.program import Program
from torch import Tensor, nn

RATE = 1e-5


def critics_held_smooth(_: str, machine: Machine) -> Program:
    """Nothing is planted: a critic's gradient is held near one, so that its backward pass has a backward pass."""
    width, rows = machine.size(4096, 16), machine.size(8192)
    batch = machine.random(rows, width).requires_grad_()
    model = place(
        machine,
        lambda: nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(width, width), nn.LeakyReLU(0.2)))),
    )
    optimizer = adamw(model.parameters(), lr=RATE)

    def step() -> Tensor:
        score = model(batch)
        (slope,) = torch.autograd.grad(score.sum(), batch, create_graph=True)
        return update(machine, score.mean() + (slope.norm(dim=-1) - 1).square().mean(), optimizer).float()

    return Program(step, step)


def corpus_searched(_: str, machine: Machine) -> Program:
    """Nothing is planted: the best score of each query over a corpus, in bf16."""
    width, count = machine.size(2048, 16), machine.size(1 << 18, 64)
    corpus, asked = machine.random(count, width), machine.random(machine.size(2048, 4), width, seed=1)

    @torch.no_grad()
    def step() -> Tensor:
        return (asked @ corpus.T).amax(-1).float().mean()

    return Program(step, step)


def clouds_learned(_: str, machine: Machine) -> Program:
    """Nothing is planted: points are picked by index, and wide layers learn from them."""
    clouds, points, picked, width = (
        machine.size(8, 2),
        machine.size(2048, 16),
        machine.size(2048, 8),
        machine.size(4096, 16),
    )
    given = machine.random(clouds, points, width)
    where = machine.random(clouds, picked, dtype=torch.float32, seed=2).mul(1e4).long() % points
    model = place(
        machine, lambda: nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(width, width), nn.ReLU())))
    )
    optimizer = adamw(model.parameters(), lr=RATE)

    def step() -> Tensor:
        found = given.gather(1, where[..., None].expand(-1, -1, width))
        return update(machine, F.mse_loss(model(found), found), optimizer).float()

    return Program(step, step)


def answers_written_in_place(_: str, machine: Machine) -> Program:
    """Nothing is planted: each token of an answer is one CUDA graph over a cache that is written in place."""
    width, heads, length, tokens = (
        machine.size(4096, 16),
        machine.size(32, 2),
        machine.size(1024, 8),
        machine.size(16, 2),
    )
    batch, count = machine.size(16, 2), machine.size(8, 2)
    model = place(machine, lambda: nn.ModuleList(Decoder(width, heads) for _ in range(count)))
    start = machine.random(batch, 1, width)
    room = [machine.random(batch, heads, length, width // heads, seed=number) for number in range(2 * count)]
    given = start.clone()

    def kept(number: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        room[2 * number][:, :, -1:], room[2 * number + 1][:, :, -1:] = key, value
        return room[2 * number], room[2 * number + 1]

    @torch.no_grad()
    def token() -> Tensor:
        hidden = given
        for number, layer in enumerate(model):
            hidden = layer(hidden, lambda key, value, number=number: kept(number, key, value), None)
        given.copy_(F.normalize(hidden, dim=-1) * width**0.5)
        return hidden.float().square().mean()

    run = machine.graphed(token)

    def step() -> Tensor:
        given.copy_(start)
        for _ in range(tokens - 1):
            run()
        return run().clone()

    return Program(step, step)
