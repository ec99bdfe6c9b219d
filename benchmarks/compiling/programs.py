"""Compiled programs with one habit each. A builder gives the step to run; `broken` says which variant."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn

Step = Callable[[], object]
LAYERS = 24
NEW_EVERY = 4


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how large: tiny sizes on the CPU in a dry run."""

    device: str
    dry: bool

    def size(self, number: int) -> int:
        return min(number, 32) if self.dry else number

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device, dtype=torch.float32 if self.dry else torch.bfloat16)


def activated(hidden: Tensor, scale: float = 1.702) -> Tensor:
    return hidden * torch.sigmoid(scale * hidden) + 0.1 * torch.cos(hidden)


def chain(work: Callable[[Tensor], Tensor], setting: Setting, **options: Any) -> Step:
    """A compiled function of a batch, four times a step."""
    compiled = torch.compile(work, **options)
    batch = setting.random(setting.size(2048), setting.size(4096))

    @torch.no_grad()
    def step() -> Tensor:
        hidden = batch
        for _ in range(4):
            hidden = compiled(hidden)
        return hidden

    return step


def print_break(broken: bool, setting: Setting) -> Step:
    """A print in the compiled function."""

    def work(hidden: Tensor) -> Tensor:
        hidden = activated(hidden)
        if broken:
            print("activated", hidden.shape[0])
        return activated(hidden)

    return chain(work, setting)


def item_break(broken: bool, setting: Setting) -> Step:
    """A decision by the value of a tensor, read to the host; fixed, the GPU decides."""

    def work(hidden: Tensor) -> Tensor:
        hidden = activated(hidden)
        if broken:
            scale = 0.5 if hidden.abs().amax().item() > 10 else 1.0
            return activated(hidden * scale)
        return activated(hidden * torch.where(hidden.abs().amax() > 10, 0.5, 1.0))

    return chain(work, setting)


def int_argument(broken: bool, setting: Setting) -> Step:
    """A whole number that changes every few steps is a constant of the graph; fixed, it comes as a tensor."""

    def scaled(hidden: Tensor, number: object) -> Tensor:
        return activated(hidden) * number

    compiled = torch.compile(scaled, dynamic=False)
    batch, count = setting.random(setting.size(2048), setting.size(4096)), [0]

    @torch.no_grad()
    def step() -> Tensor:
        count[0] += 1
        number = count[0] // NEW_EVERY
        return compiled(batch, number if broken else torch.full((), float(number), device=setting.device))

    return step


def dynamic_shape(broken: bool, setting: Setting) -> Step:
    """A new length every few steps; fixed, the length is dynamic."""
    compiled = torch.compile(activated, dynamic=not broken)
    longest, count = setting.size(4096), [0]
    source = setting.random(longest, setting.size(4096))

    @torch.no_grad()
    def step() -> Tensor:
        count[0] += 1
        return compiled(source[: longest - count[0] // NEW_EVERY])

    return step


@torch.compiler.disable
def reduced_eagerly(hidden: Tensor) -> Tensor:
    dist.all_reduce(hidden)
    return hidden


def collective_break(broken: bool, setting: Setting) -> Step:
    """A collective that the compiler may not see, in every layer; fixed, functional collectives in one graph."""
    width, layers = setting.size(2048), 8
    weights = [setting.random(width, width) / width**0.5 for _ in range(layers)]
    batch = setting.random(setting.size(512), width)
    group = dist.group.WORLD

    @torch.compile
    def forward(hidden: Tensor) -> Tensor:
        for weight in weights:
            hidden = activated(hidden @ weight)
            hidden = reduced_eagerly(hidden) if broken else functional.all_reduce(hidden, "sum", group)
            hidden = activated(hidden * 0.5)
        return hidden

    @torch.no_grad()
    def step() -> Tensor:
        return forward(batch)

    return step


TIMES_S: list[float] = []


@torch.compiler.disable
def noted() -> None:
    """Telemetry that the compiler may not see."""
    if len(TIMES_S) > 1000:
        TIMES_S.clear()
    TIMES_S.append(time.perf_counter())


class Block(nn.Module):
    """A feed-forward block with a norm; `breaks`: telemetry after it."""

    def __init__(self, width: int, breaks: bool) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.breaks = breaks

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.down(activated(self.up(self.norm(hidden))))
        if self.breaks:
            noted()
        return hidden


def stack(broken: bool, setting: Setting, width: int, layers: int = LAYERS) -> nn.Module:
    size = setting.size(width)
    blocks = nn.Sequential(*(Block(size, broken) for _ in range(4 if setting.dry else layers)))
    return blocks.to(setting.device, torch.float32 if setting.dry else torch.bfloat16)


def layer_breaks(broken: bool, setting: Setting, rows: int = 16, mode: str | None = None) -> Step:
    """Telemetry breaks the graph after every layer of a model that decodes few rows."""
    model = torch.compile(stack(broken, setting, 1024), mode=mode)
    batch = setting.random(setting.size(rows), setting.size(1024))

    @torch.no_grad()
    def step() -> object:
        if mode:
            torch.compiler.cudagraph_mark_step_begin()
        return model(batch).sum()

    return step


def layer_breaks_training(broken: bool, setting: Setting) -> Step:
    """The same breaks in training: forward and backward fall into pieces."""
    eager = stack(broken, setting, 1024, 16)
    model = torch.compile(eager)
    optimizer = torch.optim.AdamW(eager.parameters(), lr=1e-4, fused=True)
    batch = setting.random(setting.size(1024), setting.size(1024))

    def step() -> object:
        loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


PROGRAMS: dict[str, Callable[[bool, Setting], Step]] = {
    "print_break": print_break,
    "item_break": item_break,
    "int_argument": int_argument,
    "dynamic_shape": dynamic_shape,
    "collective_break": collective_break,
    "layer_breaks": layer_breaks,
    "layer_breaks_wide": partial(layer_breaks, rows=4096),
    "layer_breaks_training": layer_breaks_training,
    "reduce_overhead": partial(layer_breaks, mode="reduce-overhead"),
}
TWO_GPUS = ("collective_break",)
SLOW = ("int_argument", "dynamic_shape")  # compile while they run: few steps only
