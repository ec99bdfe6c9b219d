"""The transformer of the set, 0.91 billion parameters in eight layers, and what its programs share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, causal_attention, place, update
from benchmarks.faults.program import Step
from torch import Tensor, nn

WIDTH, HEAD, LAYERS, LENGTH = 3072, 128, 8, 2048
RATE = 1e-4


class Attention(nn.Module):
    """Causal attention behind a norm, added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, hidden: Tensor) -> Tensor:
        seen = self.norm(hidden)
        parts = (self.query(seen), self.key(seen), self.value(seen))
        found = causal_attention(*(by_head(part, self.heads) for part in parts))
        return hidden + self.out(found.transpose(1, 2).reshape_as(hidden))


class Network(nn.Module):
    """A GELU network four times as wide behind a norm, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(F.gelu(self.up(self.norm(hidden))))


def by_head(hidden: Tensor, heads: int) -> Tensor:
    """[batch, length, width] as [batch, head, length, head width]."""
    return hidden.view(*hidden.shape[:2], heads, -1).transpose(1, 2)


def layer(width: int, heads: int) -> nn.Sequential:
    return nn.Sequential(Attention(width, heads), Network(width))


def heads_of(machine: Machine, width: int = WIDTH) -> int:
    return machine.size(width // HEAD, 4)


def transformer(machine: Machine, width: int = WIDTH, count: int = LAYERS) -> nn.Sequential:
    """The model on the device, the same weights on every rank."""
    width, heads = machine.size(width, 32), heads_of(machine, width)
    return place(machine, lambda: nn.Sequential(*(layer(width, heads) for _ in range(machine.size(count, 2)))))


def sequences(machine: Machine, count: int, length: int = LENGTH, width: int = WIDTH, seed: int = 0) -> Tensor:
    return machine.random(count, machine.size(length, 16), machine.size(width, 32), seed=seed)


def trained(
    machine: Machine, model: nn.Module, batch: Tensor, before: Callable[[], None] | None = None, share: float = 0.0
) -> Step:
    """A training step by squared error on the rank's own batch: its mean, or of the sum the `share`."""
    optimizer = adamw(model.parameters(), lr=RATE)

    def step() -> Tensor:
        if before is not None:
            before()
        out = model(batch).float()
        how = "sum" if share else "mean"
        return update(machine, F.mse_loss(out, batch.float(), reduction=how) * (share or 1.0), optimizer)

    return step


def lasting(machine: Machine, work: Callable[[], object], seconds: float) -> Callable[[], None]:
    """`work`, as often as takes about so long on this host; on the CPU once."""
    begin = time.perf_counter()
    work()
    took = time.perf_counter() - begin
    count = 1 if machine.tiny else max(1, math.ceil(seconds / took))

    def repeated() -> None:
        for _ in range(count):
            work()

    return repeated


def taken_in_turn(parts: Sequence[Iterator[None]]) -> None:
    """Run generators to their ends, each a piece after the other: one's exchange is under way while others compute."""
    left = list(parts)
    while left:
        left = [part for part in left if next(part, torch) is not torch]


def answered_in_turn(passes: Callable[[int, list[Tensor]], Iterator[None]], batch: Tensor, count: int) -> Step:
    """A step that only infers on so many pieces of a batch, by `taken_in_turn`; `passes` take a piece by its number."""

    @torch.no_grad()
    def step() -> Tensor:
        pieces = [*batch.chunk(count)]
        taken_in_turn([passes(at, pieces) for at in range(len(pieces))])
        return torch.cat(pieces).float().square().mean()

    return step
