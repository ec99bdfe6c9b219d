"""Third set: what goes wrong between two ranks that train one model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, accumulating, adamw, place, training, update
from benchmarks.faults.program import Program, Step
from benchmarks.faults.third_models import layers, products, replicated, sequences, sharded
from torch import Tensor, nn

RATE = 1e-4


def batches_uneven(severity: str, machine: Machine) -> Program:
    """The first rank draws more sequences of the job's batch than the second; fixed, each gets half of them."""
    first, second = {"high": (12, 4), "low": (9, 7)}[severity]
    width, length, count = machine.size(2048, 32), machine.size(1024), machine.size(4, 2)
    total = first + second
    inputs = machine.random(total, length, width)
    targets = machine.random(total, length, width, seed=1)

    def step_with(shares: tuple[int, int]) -> Step:
        model = replicated(place(machine, lambda: layers(width, 16, count)))
        optimizer = adamw(model.parameters(), lr=RATE)
        begin = sum(shares[: machine.rank])
        mine = slice(begin, begin + shares[machine.rank])
        batch, target = inputs[mine], targets[mine]
        weight = shares[machine.rank] * machine.ranks / total  # DDP averages ranks, the job's loss is over sequences

        def step() -> Tensor:
            with machine.phase("forward"):
                loss = F.mse_loss(model(batch), target) * weight
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with((first, second)), step_with((total // 2, total // 2)), tolerance=2e-2)


Gather = Callable[[Tensor, Tensor], None]


def metrics_gathered_pickled(severity: str, machine: Machine) -> Program:
    """Every step's metrics are pickled and gathered from all ranks; fixed, summed on the device and left there."""
    width, tokens, count = {"high": (2048, 8192, 12), "low": (4096, 8192, 8)}[severity]
    width, tokens, classes = machine.size(width), machine.size(tokens), machine.size(1024)

    def step_with(gather: Gather) -> Step:
        model = replicated(place(machine, lambda: nn.Sequential(Mlp(width, count), nn.Linear(width, classes))))
        optimizer = adamw(model.parameters(), lr=RATE)
        batch = machine.random(tokens, width, seed=machine.rank)
        generator = torch.Generator(machine.device).manual_seed(machine.rank)
        target = torch.randint(0, classes, (tokens,), generator=generator, device=machine.device)

        def step() -> Tensor:
            with machine.phase("forward"):
                logits = model(batch)
                loss = F.cross_entropy(logits, target)
            update(machine, loss, optimizer)
            with machine.phase("metrics"):
                gather(loss.detach(), (logits.detach().argmax(-1) == target).sum())
            return loss.detach().float()

        return step

    pickled: list[dict[str, float]] = []
    summed: list[Tensor] = []

    def pickle_and_gather(loss: Tensor, right: Tensor) -> None:
        everyone: list[dict[str, float]] = [{}] * machine.ranks
        dist.all_gather_object(everyone, {"loss": loss.item(), "right": right.item(), "tokens": tokens})
        pickled.append({name: sum(one[name] for one in everyone) for name in everyone[0]})
        del pickled[:-10]

    def sum_on_device(loss: Tensor, right: Tensor) -> None:
        both = torch.stack([loss.float(), right.float()])
        dist.all_reduce(both)
        summed.append(both)
        del summed[:-10]

    return Program(step_with(pickle_and_gather), step_with(sum_on_device))


def exchanged_per_microbatch(severity: str, machine: Machine) -> Program:
    """Gradients are exchanged after each of four micro-batches; fixed, no_sync() for all but the last.

    Low: micro-batches long enough for backward to hide most of the exchange.
    """
    width, tokens, count = {"high": (8192, 1024, 3), "low": (4096, 8192, 4)}[severity]
    width, tokens, parts = machine.size(width), machine.size(tokens), 4
    inputs = [machine.random(tokens, width, seed=100 * machine.rank + part) for part in range(parts)]
    target = machine.random(tokens, width, seed=1)

    def step_with(every: bool) -> Step:
        model = replicated(place(machine, lambda: Mlp(width, count)))
        keeps = lambda part: nullcontext() if every or part == parts - 1 else model.no_sync()  # noqa: E731
        return accumulating(machine, model, inputs, target, RATE, keeps)

    return Program(step_with(every=True), step_with(every=False), tolerance=2e-2)


def sharded_too_fine(severity: str, machine: Machine) -> Program:
    """FSDP shards every product by itself, so gathers many small pieces; fixed, a transformer layer is one group.

    Low: so in two layers of six.
    """
    batch, apart = {"high": (24, 6), "low": (36, 2)}[severity]
    width, length, count = machine.size(1024, 32), machine.size(1024), machine.size(6, 2)

    def step_with(fine: bool) -> Step:
        model = place(machine, lambda: layers(width, 16, count))
        in_pieces = products(model[:apart]) if fine else []
        sharded(model, [*in_pieces, *(model[apart:] if fine else model)])
        plain = training(machine, model, adamw(model.parameters(), lr=RATE))
        inputs = sequences(machine, machine.size(batch, 2), length, width)
        target = machine.random(*inputs.shape, seed=9)
        return lambda: plain(inputs, target).float()

    return Program(step_with(fine=True), step_with(fine=False), tolerance=2e-2)


class Watched(Mlp):
    """An MLP that shows `watch` the mean size of what leaves each layer."""

    def __init__(self, width: int, count: int, watch: Callable[[Tensor], None]) -> None:
        super().__init__(width, count)
        self.watch = watch

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = F.relu(layer(hidden))
            self.watch(hidden.detach()[:256].mean())
        return hidden


def logged_by_one_rank(severity: str, machine: Machine) -> Program:
    """The first rank logs every layer with .item() while the other waits for it; fixed, it keeps them on the device."""
    width, tokens, count = {"high": (2048, 8192, 24), "low": (4096, 8192, 8)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    logged: list[float | Tensor] = []

    def log(mean: Tensor) -> None:
        if machine.rank == 0:
            logged.append(mean.item())
            del logged[:-count]

    def keep(mean: Tensor) -> None:
        if machine.rank == 0:
            logged.append(mean)
            del logged[:-count]

    def step_with(watch: Callable[[Tensor], None]) -> Step:
        model = replicated(place(machine, lambda: Watched(width, count, watch)))
        plain = training(machine, model, adamw(model.parameters(), lr=RATE))
        batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)
        return lambda: plain(batch, target).float()

    return Program(step_with(log), step_with(keep))


def exchanged_through_host(severity: str, machine: Machine) -> Program:
    """NCCL may not copy from GPU to GPU (NCCL_P2P_DISABLE=1), so goes through host memory; fixed, it may.

    The environment makes the fault: both variants are one step here.
    """
    width, tokens, count = {"high": (4096, 8192, 4), "low": (2048, 16384, 8)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    model = replicated(place(machine, lambda: Mlp(width, count)))
    plain = training(machine, model, adamw(model.parameters(), lr=RATE))
    batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)

    def step() -> Tensor:
        return plain(batch, target).float()

    return Program(step, step, tolerance=2e-2)
