"""Third set of healthy programs: two ranks whose exchange is hidden behind large products."""

from __future__ import annotations

from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training
from benchmarks.faults.program import Program
from benchmarks.faults.third_models import layers, replicated, sequences, sharded
from torch import Tensor


def ddp_training(severity: str, machine: Machine) -> Program:
    """DDP with buckets as they come, and enough work to hide them."""
    width, tokens, count = {"large": (8192, 16384, 4), "medium": (4096, 16384, 8), "small": (2048, 16384, 8)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    model = replicated(place(machine, lambda: Mlp(width, count)))
    plain = training(machine, model, adamw(model.parameters(), lr=1e-4))
    batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)

    def step() -> Tensor:
        return plain(batch, target).float()

    return Program(step, step)


def fsdp_training(severity: str, machine: Machine) -> Program:
    """FSDP2 with one group a transformer layer and its usual prefetching."""
    width, heads, batch, length, count = {
        "large": (4096, 32, 8, 1024, 4), "medium": (2048, 16, 16, 1024, 6), "small": (1024, 16, 40, 1024, 4)
    }[severity]  # fmt: skip
    width, batch, length = machine.size(width, 64), machine.size(batch, 2), machine.size(length)
    model = place(machine, lambda: layers(width, heads, count))
    sharded(model, model)
    plain = training(machine, model, adamw(model.parameters(), lr=1e-4))
    inputs = sequences(machine, batch, length, width)
    target = machine.random(batch, length, width, seed=9)

    def step() -> Tensor:
        return plain(inputs, target).float()

    return Program(step, step)
