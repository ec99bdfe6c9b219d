"""The device waits for its input: decoded in the main process, by too few or restarted workers, or prepared in line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training
from benchmarks.faults.program import Program, Step
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

WIDTH, TOKENS, LAYERS = 4096, 4096, 5
SAMPLES, FEATURES = 16, 24576
WORKERS = 8


class Decoded(Dataset[Tensor]):
    """Samples that cost `passes` passes of ordinary tensor work on the CPU each, as decoding and augmenting do."""

    def __init__(self, passes: int, features: int) -> None:
        self.passes, self.features = passes, features

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Tensor:
        sample = torch.arange(self.features, dtype=torch.float32).add_(float(index % 1000))
        for _ in range(self.passes):
            sample = (sample * 0.9991 + 0.3).clamp(0.0, 255.0)
        return sample


class Epoch(Sampler[int]):
    """Indices in order, `steps` batches of them, or without end."""

    def __init__(self, steps: int | None) -> None:
        self.steps = steps

    def __len__(self) -> int:
        return (self.steps or 1 << 40) * SAMPLES

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


def loader(
    machine: Machine, passes: int, workers: int, steps: int | None = None, stay: bool = True
) -> DataLoader[Tensor]:
    return DataLoader(
        Decoded(passes, machine.size(FEATURES, 64)),
        batch_size=SAMPLES,
        sampler=Epoch(steps),
        num_workers=workers,
        pin_memory=machine.cuda,
        persistent_workers=stay and workers > 0,
    )


def trained_on(machine: Machine, batches: Callable[[], Tensor]) -> Step:
    """A training step that takes `batches()` from the host, mixes it into a resident input and trains on that."""
    width, tokens = machine.size(WIDTH), machine.size(TOKENS)
    model = place(machine, lambda: Mlp(width, LAYERS))
    plain = training(machine, model, adamw(model.parameters()))
    base, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

    def step() -> Tensor:
        with machine.phase("data"):
            samples = batches()
        shift = samples.to(machine.device, non_blocking=True).flatten()[:width].to(base.dtype) / 255
        return plain(base + shift, target).float()

    return step


def endless(source: DataLoader[Tensor]) -> Callable[[], Tensor]:
    """Batch after batch, epoch after epoch."""
    epoch = [iter(source)]

    def following() -> Tensor:
        try:
            return next(epoch[0])
        except StopIteration:
            epoch[0] = iter(source)
            return next(epoch[0])

    return following


def loaded(machine: Machine, fault: DataLoader[Tensor], fix: DataLoader[Tensor], period: int = 1) -> Program:
    settle = 2 * WORKERS + 4 if not machine.tiny else 1
    settle += -settle % period
    return Program(trained_on(machine, endless(fault)), trained_on(machine, endless(fix)), settle=settle, period=period)


def loader_in_main(severity: str, machine: Machine) -> Program:
    """DataLoader(num_workers=0) decodes in the training process; fixed, eight workers decode."""
    passes = machine.size({"high": 48, "low": 24, "harmless": 2}[severity], 1)
    workers = WORKERS if machine.cuda else 1
    return loaded(machine, loader(machine, passes, 0), loader(machine, passes, workers))


def too_few_workers(severity: str, machine: Machine) -> Program:
    """One worker decodes slower than the device trains; fixed, eight do. Harmless: one is fast enough."""
    passes = machine.size({"high": 48, "low": 24, "harmless": 2}[severity], 1)
    workers = WORKERS if machine.cuda else 2
    return loaded(machine, loader(machine, passes, 1), loader(machine, passes, workers))


def workers_started_anew(severity: str, machine: Machine) -> Program:
    """Short epochs start their workers again each time; fixed, persistent_workers keeps them."""
    steps = {"high": 3, "low": 6, "harmless": None}[severity]
    fault = loader(machine, 1, 2, steps, stay=False)
    return loaded(machine, fault, loader(machine, 1, 2, steps), period=steps or 1)


def batch_prepared_in_line(severity: str, machine: Machine) -> Program:
    """Each step sorts and packs its tokens on the host before it launches; fixed, the prepared batches are kept."""
    count = machine.size({"high": 400_000, "low": 200_000, "harmless": 20_000}[severity], 64)
    generator = torch.Generator().manual_seed(0)
    raw = [torch.randint(0, 50_000, (count,), generator=generator) for _ in range(4)]

    def prepare(tokens: Tensor) -> Tensor:
        ordered, _ = tokens.sort()
        packed = ordered.unique_consecutive().to(torch.float32)
        return torch.nn.functional.pad(packed, (0, max(0, WIDTH - packed.numel())))[:WIDTH].remainder(255.0)

    prepared = [machine.pinned(prepare(tokens)) for tokens in raw]
    count_fault, count_fix = [0], [0]

    def in_line() -> Tensor:
        with machine.phase("data", own=True):
            count_fault[0] += 1
            return machine.pinned(prepare(raw[count_fault[0] % 4]))

    def kept() -> Tensor:
        count_fix[0] += 1
        return prepared[count_fix[0] % 4]

    return Program(trained_on(machine, in_line), trained_on(machine, kept))
