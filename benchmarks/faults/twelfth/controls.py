"""Healthy programs of the twelfth set: what looks like a fault of the others, and is none."""

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, update
from benchmarks.faults.ninth.sequences import causal, layers, regression
from benchmarks.faults.program import Program
from torch import Tensor, nn

RATE = 1e-5


def points_told_to_centers(_: str, machine: Machine) -> Program:
    """Nothing is planted: the nearest of many centers of each point, by one product."""
    points, centers, width = machine.size(16384, 16), machine.size(8192, 8), machine.size(8192, 8)
    given, known = machine.random(points, width), machine.random(centers, width, seed=1)
    half = known.float().square().sum(-1).div(-2).to(torch.bfloat16)

    @torch.no_grad()
    def step() -> Tensor:
        near, which = torch.addmm(half, given, known.T).max(-1)
        return near.float().mean() + 0 * which.amax()

    return Program(step, step)


def sessions_learned(_: str, machine: Machine) -> Program:
    """Nothing is planted: sessions of a shop, each item of which attends to those before it."""
    sessions = machine.random(machine.size(16, 2), machine.size(1024, 8), machine.size(2048, 64))
    step = regression(machine, layers(machine, machine.size(4, 2), sessions.shape[-1], causal), sessions)
    return Program(step, step)


def weather_rolled_out(_: str, machine: Machine) -> Program:
    """Nothing is planted: a large network goes from one hour to the next, and its last answer is used."""
    width, cells, hours = machine.size(4096, 16), machine.size(16384), machine.size(6, 2)
    start, model = machine.random(cells, width), place(machine, lambda: Mlp(width, machine.size(3, 2)))

    @torch.no_grad()
    def step() -> Tensor:
        state = start
        for _ in range(hours):
            state = model(state)
        return state.float().square().mean()

    return Program(step, step)


def experts_in_one_product(_: str, machine: Machine) -> Program:
    """Nothing is planted: all experts of a layer multiply their tokens in one batched product."""
    experts, tokens, width = machine.size(4, 2), machine.size(8192), machine.size(4096, 8)
    given = machine.random(experts, tokens, width)
    weights = [nn.Parameter(machine.random(experts, width, width, seed=seed) / width**0.5) for seed in range(1, 5)]
    optimizer = adamw(weights, lr=RATE)

    def step() -> Tensor:
        hidden = given
        for weight in weights:
            hidden = F.relu(torch.bmm(hidden, weight))
        return update(machine, F.mse_loss(hidden, given), optimizer).float()

    return Program(step, step)
