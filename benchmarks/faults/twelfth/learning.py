"""What learns: molecules, views, recommenders, tasks in a row and labels that a model gives itself."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn

RATE = 1e-5


def molecules_read_out_in_turn(_: str, machine: Machine) -> Program:
    """The atoms of each molecule are weighted and summed by themselves; fixed, of all molecules at once."""
    count, width = machine.size(192, 4), machine.size(1024, 16)
    sizes = [40 + 7 * (number % 9) for number in range(count)] if not machine.tiny else [3, 2, 4, 1]
    atoms = machine.random(sum(sizes), width)
    owner = torch.arange(count, device=machine.device).repeat_interleave(torch.tensor(sizes, device=machine.device))
    target = machine.random(count, width, seed=1)

    def in_turn(hidden: Tensor, weights: Tensor) -> Tensor:
        found = []
        for part, own in zip(hidden.split(sizes), weights.split(sizes), strict=True):
            found.append((part * own.sigmoid()).sum(0) / len(part))  # cause
        return torch.stack(found)

    each = torch.tensor(sizes, device=machine.device)[:, None]

    def at_once(hidden: Tensor, weights: Tensor) -> Tensor:
        empty = torch.zeros(count, width, device=machine.device)
        return (empty.index_add(0, owner, (hidden * weights.sigmoid()).float()) / each).to(hidden.dtype)

    def training(read_out: Callable[[Tensor, Tensor], Tensor]) -> Step:
        model = place(machine, lambda: nn.ModuleList([Mlp(width, machine.size(6, 2)), nn.Linear(width, 1)]))
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            hidden = model[0](atoms)
            return update(machine, F.mse_loss(read_out(hidden, model[1](hidden)), target), optimizer).float()

        return step

    return Program(training(in_turn), training(at_once), tolerance=5e-2)


def targets_differentiated(_: str, machine: Machine) -> Program:
    """Gradients go back through the network that gives the targets, and nobody uses them; fixed, under `no_grad`."""
    width, rows = machine.size(4096, 16), machine.size(8192)
    views = [machine.random(rows, width, seed=seed) for seed in (0, 1)]

    def training(recorded: bool) -> Step:
        student, teacher = (place(machine, lambda: Mlp(width, machine.size(4, 2))) for _ in range(2))
        optimizer = adamw(student.parameters(), lr=RATE)

        def step() -> Tensor:
            with torch.set_grad_enabled(recorded):  # cause
                target = teacher(views[1])  # cause
            return update(machine, F.mse_loss(student(views[0]), target), optimizer).float()

        return step

    return Program(training(True), training(False), tolerance=5e-2)


def days_looked_up_by_index(_: str, machine: Machine) -> Program:
    """Rows of a table of seven days are picked by indexing, whose gradient adds each in turn; fixed, by a product."""
    rows, width, days = machine.size(1 << 16, 16), machine.size(1024, 16), 7
    visits = machine.random(rows, width)
    day = machine.random(rows, dtype=torch.float32, seed=1).mul(1e4).long() % days
    marked = F.one_hot(day, days).to(torch.bfloat16)

    def training(pick: Callable[[Tensor], Tensor]) -> Step:
        table = nn.Parameter(machine.random(days, width, seed=2))
        model = place(machine, lambda: Mlp(width, machine.size(6, 2)))
        optimizer = adamw([table, *model.parameters()], lr=RATE)

        def step() -> Tensor:
            return update(machine, F.mse_loss(model(visits + pick(table)), visits), optimizer).float()

        return step

    return Program(
        training(lambda table: table[day]),  # cause
        training(lambda table: marked @ table),
        tolerance=5e-2,
    )


def penalties_paid_weight_by_weight(_: str, machine: Machine) -> Program:
    """What keeps weights near those of an earlier task is summed over them one by one; fixed, by lists of tensors."""
    width, rows, depth, strength = machine.size(1024, 16), machine.size(8192), machine.size(40, 3), 1e-3
    batch = machine.random(rows, width)

    def training(one_by_one: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))))
        weights = list(model.parameters())
        before = [weight.detach() + 0.01 for weight in weights]
        worth = [torch.full_like(weight, 0.5) for weight in before]
        optimizer = adamw(weights, lr=RATE)

        def step() -> Tensor:
            loss = F.mse_loss(model(batch), batch)
            penalty = torch.zeros((), device=machine.device)
            if one_by_one:
                for weight, old, value in zip(weights, before, worth, strict=True):
                    penalty = penalty + (value * (weight - old).square()).float().sum()  # cause
            (loss + strength * penalty).backward()
            if not one_by_one:
                with torch.no_grad():
                    away = torch._foreach_sub(weights, before)
                    torch._foreach_mul_(away, worth)
                    torch._foreach_add_([weight.grad for weight in weights], away, alpha=2 * strength)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach().float()

        return step

    return Program(training(True), training(False), tolerance=5e-2)


def labels_guessed_by_a_second_pass(_: str, machine: Machine) -> Program:
    """A model that labels its own batch runs twice over it, with the same weights; fixed, its one answer is used."""
    width, rows = machine.size(4096, 16), machine.size(8192)
    batch = machine.random(rows, width)

    def training(twice: bool) -> Step:
        model = place(machine, lambda: Mlp(width, machine.size(5, 2)))
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            with torch.no_grad():
                guessed = model(batch) if twice else None  # cause
            answer = model(batch)
            label = answer.detach() if guessed is None else guessed
            return update(machine, F.mse_loss(answer, label.sign()), optimizer).float()

        return step

    return Program(training(True), training(False), tolerance=5e-2)
