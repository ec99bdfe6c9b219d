"""The model in four stages of a pipeline, by torch's schedules: 1F1B, and interleaved with several parts a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.fifth.pipelines import driven
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import place
from benchmarks.faults.program import Program, Step
from benchmarks.faults.seventh.transformer import RATE, WIDTH, Attention, Network, heads_of, sequences
from torch import Tensor, nn

Part = Callable[[], nn.Module]
WIDE = 4096


class Wide(nn.Module):
    """Two products of 134 million weights; eight of them are 1.07 billion."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(F.relu(self.up(hidden)))


def scheduled(machine: Machine, parts: Sequence[nn.Module], batch: Tensor, pieces: int) -> Step:
    """A training step of 1F1B, or interleaved where the rank holds several parts of the model."""
    return driven(machine, parts, batch, torch.zeros_like(batch), pieces, RATE)


def dealt(machine: Machine, parts: Sequence[Part]) -> list[nn.Module]:
    """Of the model's parts in order those of this rank: every one that falls to it when they are dealt in turn."""
    return [place(machine, part) for part in parts[machine.rank :: machine.ranks]]


def joined(parts: Sequence[Part], counts: Sequence[int]) -> list[Part]:
    """Parts put together, so many at a time."""

    def together(begin: int, count: int) -> nn.Module:
        made = []
        for number in range(begin, begin + count):
            torch.manual_seed(number)  # a part holds the same weights wherever it falls
            made.append(parts[number]())
        return nn.Sequential(*made)

    begins = [sum(counts[:at]) for at in range(len(counts))]
    return [partial(together, *one) for one in zip(begins, counts, strict=True)]


def layers(machine: Machine) -> list[Part]:
    """The transformer's eight layers, each as its attention and its network."""
    width, heads = machine.size(WIDTH, 32), heads_of(machine)
    return [(lambda: Attention(width, heads)) if at % 2 == 0 else (lambda: Network(width)) for at in range(16)]


def transformer_step(machine: Machine, counts: Sequence[int], sequences_: int, length: int, pieces: int) -> Step:
    """Stages of so many half layers each, dealt to the ranks in turn."""
    parts = dealt(machine, joined(layers(machine), counts))
    return scheduled(machine, parts, sequences(machine, sequences_, length), pieces)


def wide_step(machine: Machine, counts: Sequence[int], pieces: int, tokens: int) -> Step:
    width = machine.size(WIDE, 32)
    parts = dealt(machine, joined([lambda: Wide(width)] * 8, counts))
    return scheduled(machine, parts, machine.random(pieces * machine.size(tokens, 4), width), pieces)


def four_stages_few_pieces(_: str, machine: Machine) -> Program:
    """1F1B of four stages with four micro-batches; fixed, with sixteen."""

    def step_with(pieces: int) -> Step:
        return transformer_step(machine, [4] * 4, 32, 1024, pieces)

    return Program(step_with(4), step_with(16), tolerance=3e-2)


def stages_not_interleaved(_: str, machine: Machine) -> Program:
    """1F1B of four stages with twelve micro-batches; fixed, interleaved, two parts a rank."""

    def step_with(counts: Sequence[int]) -> Step:
        return wide_step(machine, counts, 12, 2048)

    return Program(step_with([2] * 4), step_with([1] * 8), tolerance=3e-2)


def stages_of_three_and_one(_: str, machine: Machine) -> Program:
    """Four stages of three, two, two and one layers; fixed, of two each."""

    def step_with(counts: Sequence[int]) -> Step:
        return transformer_step(machine, counts, 16, 1024, 8)

    return Program(step_with([6, 4, 4, 2]), step_with([4] * 4), tolerance=3e-2)


def parts_too_fine(_: str, machine: Machine) -> Program:
    """Half layers interleaved, four a rank, faster than the host can start them; fixed, one part of four a rank."""

    def step_with(counts: Sequence[int]) -> Step:
        return transformer_step(machine, counts, 8, 512, 8)

    return Program(step_with([1] * 16), step_with([4] * 4), tolerance=3e-2)


def many_pieces_of_four(_: str, machine: Machine) -> Program:
    """1F1B of four stages with 48 micro-batches: 6 % of its step is the pipeline's start and end."""
    step = wide_step(machine, [2] * 4, 48, 1024)
    return Program(step, step, tolerance=3e-2)


def parts_interleaved(_: str, machine: Machine) -> Program:
    """Two parts a rank, interleaved, with 32 micro-batches: 4 % of its step is the pipeline's start and end."""
    step = wide_step(machine, [1] * 8, 32, 1024)
    return Program(step, step, tolerance=3e-2)
