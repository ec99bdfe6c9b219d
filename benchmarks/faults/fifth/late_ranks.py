"""One rank comes late to every exchange, by work that the other does not have."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from tempfile import TemporaryFile

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.loading import endless, loader
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training, update
from benchmarks.faults.program import Program, Step
from benchmarks.faults.third_models import layers, replicated
from torch import Tensor

RATE = 1e-4
WORKERS = 6


def replicated_training(machine: Machine, before: Callable[[int], None], after: Callable[[int], None]) -> Step:
    """DDP over a network of products, with the rank's own work before and after each step, told the step's number."""
    width, tokens = machine.size(4096), machine.size(8192)
    model = replicated(place(machine, lambda: Mlp(width, 4)))
    plain = training(machine, model, adamw(model.parameters(), lr=RATE))
    batch, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)
    done = [0]

    def step() -> Tensor:
        before(done[0])
        loss = plain(batch, target).float()
        after(done[0])
        done[0] += 1
        return loss

    return step


def nothing(_: int) -> None:
    """No work of its own."""


def loader_short_of_workers(_: str, machine: Machine) -> Program:
    """The second rank's loader has one worker; fixed, as many as the first's."""
    width, tokens = machine.size(4096), machine.size(8192)

    def step_with(workers: int) -> Step:
        model = replicated(place(machine, lambda: Mlp(width, 4)))
        plain = training(machine, model, adamw(model.parameters(), lr=RATE))
        base, target = machine.random(tokens, width, seed=machine.rank), machine.random(tokens, width, seed=9)
        following = endless(loader(machine, machine.size(20, 1), workers if machine.cuda else 1))

        def step() -> Tensor:
            samples = following().to(machine.device, non_blocking=True)
            shift = samples.flatten()[:width].to(base.dtype) / 255
            return plain(base + shift, target).float()

        return step

    settle = 1 if machine.tiny else 2 * WORKERS + 2
    return Program(step_with(1 if machine.rank == 1 else WORKERS), step_with(WORKERS), settle=settle, slow=True)


def tokens_counted_by_one_rank(_: str, machine: Machine) -> Program:
    """The first rank counts its tokens in Python before every step; fixed, nobody does."""
    tokens = [number * 7919 % 32000 for number in range(machine.size(200_000, 100))]

    def count_tokens(_: int) -> None:
        seen: dict[int, int] = {}
        for token in tokens:
            seen[token] = seen.get(token, 0) + 1

    mine = count_tokens if machine.rank == 0 else nothing
    return Program(replicated_training(machine, mine, nothing), replicated_training(machine, nothing, nothing))


def saved_by_one_rank(_: str, machine: Machine) -> Program:
    """The first rank writes a checkpoint in every third step, the other waits; fixed, none is written so often."""
    kept = place(machine, lambda: Mlp(machine.size(4096), 1)).state_dict()

    def save(number: int) -> None:
        if number % 3 == 1:
            with TemporaryFile() as file:
                torch.save({name: weight.cpu() for name, weight in kept.items()}, file)

    mine = save if machine.rank == 0 else nothing
    return Program(
        replicated_training(machine, nothing, mine), replicated_training(machine, nothing, nothing), period=3, settle=3
    )


def collected_by_one_rank(_: str, machine: Machine) -> Program:
    """The first rank, which holds many objects, collects garbage in every step; fixed, it does not."""
    gc.freeze()  # what is there before is not looked at
    held = [[number] for number in range(machine.size(400_000, 100))] if machine.rank == 0 else []

    def collect(_: int) -> None:
        if held:
            gc.collect()

    return Program(replicated_training(machine, nothing, collect), replicated_training(machine, nothing, nothing))


def validated_by_one_rank(_: str, machine: Machine) -> Program:
    """The first rank evaluates a held-out batch in every step; fixed, each rank evaluates half of it."""
    width, tokens = machine.size(4096), machine.size(24576)
    judge = place(machine, lambda: Mlp(width, 4))
    held_out = machine.random(tokens, width, seed=77)

    def step_with(mine: Tensor) -> Step:
        @torch.no_grad()
        def judged(_: int) -> None:
            judge(mine)

        return replicated_training(machine, judged if len(mine) else nothing, nothing)

    half = tokens // 2
    own = held_out if machine.rank == 0 else held_out[:0]
    return Program(step_with(own), step_with(held_out[machine.rank * half :][:half]))


def long_sequences_on_one_rank(_: str, machine: Machine) -> Program:
    """The first rank gets the long sequences and the second the short ones; fixed, each gets half of both."""
    width, count = machine.size(2048, 32), machine.size(4, 2)
    long = machine.random(4, machine.size(2048, 16), width, seed=1)
    short = machine.random(8, machine.size(512, 8), width, seed=2)
    total = long.numel() + short.numel()

    def step_with(batches: Sequence[Tensor]) -> Step:
        model = replicated(place(machine, lambda: layers(width, 16, count)))
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            losses = [F.mse_loss(model(batch).float(), batch.float(), reduction="sum") for batch in batches]
            return update(machine, torch.stack(losses).sum() * machine.ranks / total, optimizer)

        return step

    even = [part[machine.rank :: machine.ranks].contiguous() for part in (long, short)]
    return Program(step_with([long] if machine.rank == 0 else [short]), step_with(even), tolerance=2e-2)
