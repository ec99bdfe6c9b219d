"""Second set: the host asks the device in a loop, or works in Python between its launches."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Convolutions, Mlp, adamw, place, training
from benchmarks.faults.program import Program, Step
from benchmarks.faults.second_models import Encoder, Shape, tokens_of
from torch import Tensor

BATCHES = 6
"""Batches that one evaluation step goes through."""
CLASSES = 10


def predictions_in_numpy(severity: str, machine: Machine) -> Program:
    """Each batch's predictions go to NumPy to count the right ones; fixed, the device counts. Harmless: one batch."""
    shape, batches = {
        "high": (Shape(2048, 16, 32, 64, 1), BATCHES),
        "low": (Shape(2048, 16, 64, 64, 2), BATCHES),
        "harmless": (Shape(4096, 32, 64, 128, 3), 1),
    }[severity]
    shape = shape.on(machine)
    head = machine.random(shape.width, CLASSES, seed=95) / shape.width**0.5
    images = [tokens_of(machine, shape, seed=number) for number in range(batches)]
    labels = [torch.arange(shape.batch) * (number + 1) % CLASSES for number in range(batches)]
    resident = [label.to(machine.device) for label in labels]

    def step_with(in_numpy: bool) -> Step:
        encoder = Encoder(machine, shape)

        @torch.no_grad()
        def step() -> Tensor:
            right = torch.zeros((), dtype=torch.int64, device=machine.device)
            counted = 0
            for number in range(batches):
                logits = encoder(images[number])[:: shape.length] @ head  # the first token stands for the image
                predicted = logits.argmax(-1)
                if in_numpy:
                    counted += int((predicted.cpu().numpy() == labels[number].numpy()).sum())
                else:
                    right += (predicted == resident[number]).sum()
            return logits.float().square().mean() + right + counted

        return step

    return Program(step_with(in_numpy=True), step_with(in_numpy=False))


def timestep_looked_up(severity: str, machine: Machine) -> Program:
    """A diffusion sampler finds its place in the schedule by nonzero().item() each time; fixed, it counts its steps."""
    width, side, batch, layers, samples = {
        "high": (256, 28, 64, 3, 8), "low": (512, 28, 64, 2, 6), "harmless": (512, 28, 512, 4, 2)
    }[severity]  # fmt: skip
    width, side, batch = machine.size(width), machine.size(side), machine.size(batch, 2)
    timesteps = torch.arange(samples, 0, -1, device=machine.device) * 50
    weights = torch.linspace(0.05, 0.2, samples, device=machine.device, dtype=torch.bfloat16)
    start = machine.random(batch, width, side, side).to(memory_format=torch.channels_last)

    def looked_up(number: int) -> int:
        return int((timesteps == timesteps[number]).nonzero().item())

    def counted(number: int) -> int:
        return number

    def step_with(index: Callable[[int], int]) -> Step:
        model = place(machine, lambda: Convolutions(width, layers)).to(memory_format=torch.channels_last)

        @torch.no_grad()
        def step() -> Tensor:
            image = start
            for number in range(samples):
                weight = weights[index(number)]
                denoised = image
                for layer in model.layers:
                    denoised = F.relu_(layer(denoised))
                image = torch.lerp(image, denoised, weight)
            return image[0].float().square().mean()

        return step

    return Program(step_with(looked_up), step_with(counted))


GAMMA, LAMBDA, HORIZON = 0.99, 0.95, 128


def advantages_in_loops(rewards: list[list[float]], values: list[list[float]]) -> np.ndarray:
    """Generalised advantages, environment by environment, from the last time step to the first."""
    rows = []
    for reward, value in zip(rewards, values, strict=True):
        row, advantage = [0.0] * len(reward), 0.0
        for time in reversed(range(len(reward))):
            delta = reward[time] + GAMMA * value[time + 1] - value[time]
            advantage = delta + GAMMA * LAMBDA * advantage
            row[time] = advantage
        rows.append(row)
    return np.array(rows, dtype=np.float32)


def advantages_in_numpy(rewards: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The same for all environments at once."""
    deltas = rewards + GAMMA * values[:, 1:] - values[:, :-1]
    found, advantage = np.empty_like(deltas), np.zeros(len(deltas))
    for time in reversed(range(deltas.shape[1])):
        advantage = deltas[:, time] + GAMMA * LAMBDA * advantage
        found[:, time] = advantage
    return found.astype(np.float32)


def advantages_in_python(severity: str, machine: Machine) -> Program:
    """Advantages of a rollout in host memory are computed in nested Python loops; fixed, NumPy goes over time only."""
    environments = machine.size({"high": 900, "low": 400, "harmless": 40}[severity], 4)
    horizon, width, tokens = machine.size(HORIZON), machine.size(4096), machine.size(4096)
    random = np.random.default_rng(0)
    rewards = random.random((4, environments, horizon))
    values = random.random((4, environments, horizon + 1))
    listed = [(reward.tolist(), value.tolist()) for reward, value in zip(rewards, values, strict=True)]

    def step_with(compute: Callable[[int], np.ndarray]) -> Step:
        model = place(machine, lambda: Mlp(width, 5))
        plain = training(machine, model, adamw(model.parameters()))
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)
        # One pinned buffer per rollout: a later step writes the same numbers into the same place.
        sent = [machine.pinned(torch.empty(environments, horizon)) for _ in range(4)]
        count = [0]

        def step() -> Tensor:
            turn = count[0] % 4
            count[0] += 1
            sent[turn].numpy()[:] = compute(turn)
            advantages = sent[turn].to(machine.device, non_blocking=True)
            return plain(batch, target).float() + advantages.mean()

        return step

    return Program(
        step_with(lambda turn: advantages_in_loops(*listed[turn])),
        step_with(lambda turn: advantages_in_numpy(rewards[turn], values[turn])),
    )


def collected_per_microbatch(severity: str, machine: Machine) -> Program:
    """gc.collect() runs after every microbatch over a large vocabulary; fixed, the collector is left alone."""
    entries = machine.size({"high": 40_000, "low": 22_000, "harmless": 500}[severity], 100)
    width, tokens, microbatches = machine.size(4096), machine.size(4096), 4
    gc.collect()
    gc.freeze()  # what the process held before is no part of this program's heap
    vocabulary = {number: [number, [number + 1]] for number in range(entries)}

    def step_with(collect: bool) -> Step:
        model = place(machine, lambda: Mlp(width, 4))
        optimizer = adamw(model.parameters())
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            total = torch.zeros((), device=machine.device)
            for _ in range(microbatches):
                with machine.phase("forward"):
                    loss = F.mse_loss(model(batch), target)
                with machine.phase("backward"):
                    loss.backward()
                total += loss.detach()
                if collect:
                    gc.collect()
            with machine.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            return total

        return step

    return Program(step_with(collect=True), step_with(collect=False), close=vocabulary.clear)
