"""Third set on one GPU: types, layouts and loops whose fix also changes which kernels are chosen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.attention import attention_by_hand
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Convolutions, Mlp, adamw, causal_attention, place, update
from benchmarks.faults.program import Program, Step
from benchmarks.faults.third_models import Attend, layers
from torch import Tensor, nn

RATE = 1e-4


def attention_written_out_fp32(severity: str, machine: Machine) -> Program:
    """A GPT in fp32 (TF32 products) writes softmax(QKᵀ)V out; fixed, scaled_dot_product_attention, still in fp32.

    Harmless: sequences of 64.
    """
    width, heads, batch, length, count = {
        "high": (1024, 16, 4, 1024, 4), "low": (2048, 16, 8, 512, 3), "harmless": (4096, 32, 64, 64, 1)
    }[severity]  # fmt: skip
    width, batch, length = machine.size(width, 64), machine.size(batch, 2), machine.size(length)

    def step_with(attend: Attend) -> Step:
        model = place(machine, lambda: layers(width, heads, count, attend), torch.float32)
        optimizer = adamw(model.parameters(), lr=RATE)
        inputs = machine.random(batch, length, width, dtype=torch.float32)
        target = machine.random(batch, length, width, dtype=torch.float32, seed=1)

        def step() -> Tensor:
            torch.set_float32_matmul_precision("high")
            with machine.phase("forward"):
                loss = F.mse_loss(model(inputs), target)
            return update(machine, loss, optimizer)

        return step

    return Program(step_with(attention_by_hand), step_with(causal_attention), tolerance=2e-2)


def autocast(machine: Machine, enabled: bool = True) -> AbstractContextManager[object]:
    return torch.autocast(machine.device.type, torch.bfloat16, enabled=enabled)


class Wide(nn.Module):
    """`inner`, kept out of autocast: what comes in is made fp32."""

    def __init__(self, machine: Machine, inner: nn.Module) -> None:
        super().__init__()
        self.machine, self.inner = machine, inner

    def forward(self, hidden: Tensor) -> Tensor:
        with autocast(self.machine, enabled=False):
            result: Tensor = self.inner(hidden.float())
        return result


def trained_without_autocast(severity: str, machine: Machine) -> Program:
    """A transformer with fp32 weights trains in fp32 (TF32 products); fixed, under autocast in bf16.

    Low: one layer of four is kept out of autocast. Harmless: only a head of sixteen outputs is.
    """
    width, heads, batch, length, count = {
        "high": (2048, 16, 16, 512, 4), "low": (2048, 16, 16, 512, 4), "harmless": (2048, 16, 16, 512, 4)
    }[severity]  # fmt: skip
    width, batch, length = machine.size(width, 64), machine.size(batch, 2), machine.size(length)
    classes = machine.size(16)

    def model_with(wide: bool) -> nn.Module:
        parts: list[nn.Module] = [*layers(width, heads, count), nn.Linear(width, classes, bias=False)]
        if wide and severity != "high":
            at = -1 if severity == "harmless" else 1
            parts[at] = Wide(machine, parts[at])
        return nn.Sequential(*parts)

    def step_with(wide: bool) -> Step:
        model = place(machine, lambda: model_with(wide), torch.float32)
        optimizer = adamw(model.parameters(), lr=RATE)
        inputs = machine.random(batch, length, width, dtype=torch.float32)
        target = machine.random(batch, length, classes, dtype=torch.float32, seed=1)
        whole = wide and severity == "high"

        def step() -> Tensor:
            torch.set_float32_matmul_precision("high")
            with machine.phase("forward"), nullcontext() if whole else autocast(machine):
                loss = F.mse_loss(model(inputs), target)
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(wide=True), step_with(wide=False), tolerance=5e-2)


def channels_first_under_amp(severity: str, machine: Machine) -> Program:
    """A convolutional network with batch norm trains under bf16 autocast in NCHW; fixed, channels_last.

    Low: fewer, wider layers. Harmless: only an early convolution of small images is NCHW.
    """
    width, side, batch, count = {"high": (128, 56, 64, 8), "low": (512, 28, 64, 4), "harmless": (512, 28, 128, 4)}[
        severity
    ]
    width, side, batch = machine.size(width), machine.size(side), machine.size(batch, 2)

    def step_with(layout: torch.memory_format) -> Step:
        rest = torch.channels_last if severity == "harmless" else layout
        early = place(machine, lambda: Convolutions(machine.size(16), 1), torch.float32).to(memory_format=layout)
        model = place(machine, lambda: Convolutions(width, count, norm=True), torch.float32).to(memory_format=rest)
        optimizer = adamw(model.parameters(), lr=RATE)
        small = machine.random(8, machine.size(16), 32, 32, dtype=torch.float32).to(memory_format=layout)
        images = machine.random(batch, width, side, side, dtype=torch.bfloat16).to(memory_format=rest)

        def step() -> Tensor:
            with autocast(machine):
                with torch.no_grad():
                    offset = early(small).mean()
                with machine.phase("forward"):
                    loss = (model(images)[:, :, ::4, ::4].float() - 1 + offset.detach()).square().mean()
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(torch.contiguous_format), step_with(torch.channels_last), tolerance=5e-2)


def experts_sliced_in_turn(severity: str, machine: Machine) -> Program:
    """Each expert's tokens are sliced out, multiplied and written back in turn; fixed, one batched product.

    Harmless: four experts with many tokens each.
    """
    experts, tokens, width, count = {
        "high": (16, 1024, 2048, 4), "low": (8, 2048, 2048, 4), "harmless": (4, 4096, 4096, 2)
    }[severity]  # fmt: skip
    experts, tokens, width = machine.size(experts, 4), machine.size(tokens), machine.size(width)

    def in_turn(hidden: Tensor, up: Tensor, down: Tensor) -> Tensor:
        result = torch.empty_like(hidden)
        for expert in range(experts):
            result[:, expert] = torch.relu_(hidden[:, expert] @ up[expert]) @ down[expert]
        return result

    def batched(hidden: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return torch.bmm(torch.relu_(torch.bmm(hidden.transpose(0, 1), up)), down).transpose(0, 1)

    def step_with(multiply: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Step:
        dense = place(machine, lambda: Mlp(width, count))
        pairs = [
            [machine.random(experts, width, width, seed=10 * layer + half) / width**0.5 for half in range(2)]
            for layer in range(count)
        ]
        batch = machine.random(tokens, experts, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for layer, (up, down) in zip(dense.layers, pairs, strict=True):
                hidden = multiply(torch.relu_(layer(hidden)), up, down)
            return hidden[:512].float().square().mean()

        return step

    return Program(step_with(in_turn), step_with(batched), tolerance=2e-2)
