"""Many small kernels launched one by one: the host cannot keep up with the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import REPLAY_WARMUPS, Machine
from benchmarks.faults.models import Mlp, place
from benchmarks.faults.program import Program, Step
from torch import Tensor


def eager_decode(severity: str, machine: Machine) -> Program:
    """Tokens are decoded one small kernel at a time; fixed, the token's work is one CUDA graph."""
    width, batch, layers = {"high": (1024, 8, 24), "low": (4096, 16, 16), "harmless": (8192, 512, 8)}[severity]
    width, batch = machine.size(width), machine.size(batch)

    def step_with(graph: bool) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        state = machine.random(batch, width)

        @torch.no_grad()
        def token() -> Tensor:
            state.copy_(F.normalize(model(state), dim=-1))
            return state

        with torch.no_grad():
            decode = machine.graphed(token) if graph else token
        if not graph:
            for _ in range(REPLAY_WARMUPS):
                token()

        def step() -> Tensor:
            for _ in range(4):
                last = decode()
            return last.float().abs().mean()

        return step

    return Program(step_with(graph=False), step_with(graph=True), tolerance=2e-2)


def loop_over_experts(severity: str, machine: Machine) -> Program:
    """Thirty-two experts are multiplied one after the other in a Python loop; fixed, one batched product."""
    width, tokens, layers = {"high": (512, 64, 4), "low": (1024, 512, 4), "harmless": (4096, 2048, 1)}[severity]
    width, tokens, experts = machine.size(width), machine.size(tokens), machine.size(32, 4)

    def one_by_one(hidden: Tensor, weight: Tensor) -> Tensor:
        return torch.stack([hidden[number] @ weight[number] for number in range(experts)])

    def step_with(multiply: Callable[[Tensor, Tensor], Tensor]) -> Step:
        weights = [machine.random(experts, width, width, seed=layer) / width**0.5 for layer in range(layers)]
        batch = machine.random(experts, tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for weight in weights:
                hidden = F.relu(multiply(hidden, weight))
            return hidden.float().mean()

        return step

    return Program(step_with(one_by_one), step_with(torch.bmm), tolerance=2e-2)


def small_training_step(severity: str, machine: Machine) -> Program:
    """A small model's forward, backward and update are launched kernel by kernel; fixed, the step is one CUDA graph."""
    width, tokens, layers = {"high": (512, 256, 8), "low": (1024, 2048, 8), "harmless": (4096, 8192, 4)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)

    def step_with(graph: bool) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=machine.cuda)
        batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def work() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            with machine.phase("forward"):
                loss = F.mse_loss(model(batch), target)
            with machine.phase("backward"):
                loss.backward()
            with machine.phase("optimizer"):
                optimizer.step()
            return loss.detach()

        for _ in range(0 if graph else REPLAY_WARMUPS):
            work()
        run = machine.graphed(work) if graph else work
        return lambda: run().float().clone()

    return Program(step_with(graph=False), step_with(graph=True), tolerance=1e-2)
