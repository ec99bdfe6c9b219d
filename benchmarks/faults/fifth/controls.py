"""Healthy jobs of two ranks: replicated, sharded, split and piped, compiled, accumulated, of mixed lengths."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.fifth.pipelines import scheduled
from benchmarks.faults.fifth.split_layers import pairs
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, training, update
from benchmarks.faults.program import Program
from benchmarks.faults.third_models import Layer, layers, replicated, sequences, sharded
from torch import Tensor, nn

RATE = 1e-4
SIZES = {"large": (4096, 32, 8, 4), "medium": (2048, 16, 16, 6)}
"""Width, heads, sequences and layers of a transformer."""


def healthy(machine: Machine, model: nn.Module, batch: int, width: int) -> Program:
    """A training step on sequences of 1024 tokens."""
    plain = training(machine, model, adamw(model.parameters(), lr=RATE))
    inputs = sequences(machine, batch, machine.size(1024), width)
    target = machine.random(*inputs.shape, seed=9)

    def step() -> Tensor:
        return plain(inputs, target).float()

    return Program(step, step)


def transformer(severity: str, machine: Machine) -> tuple[nn.Sequential, int, int]:
    """The model, and the width and number of its sequences."""
    width, heads, batch, count = SIZES[severity]
    width = machine.size(width, 64)
    return place(machine, lambda: layers(width, heads, machine.size(count, 2))), machine.size(batch, 2), width


def replicated_layers(severity: str, machine: Machine) -> Program:
    """DDP over transformer layers."""
    model, batch, width = transformer(severity, machine)
    return healthy(machine, replicated(model), batch, width)


def sharded_layers(severity: str, machine: Machine) -> Program:
    """FSDP2, one group a layer."""
    model, batch, width = transformer(severity, machine)
    return healthy(machine, sharded(model, model), batch, width)


def wrapped_layers(severity: str, machine: Machine) -> Program:
    """FSDP1, one unit a layer."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    model, batch, width = transformer(severity, machine)
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    whole = FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=machine.device)
    return healthy(machine, whole, batch, width)


def compiled_layers(severity: str, machine: Machine) -> Program:
    """DDP over compiled transformer layers."""
    model, batch, width = transformer(severity, machine)
    compiled = torch.compile(replicated(model)) if machine.cuda else replicated(model)
    return healthy(machine, compiled, batch, width)


def sharded_and_accumulated(severity: str, machine: Machine) -> Program:
    """FSDP2 over four micro-batches, gradients reduced after the last."""
    model, batch, width = transformer(severity, machine)
    sharded(model, model)
    optimizer, parts = adamw(model.parameters(), lr=RATE), 4
    inputs = [sequences(machine, batch, machine.size(1024), width) for _ in range(parts)]
    target = machine.random(*inputs[0].shape, seed=9)

    def step() -> Tensor:
        total = torch.zeros((), device=machine.device)
        for part, piece in enumerate(inputs):
            model.set_requires_gradient_sync(part == parts - 1)
            loss = F.mse_loss(model(piece), target) / parts
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total.float()

    return Program(step, step)


def mixed_lengths(severity: str, machine: Machine) -> Program:
    """DDP, whose batches are long and short in turn, on all ranks alike."""
    model, batch, width = transformer(severity, machine)
    spread = replicated(model)
    optimizer = adamw(model.parameters(), lr=RATE)
    lengths = [machine.size(length, 4 + at) for at, length in enumerate((768, 1280, 1024))]
    batches = [sequences(machine, batch, length, width) for length in lengths]
    done = [0]

    def step() -> Tensor:
        inputs = batches[done[0] % len(batches)]
        done[0] += 1
        return update(machine, F.mse_loss(spread(inputs), inputs), optimizer).float()

    return Program(step, step, period=3)


def split_products(_: str, machine: Machine) -> Program:
    """Tensor parallel of wide products, whose sums are short beside them."""
    width, tokens = machine.size(12288), machine.size(2048)
    step = pairs(machine, width, 4 * width, machine.size(2), torch.bfloat16, tokens)
    return Program(step, step)


def many_pieces_by_turns(_: str, machine: Machine) -> Program:
    """A pipeline by 1F1B with as many pieces as make its ends short."""
    width, tokens = machine.size(8192), machine.size(32768, 64)
    step = scheduled(machine, width, tokens, machine.size(2), pieces=32)
    return Program(step, step, tolerance=3e-2, slow=True)
