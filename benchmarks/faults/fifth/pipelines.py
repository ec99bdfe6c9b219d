"""Two stages of a pipeline: how batches are cut, and in which order the pieces pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.fourth.loops import Narrow
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, place
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn

RATE = 1e-3


class Passed:
    """What goes to the other stage, and what comes from it."""

    def __init__(self, machine: Machine) -> None:
        self.other = 1 - machine.rank
        self.under_way: list[tuple[dist.Work | None, Tensor]] = []

    def send(self, tensor: Tensor) -> None:
        kept = tensor.contiguous()
        self.under_way.append((dist.isend(kept, self.other), kept))

    def received(self, like: Tensor) -> Tensor:
        got = torch.empty_like(like)
        dist.recv(got, self.other)
        return got

    def settle(self) -> None:
        for work, _ in self.under_way:
            if work:
                work.wait()
        self.under_way.clear()


def all_forward_first(machine: Machine, stage: nn.Module, batch: Tensor, target: Tensor, pieces: int) -> Step:
    """A step of GPipe: every piece forward, then every piece backward; a hand-written pipeline of send and receive."""
    optimizer = torch.optim.SGD(stage.parameters(), lr=RATE, foreach=True)
    inputs, targets = batch.chunk(pieces), target.chunk(pieces)

    def step() -> Tensor:
        passed, held = Passed(machine), list[tuple[Tensor, Tensor]]()
        total = torch.zeros((), device=machine.device)
        for piece in inputs:
            came = piece if machine.rank == 0 else passed.received(piece).requires_grad_()
            out = stage(came)
            held.append((came, out))
            if machine.rank == 0:
                passed.send(out.detach())
        for number, (came, out) in reversed([*enumerate(held)]):
            if machine.rank == 0:
                out.backward(passed.received(out.detach()))
                continue
            loss = F.mse_loss(out, targets[number]) / pieces
            loss.backward()
            total += loss.detach()
            passed.send(came.grad if came.grad is not None else came)
        passed.settle()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


def batches_one_at_a_time(_: str, machine: Machine) -> Program:
    """A batch passes the stages whole, so one of them always waits; fixed, in four pieces."""
    width, tokens, count = machine.size(4096), machine.size(16384), machine.size(6, 2)
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=9)

    def step_with(pieces: int) -> Step:
        stage = place(machine, lambda: Mlp(width, count))
        return all_forward_first(machine, stage, batch, target, pieces)

    return Program(step_with(1), step_with(4), tolerance=3e-2)


def pieces_that_cost_more(_: str, machine: Machine) -> Program:
    """A batch of small kernels passes the stages whole; fixed, in six pieces, which takes longer."""
    width, tokens, count = machine.size(1024), machine.size(1536, 12), machine.size(24, 2)
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=9)

    def step_with(pieces: int) -> Step:
        stage = place(machine, lambda: Narrow(width, count))
        return all_forward_first(machine, stage, batch, target, pieces)

    return Program(step_with(1), step_with(6), tolerance=3e-2)


def scheduled(machine: Machine, width: int, tokens: int, count: int, pieces: int, parts: int = 1) -> Step:
    """A step of torch's own schedules: 1F1B, or interleaved where a rank holds several parts of the model."""
    models = [place(machine, lambda: Mlp(width, count)) for _ in range(parts)]
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=9)
    return driven(machine, models, batch, target, pieces, RATE)


def driven(
    machine: Machine, models: Sequence[nn.Module], batch: Tensor, target: Tensor, pieces: int, rate: float
) -> Step:
    """The same of any parts of a model, in their order over all ranks."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleInterleaved1F1B

    optimizer = torch.optim.SGD([one for model in models for one in model.parameters()], lr=rate, foreach=True)
    stages = [
        PipelineStage(model, machine.rank + machine.ranks * number, machine.ranks * len(models), machine.device)
        for number, model in enumerate(models)
    ]
    plan = (
        Schedule1F1B(stages[0], pieces, loss_fn=F.mse_loss)
        if len(models) == 1
        else ScheduleInterleaved1F1B(stages, pieces, loss_fn=F.mse_loss)
    )
    none = torch.zeros((), device=machine.device)

    def step() -> Tensor:
        losses: list[Tensor] = []
        inputs = (batch,) if machine.rank == 0 else ()
        wanted = {"target": target, "losses": losses} if machine.rank == machine.ranks - 1 else {}
        plan.step(*inputs, **wanted)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return torch.stack([loss.detach() for loss in losses]).mean().float() if losses else none

    return step


def few_pieces_by_turns(_: str, machine: Machine) -> Program:
    """1F1B with two micro-batches; fixed, with eight."""
    width, tokens, count = machine.size(4096), machine.size(32768, 16), machine.size(4, 2)

    def step_with(pieces: int) -> Step:
        return scheduled(machine, width, tokens, count, pieces)

    return Program(step_with(2), step_with(8), tolerance=3e-2)


def few_pieces_interleaved(_: str, machine: Machine) -> Program:
    """Two parts of the model a rank, interleaved, with two micro-batches; fixed, with eight."""
    width, tokens, count = machine.size(4096), machine.size(32768, 16), machine.size(2, 1)

    def step_with(pieces: int) -> Step:
        return scheduled(machine, width, tokens, count, pieces, parts=2)

    return Program(step_with(2), step_with(8), tolerance=3e-2)
