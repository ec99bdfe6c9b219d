"""Python works where it could have worked once, or in C: between steps, between layers, in the garbage collector."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training
from benchmarks.faults.program import Program, Step
from torch import Tensor

WIDTH, TOKENS, LAYERS = 4096, 4096, 5


def metrics_in_python(severity: str, machine: Machine) -> Program:
    """A text metric is counted in Python loops at every step; fixed, NumPy counts it."""
    count = machine.size({"high": 300_000, "low": 130_000, "harmless": 10_000}[severity], 100)
    values = np.random.default_rng(0).integers(0, 500, count)
    listed = values.tolist()

    def loop() -> float:
        seen = [0] * 500
        for value in listed:
            seen[value] += 1
        return float(sum(number * number for number in seen))

    def vectorised() -> float:
        seen = np.bincount(values, minlength=500)
        return float((seen * seen).sum())

    def step_with(metric: Callable[[], float]) -> Step:
        width, tokens = machine.size(WIDTH), machine.size(TOKENS)
        model = place(machine, lambda: Mlp(width, LAYERS))
        plain = training(machine, model, adamw(model.parameters()))
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            return plain(batch, target).float() + metric() / count

        return step

    return Program(step_with(loop), step_with(vectorised))


def python_in_every_layer(severity: str, machine: Machine) -> Program:
    """Every layer parses its settings anew before it launches; fixed, they are parsed once."""
    width, tokens, layers, entries = {
        "high": (2048, 4096, 16, 500), "low": (2048, 4096, 16, 150), "harmless": (4096, 8192, 6, 500)
    }[severity]  # fmt: skip
    width, tokens, entries = machine.size(width), machine.size(tokens), machine.size(entries, 10)
    text = json.dumps({f"layer.{number}.scale": 1.0 + number % 2 for number in range(entries)})

    def parse(number: int) -> float:
        settings = {name: float(value) for name, value in json.loads(text).items()}
        return sorted(settings.items())[number][1]

    def step_with(scale: Callable[[int], float]) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for number, layer in enumerate(model.layers):
                hidden = F.relu(layer(hidden)) * scale(number % entries)
            return hidden.float().mean()

        return step

    once = [parse(number % entries) for number in range(layers)]
    return Program(step_with(parse), step_with(lambda number: once[number]))


def collected_each_step(severity: str, machine: Machine) -> Program:
    """gc.collect() runs at every step over a large heap; fixed, the collector is left alone."""
    records = machine.size({"high": 80_000, "low": 40_000, "harmless": 500}[severity], 100)
    width, tokens = machine.size(WIDTH), machine.size(TOKENS)
    gc.collect()
    gc.freeze()  # what the process held before is no part of this program's heap
    heap = [{"id": number, "tokens": [number, number + 1]} for number in range(records)]

    def step_with(collect: bool) -> Step:
        model = place(machine, lambda: Mlp(width, LAYERS))
        plain = training(machine, model, adamw(model.parameters()))
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            if collect:
                gc.collect()
            return plain(batch, target).float()

        return step

    return Program(step_with(collect=True), step_with(collect=False), close=heap.clear)
