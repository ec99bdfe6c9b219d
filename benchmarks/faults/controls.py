"""Healthy programs: nothing is planted, and the time goes to kernels near their ceiling. Fault and fix are one step."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.loading import WORKERS, endless, loader, trained_on
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Block, Convolutions, Mlp, adamw, causal_attention, place, training, update
from benchmarks.faults.program import Program
from torch import Tensor, nn


def compiled_gpt_training(severity: str, machine: Machine) -> Program:
    """A GPT trains in bf16 with compiled blocks, flash attention and fused AdamW."""
    width, heads, batch, length, layers = {
        "large": (2048, 16, 8, 1024, 2), "medium": (1536, 12, 8, 1024, 2), "small": (1024, 8, 16, 1024, 2)
    }[severity]  # fmt: skip
    width, batch, length = machine.size(width, 48), machine.size(batch, 2), machine.size(length)
    blocks = place(machine, lambda: nn.ModuleList(Block(width, heads) for _ in range(layers)))
    for block in blocks:
        block.compile(dynamic=False)
    optimizer = adamw(blocks.parameters())
    inputs = machine.random(batch, length, width)

    def step() -> Tensor:
        with machine.phase("forward"):
            hidden = inputs
            for block in blocks:
                hidden = block(hidden)
            loss = hidden.float().square().mean()
        return update(machine, loss, optimizer)

    return Program(step, step)


def large_products(severity: str, machine: Machine) -> Program:
    """Inference of large bf16 matrix products, each followed by one in-place ReLU."""
    width, tokens, layers = {"large": (8192, 16384, 2), "medium": (8192, 8192, 3), "small": (4096, 16384, 6)}[severity]
    model = place(machine, lambda: Mlp(machine.size(width), layers))
    batch = machine.random(machine.size(tokens), machine.size(width))

    @torch.no_grad()
    def step() -> Tensor:
        hidden = batch
        for layer in model.layers:
            hidden = layer(hidden).relu_()
        return hidden[0].float().mean()

    return Program(step, step)


def large_mlp_training(severity: str, machine: Machine) -> Program:
    """A wide network trains in bf16 with fused AdamW: nine tenths of the step are matrix products."""
    width, tokens, layers = {"large": (8192, 16384, 1), "medium": (8192, 8192, 2), "small": (8192, 8192, 1)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    model = place(machine, lambda: Mlp(width, layers))
    plain = training(machine, model, adamw(model.parameters()))
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

    def step() -> Tensor:
        return plain(batch, target).float()

    return Program(step, step)


def graph_decode(severity: str, machine: Machine) -> Program:
    """Tokens are decoded by a replayed CUDA graph: every kernel streams weights at the speed of memory."""
    width, batch, layers = {"large": (16384, 16, 4), "medium": (8192, 16, 12), "small": (8192, 32, 8)}[severity]
    width, batch = machine.size(width), machine.size(batch)
    model = place(machine, lambda: Mlp(width, layers))
    state = machine.random(batch, width)

    @torch.no_grad()
    def token() -> Tensor:
        state.copy_(F.normalize(model(state), dim=-1))
        return state

    with torch.no_grad():
        decode = machine.graphed(token)

    def step() -> Tensor:
        for _ in range(4):
            last = decode()
        return last[0].float().abs().mean()

    return Program(step, step)


def convolutions_channels_last(severity: str, machine: Machine) -> Program:
    """A convolutional network in bf16 and channels_last infers, ReLU in place."""
    width, side, batch, layers = {"large": (512, 28, 256, 5), "medium": (512, 28, 128, 6), "small": (256, 56, 128, 6)}[
        severity
    ]
    width, side, batch = machine.size(width), machine.size(side), machine.size(batch, 2)
    model = place(machine, lambda: Convolutions(width, layers)).to(memory_format=torch.channels_last)
    images = machine.random(batch, width, side, side).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        hidden = images
        for layer in model.layers:
            hidden = layer(hidden).relu_()
        return hidden[0].float().mean()

    return Program(step, step)


def loader_keeping_up(severity: str, machine: Machine) -> Program:
    """Eight workers decode faster than the device trains, into pinned memory, sent without blocking."""
    passes = machine.size({"large": 6, "medium": 3, "small": 1}[severity], 1)
    step = trained_on(machine, endless(loader(machine, passes, WORKERS if machine.cuda else 1)))
    return Program(step, step, settle=4 if not machine.tiny else 1)


def one_pass_elementwise(severity: str, machine: Machine) -> Program:
    """Sums of large arrays, one kernel each, at the speed of memory: slow because large, not because wrong."""
    millions = {"large": 1024, "medium": 512, "small": 256}[severity]
    count = machine.size(millions << 20)
    left, right = machine.random(count), machine.random(count, seed=1)
    out = torch.empty_like(left)

    def step() -> Tensor:
        for _ in range(3):
            torch.add(left, right, out=out)
        return out[:1].float()

    return Program(step, step)


def flash_prefill(severity: str, machine: Machine) -> Program:
    """Prefill of a long prompt: projections and flash attention in bf16."""
    width, heads, length, layers = {
        "large": (4096, 32, 16384, 2),
        "medium": (4096, 32, 8192, 3),
        "small": (2048, 16, 16384, 4),
    }[severity]
    width, length = machine.size(width, 64), machine.size(length)
    weights = [machine.random(width, 3 * width, seed=layer) / width**0.5 for layer in range(layers)]
    prompt = machine.random(1, length, width)

    @torch.no_grad()
    def step() -> Tensor:
        hidden = prompt
        for weight in weights:
            parts = (hidden @ weight).view(1, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            hidden = causal_attention(*parts.unbind(0)).transpose(1, 2).reshape(1, length, width)
        return hidden[0, 0].float().mean()

    return Program(step, step)
