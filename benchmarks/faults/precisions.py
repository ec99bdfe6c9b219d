"""Matrix products and losses in a wider type than the result needs."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training, update
from benchmarks.faults.program import Program, Step
from torch import Tensor


def fp32_training(severity: str, machine: Machine) -> Program:
    """The model trains in fp32 (TF32 products allowed); fixed, in bf16. Harmless: only a narrow gate is fp32."""
    width, tokens, layers = {"high": (4096, 4096, 4), "low": (2048, 4096, 4), "harmless": (4096, 8192, 6)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    wide = 0 if severity == "harmless" else (layers if severity == "high" else 2)

    def step_with(dtype: torch.dtype) -> Step:
        first = place(machine, lambda: Mlp(width, wide), dtype)
        rest = place(machine, lambda: Mlp(width, layers - wide))
        gate = machine.random(width, machine.size(16), seed=2).to(dtype).requires_grad_(True)
        optimizer = adamw([*first.parameters(), *rest.parameters(), gate])
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            torch.set_float32_matmul_precision("high")
            with machine.phase("forward"):
                hidden = rest(first(batch.to(dtype)).to(batch.dtype))
                weight = (hidden[:1024].to(dtype) @ gate).softmax(-1).mean().float()
                loss = F.mse_loss(hidden, target).float() * (1 + weight)
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(torch.float32), step_with(torch.bfloat16), tolerance=5e-2)


def tf32_off(severity: str, machine: Machine) -> Program:
    """fp32 products run without TF32 ("highest"); fixed, with it ("high"). Harmless: only a small head is fp32."""
    width, tokens, layers = {"high": (2048, 4096, 4), "low": (2048, 4096, 1), "harmless": (2048, 64, 1)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)

    def step_with(precision: str) -> Step:
        trunk = place(machine, lambda: Mlp(width * 2, 0 if severity == "high" else 8))
        model = place(machine, lambda: Mlp(width, layers), torch.float32)
        inputs = machine.random(machine.size(8192), width * 2)
        plain = training(machine, model, adamw(model.parameters()))
        target = machine.random(tokens, width, dtype=torch.float32, seed=1)

        def step() -> Tensor:
            torch.set_float32_matmul_precision(precision)
            with torch.no_grad():
                hidden = trunk(inputs)
            return plain(hidden[:tokens, :width].float(), target)

        return step

    return Program(step_with("highest"), step_with("high"), tolerance=2e-2)


def float64_leak(severity: str, machine: Machine) -> Program:
    """A float64 constant from NumPy makes the loss double precision; fixed, the constant is fp32."""
    width, tokens, layers, loss_width = {
        "high": (2048, 16384, 2, 8192), "low": (4096, 8192, 4, 4096), "harmless": (4096, 8192, 4, 16)
    }[severity]  # fmt: skip
    width, tokens, loss_width = machine.size(width), machine.size(tokens), machine.size(loss_width)

    def step_with(dtype: torch.dtype) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        head = machine.random(width, loss_width, seed=2) * 0.02
        optimizer = adamw(model.parameters())
        batch = machine.random(tokens, width)
        mean = torch.full((loss_width,), 0.25, dtype=dtype, device=machine.device)

        def step() -> Tensor:
            with machine.phase("forward"):
                error = model(batch) @ head - mean
                loss = torch.tanh(error * 0.5).square().mean()
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(torch.float64), step_with(torch.float32), tolerance=2e-2)
