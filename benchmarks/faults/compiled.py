"""Compiled code that falls apart into pieces, or is compiled again while the program runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module

import torch
from benchmarks.faults.machine import Machine
from benchmarks.faults.program import Program, Step
from torch import Tensor

PIECES = 5


def broken_in_pieces(severity: str, machine: Machine) -> Program:
    """A compiled chain breaks its graph after every stage; fixed, it is one graph. Harmless: one break."""
    rows = machine.size({"high": 256, "low": 8192, "harmless": 64}[severity])
    width = machine.size(4096)
    trunk = machine.random(width, width, seed=5) / width**0.5
    large = machine.random(machine.size(8192), width, seed=6)
    breaks = 1 if severity == "harmless" else PIECES

    def stage(hidden: Tensor, number: int) -> Tensor:
        return hidden * torch.sigmoid(1.1 * hidden) + torch.cos(hidden + number) * 0.1

    def chain(hidden: Tensor) -> Tensor:
        for number in range(PIECES):
            hidden = stage(hidden, number)
        return hidden

    def broken(hidden: Tensor) -> Tensor:
        for number in range(PIECES):
            hidden = stage(hidden, number)
            if number < breaks:
                torch._dynamo.graph_break()
        return hidden

    def step_with(work: Callable[[Tensor], Tensor]) -> Step:
        torch._dynamo.config.recompile_limit = 64
        compiled = torch.compile(work, dynamic=False)
        batch = machine.random(rows, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for _ in range(4):
                hidden = compiled(hidden)
            total = hidden.float().mean()
            if severity == "harmless":
                for _ in range(6):
                    total = total + (large @ trunk)[0].float().mean()
            return total

        return step

    return Program(step_with(broken), step_with(chain), tolerance=5e-2)


def compiled_again(severity: str, machine: Machine) -> Program:
    """A compiled function takes a new length at every (high) or every third (low) step and is compiled again for it.

    Fixed, the length is marked dynamic. Harmless: two lengths, both met before.
    """
    every = {"high": 1, "low": 3, "harmless": 0}[severity]
    width, layers = machine.size(4096), 4
    longest = machine.size(8192, 400)
    weight = machine.random(width, width, seed=5) / width**0.5
    source = machine.random(longest, width)
    inductor = import_module("torch._inductor.utils")
    fresh = getattr(inductor, "fresh_cache", None) or inductor.fresh_inductor_cache
    stack = ExitStack()
    stack.enter_context(torch._dynamo.config.patch(recompile_limit=10_000, accumulated_recompile_limit=100_000))
    stack.enter_context(fresh())  # nothing compiled in an earlier process may help

    def act(hidden: Tensor) -> Tensor:
        return hidden * torch.sigmoid(1.702 * hidden) + 0.1 * torch.cos(hidden)

    def step_with(dynamic: bool) -> Step:
        compiled = torch.compile(act, dynamic=dynamic)
        count = [0]

        def length() -> int:
            count[0] += 1
            if every and count[0] % every == 0:
                return longest - count[0]
            return longest - longest // 8 * (count[0] % 2)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = source[: length()]
            for _ in range(layers):
                hidden = compiled(hidden @ weight)
            return hidden[0].float().mean()

        return step

    return Program(
        step_with(False), step_with(True), tolerance=5e-2, period=max(every, 1), slow=every > 0, close=stack.close
    )
