"""The host of one rank comes late: in Python, at a loader, by a copy, on too few threads; before, within or after."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from tempfile import TemporaryFile

import numpy
import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.loading import endless, loader
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, update
from benchmarks.faults.program import Program, Step
from benchmarks.faults.tenth.jobs import (
    LAYERS,
    RATE,
    TOKENS,
    WIDTH,
    Work,
    each,
    nothing,
    own_tokens,
    replicas,
    rows,
    shards,
    summed,
)  # fmt: skip
from benchmarks.faults.third_models import replicated
from torch import Tensor


def words_counted_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 0 of DDP counts words in Python before every step, longer than its GPU works; fixed, nobody does."""
    mine = each(1, own_tokens(machine, 700_000)) if machine.rank == 0 else nothing
    return Program(replicas(machine, Work(mine)), replicas(machine))


def words_counted_behind_the_queue(_: str, machine: Machine) -> Program:
    """Rank 1 of DDP counts words while its GPU still works on the step before; fixed, nobody does."""
    mine = each(1, own_tokens(machine, 200_000)) if machine.rank == 1 else nothing
    return Program(replicas(machine, Work(mine)), replicas(machine))


def losses_logged_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 0 of FSDP2 reads the loss of every step, and writes a report on it in Python; fixed, nobody does."""
    counting, kept = own_tokens(machine, 150_000), [""]

    def report(loss: float) -> None:
        kept[0] = f"{loss:.4f} {len(counting())}"

    def step_with(logged: bool) -> Step:
        plain = shards(machine)

        def step() -> Tensor:
            loss = plain()
            if logged:
                report(loss.item())
            return loss

        return step

    return Program(step_with(machine.rank == 0), step_with(logged=False))


def histograms_by_one_rank(_: str, machine: Machine) -> Program:
    """Rank 1 of DDP fetches numbers in each fourth step and bins them with NumPy; fixed, nobody does."""
    weights = [machine.random(machine.size(1 << 20), seed=50 + at, dtype=torch.float32) for at in range(4)]

    def bins() -> None:
        for weight in weights:
            numpy.histogram(weight.cpu().numpy(), 64)

    mine = each(4, bins, 1) if machine.rank == 1 else nothing
    return Program(replicas(machine, Work(after=mine)), replicas(machine), period=4, settle=4)


def saved_each_second_step(_: str, machine: Machine) -> Program:
    """Rank 0 of DDP fetches its weights in each second step, for a thread to write; fixed, nobody saves so often."""
    kept = place(machine, lambda: Mlp(machine.size(WIDTH), machine.size(LAYERS, 2))).state_dict()
    writer, writing = ThreadPoolExecutor(1), [Future[None]()]
    writing[0].set_result(None)

    def write(found: dict[str, Tensor]) -> None:
        with TemporaryFile() as file:
            torch.save(found, file)

    def save() -> None:
        writing[0].result()
        writing[0] = writer.submit(write, {name: weight.cpu() for name, weight in kept.items()})

    mine = each(2, save, 1) if machine.rank == 0 else nothing
    return Program(replicas(machine, Work(after=mine)), replicas(machine), period=2, close=writer.shutdown)


def logged_in_turn(_: str, machine: Machine) -> Program:
    """Both ranks read every loss; in even steps the first then counts words, in odd ones the second; fixed, none."""
    mine = each(2, own_tokens(machine, 200_000), machine.rank)
    return Program(replicas(machine, Work(after=mine), read=True), replicas(machine, read=True), period=2)


def augmented_more_by_one_rank(_: str, machine: Machine) -> Program:
    """Both ranks augment pictures with NumPy between steps, rank 1 thrice as many; fixed, as many as the other.

    Both read every loss."""
    pictures = numpy.random.default_rng(1).random((machine.size(20, 1), 3, 224, 224)).astype(numpy.float32)

    def augment(times: int) -> Callable[[], None]:
        def augmented() -> None:
            for _ in range(times):
                numpy.clip(pictures[..., ::-1] * 1.1 - 0.05, 0, 1).mean()

        return augmented

    def step_with(times: int) -> Step:
        return replicas(machine, Work(each(1, augment(times))), read=True)

    return Program(step_with(3 if machine.rank == 1 else 1), step_with(1))


def half_as_many_workers(_: str, machine: Machine) -> Program:
    """The loader of rank 1 has one worker where that of rank 0 has two, which just keep up; fixed, two each."""
    width, tokens = machine.size(WIDTH), machine.size(TOKENS)

    def step_with(workers: int) -> Step:
        model = replicated(place(machine, lambda: Mlp(width, machine.size(LAYERS, 2))))
        optimizer = adamw(model.parameters(), lr=RATE)
        base, target = rows(machine, width, tokens)
        following = endless(loader(machine, machine.size(150, 1), workers if machine.cuda else 1))

        def step() -> Tensor:
            samples = following().to(machine.device, non_blocking=True)
            shift = samples.flatten()[:width].to(base.dtype) / 255
            return update(machine, F.mse_loss(model(base + shift), target), optimizer).float()

        return step

    settle = 1 if machine.tiny else 8
    return Program(step_with(1 if machine.rank == 1 else 2), step_with(2), settle=settle)


def pageable_on_one_rank(_: str, machine: Machine) -> Program:
    """Rank 0 of DDP uploads its batch from pageable memory, rank 1 from pinned; fixed, both from pinned."""
    width, tokens = machine.size(WIDTH), machine.size(TOKENS)

    def step_with(pinned: bool) -> Step:
        model = replicated(place(machine, lambda: Mlp(width, machine.size(LAYERS, 2))))
        optimizer = adamw(model.parameters(), lr=RATE)
        batch, target = rows(machine, width, tokens)
        held = machine.pinned(batch.cpu()) if pinned else batch.cpu()

        def step() -> Tensor:
            inputs = held.to(machine.device, non_blocking=True)
            return update(machine, F.mse_loss(model(inputs), target), optimizer).float()

        return step

    return Program(step_with(machine.rank == 1), step_with(pinned=True))


def one_thread_on_one_rank(_: str, machine: Machine) -> Program:
    """Both ranks of FSDP2 prepare pictures on the CPU, rank 1 on one thread and rank 0 on four; fixed, both on four."""
    pictures = torch.rand(machine.size(20, 1), 3, 224, 224, generator=torch.Generator().manual_seed(1))

    def prepare(threads: int) -> Callable[[], None]:
        def prepared() -> None:
            torch.set_num_threads(threads)
            one = pictures
            for _ in range(machine.size(12, 1)):
                one = (one * 0.99 + 0.01).clamp_(0, 1)
            torch.set_num_threads(4)

        return prepared

    mine = each(1, prepare(1 if machine.rank == 1 else 4))
    return Program(shards(machine, Work(mine)), shards(machine, Work(each(1, prepare(4)))))


def metrics_written_by_a_thread(_: str, machine: Machine) -> Program:
    """A thread of rank 0 counts words beside every step, and the step waits for the one before; fixed, no rank does."""
    counter, counting, counted = ThreadPoolExecutor(1), own_tokens(machine, 450_000), [Future[dict[int, int]]()]
    counted[0].set_result({})

    def count() -> None:
        counted[0].result()
        counted[0] = counter.submit(counting)

    mine = each(1, count) if machine.rank == 0 else nothing
    return Program(replicas(machine, Work(mine)), replicas(machine), close=counter.shutdown)


def gradients_checked_by_one_rank(_: str, machine: Machine) -> Program:
    """Gradients are summed by hand, and rank 1 first looks at words and numbers on the host; fixed, it does not."""
    counting, watched = own_tokens(machine, 100_000), machine.random(machine.size(1 << 18), dtype=torch.float32)

    def check() -> None:
        for _ in range(4):
            numpy.histogram(watched.cpu().numpy(), 64)
        counting()

    mine = each(1, check) if machine.rank == 1 else nothing
    return Program(summed(machine, mine), summed(machine))
