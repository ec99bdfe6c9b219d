"""What scripts of two GPUs do with the options of libraries: DDP's buckets, split optimizer states, batch norms."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.fifth.late_ranks import nothing, replicated_training
from benchmarks.faults.fifth.pipelines import all_forward_first
from benchmarks.faults.fourth.loops import Narrow
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Block, Convolutions, Mlp, adamw, place, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

RATE = 1e-4


def bucketed(machine: Machine, make: Callable[[], nn.Module], width: int, tokens: int, bucket_mb: float) -> Step:
    """A DDP training step whose gradients go in buckets of `bucket_mb`."""
    model = DistributedDataParallel(place(machine, make), bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
    optimizer = adamw(model.parameters(), lr=RATE)
    batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)
    return lambda: update(machine, F.mse_loss(model(batch), target), optimizer).float()


def buckets_too_small(_: str, machine: Machine) -> Program:
    """DDP's buckets hold less than one weight; fixed, 25 MB each."""
    width, tokens, count = machine.size(1024), machine.size(8192), machine.size(48, 2)
    small, usual = (bucketed(machine, lambda: Narrow(width, count), width, tokens, size) for size in (0.01, 25))
    return Program(small, usual, tolerance=2e-2)


def bucket_of_everything(_: str, machine: Machine) -> Program:
    """One bucket holds every gradient, so nothing is exchanged before the backward pass ends; fixed, 25 MB each."""
    width, tokens = machine.size(8192), machine.size(2048)
    whole, usual = (bucketed(machine, lambda: Mlp(width, 6), width, tokens, size) for size in (100_000, 25))
    return Program(whole, usual, tolerance=2e-2)


def states_sent_one_by_one(_: str, machine: Machine) -> Program:
    """ZeroRedundancyOptimizer sends each updated weight by itself; fixed, the weights of a rank as one bucket."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    width, tokens, count = machine.size(1024), machine.size(8192), machine.size(48, 2)

    def step_with(as_buckets: bool) -> Step:
        model = place(machine, lambda: Narrow(width, count))
        spread = DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=as_buckets, lr=RATE, fused=True
        )
        batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)
        return lambda: update(machine, F.mse_loss(spread(batch), target), optimizer).float()

    return Program(step_with(as_buckets=False), step_with(as_buckets=True), tolerance=2e-2)


def norms_synchronized(_: str, machine: Machine) -> Program:
    """Every batch norm of a small network is computed over both ranks; fixed, by each rank over its own images."""
    channels, edge, images, count = machine.size(64), machine.size(28), machine.size(32, 2), machine.size(40, 2)

    def step_with(together: bool) -> Step:
        model = place(machine, lambda: Convolutions(channels, count, norm=True), torch.float32)
        if together and machine.cuda:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        spread = DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = adamw(model.parameters(), lr=RATE)
        batch = machine.random(images, channels, edge, edge, dtype=torch.float32)  # the same on both ranks

        def step() -> Tensor:
            with torch.autocast(machine.device.type, torch.bfloat16):
                loss = F.mse_loss(spread(batch).float(), batch)
            return update(machine, loss, optimizer)

        return step

    return Program(step_with(together=True), step_with(together=False), tolerance=5e-2)


def augmented_by_one_rank(_: str, machine: Machine) -> Program:
    """The second rank flips and scales its images with NumPy in every step; fixed, no rank does so."""
    images = numpy.random.default_rng(1).random((machine.size(24, 1), 3, machine.size(384), machine.size(384)))

    def augment(_: int) -> None:
        flipped = images[..., ::-1] * 1.1 - 0.05
        numpy.clip(flipped, 0, 1).astype(numpy.float32).mean()

    mine = augment if machine.rank == 1 else nothing
    return Program(replicated_training(machine, mine, nothing), replicated_training(machine, nothing, nothing))


def stages_of_unlike_length(_: str, machine: Machine) -> Program:
    """The first stage holds six layers and the second two; fixed, four each."""
    width, tokens = machine.size(4096), machine.size(16384, 16)
    batch, target = machine.random(tokens, width), machine.random(tokens, width, seed=9)

    def step_with(counts: tuple[int, int]) -> Step:
        stage = place(machine, lambda: Mlp(width, sum(counts)))
        own = (stage.layers[: counts[0]], stage.layers[counts[0] :])[machine.rank]
        stage.layers = nn.ModuleList(own)
        return all_forward_first(machine, stage, batch, target, 8)

    return Program(step_with((6, 2)), step_with((4, 4)), tolerance=3e-2)


def losses_summed_and_read(_: str, machine: Machine) -> Program:
    """The loss of each of eight micro-batches is summed over the ranks and read; fixed, kept on the device."""
    width, tokens, parts = machine.size(1024), machine.size(2048), 8

    def step_with(read: bool) -> Step:
        model = place(machine, lambda: Mlp(width, machine.size(12, 2)))
        spread = DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = adamw(model.parameters(), lr=RATE)
        batches = [machine.random(tokens, width, seed=10 * machine.rank + part) for part in range(parts)]
        target = machine.random(tokens, width, seed=9)
        seen: list[float] = []

        def step() -> Tensor:
            total = torch.zeros((), device=machine.device)
            for part, batch in enumerate(batches):
                with nullcontext() if part == parts - 1 else spread.no_sync():
                    loss = F.mse_loss(spread(batch), target).float()
                    (loss / parts).backward()
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                if read:
                    seen[:] = [*seen[-10:], mean.item()]
                total += mean
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return total

        return step

    return Program(step_with(read=True), step_with(read=False), tolerance=2e-2)


def blocks_accumulated(_: str, machine: Machine) -> Program:
    """DDP over transformer blocks in mixed precision, four micro-batches, gradients clipped: as guides write it."""
    width, length, batch, parts = machine.size(2048, 64), machine.size(1024), machine.size(8, 2), 4
    model = place(machine, lambda: nn.Sequential(*(Block(width, 16) for _ in range(machine.size(6, 2)))), torch.float32)
    spread = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = adamw(model.parameters(), lr=RATE)
    pieces = [
        machine.random(batch, length, width, dtype=torch.float32, seed=10 * machine.rank + part)
        for part in range(parts)
    ]

    def step() -> Tensor:
        total = torch.zeros((), device=machine.device)
        for part, piece in enumerate(pieces):
            with nullcontext() if part == parts - 1 else spread.no_sync():
                with torch.autocast(machine.device.type, torch.bfloat16):
                    loss = F.mse_loss(spread(piece).float(), piece) / parts
                loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(spread.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return Program(step, step)
