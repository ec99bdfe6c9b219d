"""Many small exchanges where one would do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.fourth.loops import Narrow
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training
from benchmarks.faults.program import Program, Step
from benchmarks.faults.third_models import replicated
from torch import Tensor, nn

RATE = 1e-4


class Swapped(torch.autograd.Function):
    """Rows by destination become rows by source: an all-to-all, and the same of the gradient."""

    @staticmethod
    def forward(_, rows: Tensor) -> Tensor:  # type: ignore[override, no-untyped-def]  # torch's signature
        sent = rows.contiguous()
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        return got

    @staticmethod
    def backward(_, gradient: Tensor) -> Tensor:  # type: ignore[override, no-untyped-def]  # torch's signature
        return Swapped.forward(_, gradient)


def tables_exchanged_one_by_one(_: str, machine: Machine) -> Program:
    """A recommender exchanges the rows of each of its tables by themselves; fixed, those of all tables at once."""
    tables, rows, dim = machine.size(40, 3), machine.size(2048), machine.size(64)
    entries, hidden = machine.size(20_000, 50), machine.size(2048)
    generator = torch.Generator(machine.device).manual_seed(machine.rank)
    looked_up = torch.randint(0, entries, (tables, machine.ranks * rows), generator=generator, device=machine.device)
    target = machine.random(rows, 1, seed=4 + machine.rank)

    def step_with(exchange: Callable[[list[Tensor]], Tensor]) -> Step:
        weights = [nn.Parameter(machine.random(entries, dim, seed=10 + number)) for number in range(tables)]
        inputs = machine.ranks * tables * dim
        top = replicated(
            place(machine, lambda: nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1)))
        )
        optimizer = torch.optim.SGD([*weights, *top.parameters()], lr=RATE, foreach=True)

        def step() -> Tensor:
            found = [F.embedding(index, weight) for index, weight in zip(looked_up, weights, strict=True)]
            loss = F.mse_loss(top(exchange(found)).float(), target.float())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return step

    def by_sample(got: Tensor) -> Tensor:
        """[source, table, row, dim] as one line of inputs a row."""
        return got.permute(2, 0, 1, 3).reshape(rows, -1)

    def one_by_one(found: list[Tensor]) -> Tensor:
        parts = [Swapped.apply(table).view(machine.ranks, rows, dim) for table in found]
        return by_sample(torch.stack(parts, dim=1))

    def at_once(found: list[Tensor]) -> Tensor:
        both = torch.stack([table.view(machine.ranks, rows, dim) for table in found], dim=1)
        return by_sample(Swapped.apply(both))

    return Program(step_with(one_by_one), step_with(at_once), tolerance=2e-2)


Work = Callable[[Sequence[Tensor]], None]


def narrow_training(machine: Machine, before: Work, after: Work, spread: bool = True) -> Step:
    """A training step of a net of many small parameters; `before` gets its gradients, `after` its parameters."""
    width, tokens, count = machine.size(1024), machine.size(8192), machine.size(48, 2)
    model = place(machine, lambda: Narrow(width, count))
    plain = replicated(model) if spread else model
    parameters = [*model.parameters()]
    optimizer = adamw(parameters, lr=RATE)
    batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)

    def step() -> Tensor:
        loss = F.mse_loss(plain(batch), target)
        loss.backward()
        before([one.grad for one in parameters if one.grad is not None])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        after(parameters)
        return loss.detach().float()

    return step


def nothing(_: Sequence[Tensor]) -> None:
    """No exchange."""


def norm_reduced_per_parameter(_: str, machine: Machine) -> Program:
    """Each gradient's norm is summed over the ranks and read by itself; fixed, all norms at once, none is read."""

    def one_by_one(gradients: Sequence[Tensor]) -> None:
        total = 0.0
        for gradient in gradients:
            square = gradient.float().square().sum()
            dist.all_reduce(square)
            total += square.item()
        torch._foreach_mul_(list(gradients), min(1.0, 1e6 / total**0.5))

    def at_once(gradients: Sequence[Tensor]) -> None:
        squares = torch.stack(torch._foreach_norm(list(gradients))).float().square().sum()
        dist.all_reduce(squares)
        torch._foreach_mul_(list(gradients), (1e6 / squares.sqrt()).clamp(max=1.0))

    return Program(
        narrow_training(machine, one_by_one, nothing), narrow_training(machine, at_once, nothing), tolerance=2e-2
    )


def gradients_reduced_one_by_one(_: str, machine: Machine) -> Program:
    """Gradients are averaged after the backward pass, one exchange for each; fixed, one exchange of all."""

    def one_by_one(gradients: Sequence[Tensor]) -> None:
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient.div_(machine.ranks)

    def at_once(gradients: Sequence[Tensor]) -> None:
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= machine.ranks
        parts = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(list(gradients), [part.view_as(one) for part, one in zip(parts, gradients, strict=True)])

    return Program(
        narrow_training(machine, one_by_one, nothing, spread=False),
        narrow_training(machine, at_once, nothing, spread=False),
        tolerance=2e-2,
    )


def weights_gathered_one_by_one(_: str, machine: Machine) -> Program:
    """After each step every rank hands out its half of each weight by itself; fixed, its half of all at once."""

    def mine(parameter: Tensor) -> Tensor:
        part = parameter.numel() // machine.ranks
        return parameter.view(-1)[machine.rank * part :][:part]

    @torch.no_grad()
    def one_by_one(parameters: Sequence[Tensor]) -> None:
        for parameter in parameters:
            got = torch.empty_like(parameter).view(-1)
            dist.all_gather_into_tensor(got, mine(parameter).clone())
            parameter.copy_(got.view_as(parameter))

    @torch.no_grad()
    def at_once(parameters: Sequence[Tensor]) -> None:
        flat = torch.cat([mine(parameter) for parameter in parameters])
        got = torch.empty(machine.ranks, flat.numel(), dtype=flat.dtype, device=flat.device)
        dist.all_gather_into_tensor(got.view(-1), flat)
        parts = got.split([parameter.numel() // machine.ranks for parameter in parameters], dim=1)
        torch._foreach_copy_(
            list(parameters), [part.reshape(one.shape) for part, one in zip(parts, parameters, strict=True)]
        )

    return Program(
        narrow_training(machine, nothing, one_by_one), narrow_training(machine, nothing, at_once), tolerance=2e-2
    )


def buffers_broadcast_one_by_one(_: str, machine: Machine) -> Program:
    """The first rank's running statistics are sent one by one in every step; fixed, all at once."""
    buffers = [machine.random(machine.size(1024), seed=number) for number in range(machine.size(120, 4))]

    def one_by_one(_: Sequence[Tensor]) -> None:
        for buffer in buffers:
            dist.broadcast(buffer, 0)

    def at_once(_: Sequence[Tensor]) -> None:
        flat = torch.cat(buffers)
        dist.broadcast(flat, 0)
        torch._foreach_copy_(buffers, list(flat.split(buffers[0].numel())))

    return Program(narrow_training(machine, nothing, one_by_one), narrow_training(machine, nothing, at_once))


def metrics_reduced_one_by_one(_: str, machine: Machine) -> Program:
    """Sixty figures of every step are summed over the ranks one by one; fixed, as one vector."""
    width, tokens, count = machine.size(2048), machine.size(4096), machine.size(60, 3)

    def step_with(reduce: Callable[[Tensor], None]) -> Step:
        model = replicated(place(machine, lambda: Mlp(width, 6)))
        plain = training(machine, model, adamw(model.parameters(), lr=RATE))
        batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)

        def step() -> Tensor:
            loss = plain(batch, target).float()
            reduce(loss.repeat(count))
            return loss

        return step

    def one_by_one(figures: Tensor) -> None:
        for figure in figures.unbind():
            dist.all_reduce(figure)

    return Program(step_with(one_by_one), step_with(lambda figures: dist.all_reduce(figures) and None))
