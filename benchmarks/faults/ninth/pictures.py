"""Pictures, sound and recommendation: layouts, types, transfers and small kernels around their networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

RATE = 1e-4


class Inverted(nn.Module):
    """ConvNeXt's block: a depthwise convolution, a norm over channels, two products by channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, image: Tensor) -> Tensor:
        found = self.norm(self.spread(image).permute(0, 2, 3, 1))
        return image + self.down(F.gelu(self.up(found))).permute(0, 3, 1, 2)


def norms_of_channels_permuted(_: str, machine: Machine) -> Program:
    """ConvNeXt's norms and products permute NCHW images there and back; fixed, channels_last makes that free."""
    batch, size, width = machine.size(32, 2), machine.size(56, 8), machine.size(192, 8)
    image = machine.random(batch, width, size, size)

    def training(layout: torch.memory_format) -> Step:
        model = place(machine, lambda: nn.Sequential(*(Inverted(width) for _ in range(6)))).to(memory_format=layout)
        optimizer, given = adamw(model.parameters(), lr=RATE), image.contiguous(memory_format=layout)
        return lambda: update(machine, model(given).float().square().mean(), optimizer)

    return Program(training(torch.contiguous_format), training(torch.channels_last), tolerance=5e-2)


def patches_in_fp32(_: str, machine: Machine) -> Program:
    """A vision transformer's layers answer in fp32, TF32 left off; fixed, bf16 under autocast."""
    width, heads = machine.size(1024, 32), machine.size(16, 2)
    layer = lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)  # noqa: E731
    model = place(machine, lambda: nn.Sequential(*(layer() for _ in range(6))), torch.float32)
    patches = machine.random(machine.size(32, 2), machine.size(256, 8), width, dtype=torch.float32)

    def training(cast: bool) -> Step:
        kept = deepcopy(model)
        optimizer = adamw(kept.parameters(), lr=RATE)

        def step() -> Tensor:
            with torch.autocast(machine.device.type, torch.bfloat16, enabled=cast):
                loss = kept(patches).float().square().mean()
            return update(machine, loss, optimizer)

        return step

    return Program(training(False), training(True), tolerance=5e-2)


def waves_bent_by_hand(_: str, machine: Machine) -> Program:
    """A vocoder's snake activations are five kernels each; fixed, torch.compile of the activation."""
    batch, width, length = machine.size(16, 2), machine.size(256, 8), machine.size(8192, 32)
    wave, bend = machine.random(batch, width, length), machine.random(width, 1).abs() + 0.5
    model = place(machine, lambda: nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(4)))

    def snake(found: Tensor) -> Tensor:
        return found + torch.sin(found * bend).square() / (bend + 1e-6)

    def answering(activate: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            found = wave
            for layer in model:
                found = activate(layer(found))
            return found.float().square().mean()

        return step

    return Program(answering(snake), answering(torch.compile(snake) if machine.cuda else snake), tolerance=5e-2)


def adapters_in_fp32(_: str, machine: Machine) -> Program:
    """Adapters in fp32 beside frozen bf16 layers cast what they are given there and back; fixed, they are bf16."""
    width, rank, rows = machine.size(2048, 32), machine.size(32, 4), machine.size(8192)
    count, batch = machine.size(8, 2), machine.random(rows, width)
    frozen = place(machine, lambda: nn.ModuleList(nn.Linear(width, width) for _ in range(count))).requires_grad_(False)

    def training(dtype: torch.dtype) -> Step:
        pair = lambda: nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False))  # noqa: E731
        adapters = place(machine, lambda: nn.ModuleList(pair() for _ in range(count)), dtype)
        optimizer = adamw(adapters.parameters(), lr=RATE)

        def step() -> Tensor:
            hidden = batch
            for layer, adapter in zip(frozen, adapters, strict=True):
                hidden = layer(hidden) + adapter(hidden.to(dtype)).to(hidden.dtype)
            return update(machine, hidden.float().square().mean(), optimizer)

        return step

    return Program(training(torch.float32), training(torch.bfloat16), tolerance=5e-2)


def weights_fetched_per_layer(_: str, machine: Machine) -> Program:
    """Half of the layers live in ordinary host memory and are fetched whenever they run; fixed, all are on the GPU."""
    width, rows, count = machine.size(2048), machine.size(16384), 8
    batch = machine.random(rows, width)
    weights = [machine.random(width, width, seed=seed) / width**0.5 for seed in range(count)]

    def answering(kept: Sequence[Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for weight in kept:
                hidden = F.relu(hidden @ weight.to(machine.device))
            return hidden.float().square().mean()

        return step

    away = [weight.cpu() if number % 2 else weight for number, weight in enumerate(weights)]
    return Program(answering(away), answering(weights), tolerance=5e-2)


def averaged_by_a_function(_: str, machine: Machine) -> Program:
    """An average of the weights goes by avg_fn, parameter by parameter; fixed, by multi_avg_fn, all in a few calls."""
    width, rows = machine.size(512, 16), machine.size(1024)
    batch = machine.random(rows, width)

    def training(**how: Callable[..., object]) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(48))))
        optimizer, averaged = adamw(model.parameters(), lr=RATE), AveragedModel(model, **how)  # type: ignore[arg-type]

        def step() -> Tensor:
            loss = update(machine, F.mse_loss(model(batch), batch), optimizer)
            averaged.update_parameters(model)
            return loss.float()

        return step

    return Program(
        training(avg_fn=get_ema_avg_fn(0.99)), training(multi_avg_fn=get_ema_multi_avg_fn(0.99)), tolerance=5e-2
    )


def rmsprop_one_by_one(_: str, machine: Machine) -> Program:
    """RMSprop(foreach=False) with momentum goes through many weights; fixed, foreach=True."""
    width, rows = machine.size(768, 16), machine.size(2048)
    batch = machine.random(rows, width)

    def training(together: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(40))))
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-6, momentum=0.9, foreach=together)
        return lambda: update(machine, F.mse_loss(model(batch), batch), optimizer).float()

    return Program(training(False), training(True), tolerance=5e-2)


def noise_removed_in_small_steps(_: str, machine: Machine) -> Program:
    """A sampler runs a small network thirty times, kernel by kernel; fixed, one CUDA graph."""
    size, width = machine.size(32, 8), machine.size(64, 8)
    layers = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(4, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
        nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1),
    )  # fmt: skip
    model = place(machine, layers).to(memory_format=torch.channels_last)
    noise = machine.random(4, 4, size, size).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def sample() -> Tensor:
        found = noise
        for number in range(30):
            found = found - model(found) * (1.0 / (number + 2))
        return found.float().square().mean()

    return Program(sample, machine.graphed(sample), tolerance=5e-2)


def sampled_as_a_graph(_: str, machine: Machine) -> Program:
    """Nothing is planted: convolutions of a sampler, channels last, in bf16, as one CUDA graph."""
    size, width = machine.size(64, 8), machine.size(512, 8)
    model = place(machine, lambda: nn.Sequential(*(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))))
    model, noise = model.to(memory_format=torch.channels_last), machine.random(8, width, size, size)
    noise = noise.contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def sample() -> Tensor:
        found = noise
        for _ in range(4):
            found = model(found)
        return found.float().square().mean()

    step = machine.graphed(sample)
    return Program(step, step)
