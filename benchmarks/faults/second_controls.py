"""Second set of healthy programs: nothing is planted, and the time goes to kernels near their ceiling."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Convolutions, Mlp, adamw, place, update
from benchmarks.faults.program import Program
from benchmarks.faults.second_models import Encoder, Shape, receipt, tokens_of, two_views
from torch import Tensor


def encoder_inference(severity: str, machine: Machine) -> Program:
    """Wide transformer layers with fused attention infer, residuals added by the products."""
    shape = {
        "large": Shape(8192, 64, 4, 1024, 2),
        "medium": Shape(4096, 32, 8, 1024, 2),
        "small": Shape(4096, 32, 16, 256, 2),
    }[severity].on(machine)
    encoder, tokens = Encoder(machine, shape), tokens_of(machine, shape)

    @torch.no_grad()
    def step() -> Tensor:
        with machine.phase("forward"):
            return receipt(encoder(tokens))

    return Program(step, step)


def diffusion_sampling(severity: str, machine: Machine) -> Program:
    """A channels_last network denoises along a schedule of Python numbers, without asking the device anything."""
    width, side, batch, layers = {
        "large": (512, 28, 256, 4), "medium": (512, 28, 128, 4), "small": (256, 56, 64, 4)
    }[severity]  # fmt: skip
    width, side, batch = machine.size(width), machine.size(side), machine.size(batch, 2)
    model = place(machine, lambda: Convolutions(width, layers)).to(memory_format=torch.channels_last)
    start = machine.random(batch, width, side, side).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        image = start
        for weight in (0.1, 0.2, 0.3):
            denoised = image
            for layer in model.layers:
                denoised = layer(denoised).relu_()
            image = torch.lerp(image, denoised, weight)
        return image[0].float().mean()

    return Program(step, step)


def embedding_recommender(severity: str, machine: Machine) -> Program:
    """A recommender sums embeddings of resident histories and scores them with wide products."""
    width, users, history, layers = {
        "large": (8192, 8192, 4, 3), "medium": (4096, 16384, 4, 4), "small": (4096, 8192, 4, 4)
    }[severity]  # fmt: skip
    width, users, history = machine.size(width), machine.size(users), machine.size(history)
    items = machine.size(65536)
    table = machine.random(items, width) * 0.1
    generator = torch.Generator(machine.device).manual_seed(3)
    bought = torch.randint(0, items, (users, history), generator=generator, device=machine.device)
    model = place(machine, lambda: Mlp(width, layers))

    @torch.no_grad()
    def step() -> Tensor:
        hidden = F.embedding_bag(bought, table, mode="sum")
        for layer in model.layers:
            hidden = layer(hidden).relu_()
        return hidden[0].float().mean()

    return Program(step, step)


def contrastive_training(severity: str, machine: Machine) -> Program:
    """Two views of a batch are contrasted in bf16 behind a wide network, trained with fused AdamW."""
    width, pairs, layers = {"large": (8192, 4096, 2), "medium": (4096, 4096, 6), "small": (4096, 4096, 3)}[severity]
    width, pairs = machine.size(width), machine.size(pairs)
    model = place(machine, lambda: Mlp(width, layers))
    optimizer = adamw(model.parameters(), lr=1e-5)
    views = two_views(machine, pairs, width)
    target = torch.arange(min(pairs, 1024), device=machine.device)

    def step() -> Tensor:
        with machine.phase("forward"):
            first, second = model(views).split(pairs)
            similar = first[: len(target)] @ second[: len(target)].t() / width
            loss = F.cross_entropy(similar, target)
        return update(machine, loss, optimizer).float()

    return Program(step, step)
