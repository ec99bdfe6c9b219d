"""Copies that change a tensor's layout or type and nothing else, and shapes that the fast kernels do not take."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Convolutions, Mlp, adamw, place, training, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn


def channels_first(severity: str, machine: Machine) -> Program:
    """A bf16 convolutional network keeps NCHW, so cuDNN converts around its kernels; fixed, channels_last.

    Harmless: one early convolution of few channels is NCHW, the rest channels_last.
    """
    width, side, batch, layers = {"high": (128, 56, 64, 6), "low": (512, 28, 64, 4), "harmless": (512, 28, 128, 4)}[
        severity
    ]
    width, side, batch = machine.size(width), machine.size(side), machine.size(batch, 2)

    def step_with(layout: torch.memory_format) -> Step:
        early = place(machine, lambda: Convolutions(machine.size(16), 1)).to(memory_format=layout)
        rest = torch.channels_last if severity == "harmless" else layout
        model = place(machine, lambda: Convolutions(width, layers)).to(memory_format=rest)
        plain = training(machine, model, adamw(model.parameters()))
        small = machine.random(8, machine.size(16), 32, 32).to(memory_format=layout)
        images = machine.random(batch, width, side, side).to(memory_format=rest)
        target = machine.random(batch, width, side, side, seed=1).to(memory_format=rest)

        def step() -> Tensor:
            with torch.no_grad():
                offset = early(small).mean()
            return plain(images + offset, target).float()

        return step

    return Program(step_with(torch.contiguous_format), step_with(torch.channels_last), tolerance=5e-2)


def needless_contiguous(severity: str, machine: Machine) -> Program:
    """A transposed operand is made contiguous before a product that takes it as it is; fixed, it is left so."""
    width, tokens, layers = {"high": (1024, 16384, 8), "low": (4096, 8192, 5), "harmless": (8192, 8192, 3)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    rows = max(1, tokens // 64) if severity == "harmless" else tokens

    def step_with(copy: bool) -> Step:
        weights = [machine.random(width, width, seed=layer) * (2 / width) ** 0.5 for layer in range(layers)]
        down = machine.random(width, machine.size(256), seed=40) * 0.01
        batch = machine.random(width, tokens)

        @torch.no_grad()
        def step() -> Tensor:
            hidden, total = batch, torch.zeros((), device=machine.device)  # hidden is [width, tokens]: features first
            for weight in weights:
                hidden = torch.relu_(weight @ hidden)
                flipped = hidden.t()[:rows]
                total = total + ((flipped.contiguous() if copy else flipped) @ down).mean()
            return total

        return step

    return Program(step_with(copy=True), step_with(copy=False), tolerance=5e-2)


def cast_and_back(severity: str, machine: Machine) -> Program:
    """Every layer's output goes to fp32 and back to bf16, which changes no bit; fixed, it stays."""
    width, tokens, layers = {"high": (2048, 16384, 4), "low": (4096, 8192, 4), "harmless": (8192, 8192, 3)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    rows = max(1, tokens // 64) if severity == "harmless" else tokens

    def step_with(cast: bool) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden, seen = batch, torch.zeros((), device=machine.device)
            for layer in model.layers:
                hidden = F.relu(layer(hidden))
                part = hidden[:rows].float().to(hidden.dtype) if cast else hidden[:rows]
                hidden = part if rows == tokens else hidden
                seen = seen + part[0].float().mean()
            return seen

        return step

    return Program(step_with(cast=True), step_with(cast=False))


def weights_cast_every_call(severity: str, machine: Machine) -> Program:
    """fp32 weights are cast to bf16 in every call of an inference; fixed, they are stored in bf16."""
    width, tokens, layers = {"high": (8192, 512, 6), "low": (8192, 2048, 6), "harmless": (4096, 32768, 4)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)

    def step_with(stored: torch.dtype) -> Step:
        weights = [
            (machine.random(width, width, seed=layer) * (2 / width) ** 0.5).to(stored) for layer in range(layers)
        ]
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for weight in weights:
                hidden = F.relu(hidden @ weight.to(batch.dtype))
            return hidden.float().mean()

        return step

    return Program(step_with(torch.float32), step_with(torch.bfloat16), tolerance=2e-2)


def logits_cast_up(severity: str, machine: Machine) -> Program:
    """The logits of a large vocabulary are copied to fp32 before the loss; fixed, the loss takes them in bf16."""
    width, tokens, vocabulary = {
        "high": (1024, 8192, 32768),
        "low": (4096, 8192, 16384),
        "harmless": (4096, 16384, 64),
    }[severity]
    width, tokens, vocabulary = machine.size(width), machine.size(tokens), machine.size(vocabulary)
    depth = 1 if severity == "high" else 4

    def step_with(cast: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(Mlp(width, depth), nn.Linear(width, vocabulary, bias=False)))
        optimizer = adamw(model.parameters())
        batch = machine.random(tokens, width)
        target = torch.arange(tokens, device=machine.device) % vocabulary

        def step() -> Tensor:
            with machine.phase("forward"):
                logits = model(batch)
                loss = F.cross_entropy(logits.float() if cast else logits, target)
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(cast=True), step_with(cast=False), tolerance=5e-2)


def odd_width(severity: str, machine: Machine) -> Program:
    """Layers are 4095 or so wide, which no aligned kernel takes; fixed, zeros pad them to a multiple of 64."""
    width, tokens, layers, odd = {
        "high": (4096, 8192, 6, 6),
        "low": (4096, 8192, 6, 1),
        "harmless": (4096, 8192, 6, 0),
    }[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    narrow = machine.size(128, 4) - 1

    def step_with(padded: bool) -> Step:
        weights = []
        for layer in range(layers):
            weight = machine.random(width, width, seed=layer) * (2 / width) ** 0.5
            cut = odd > layer
            if cut and padded:
                weight[width - 1 :], weight[:, width - 1 :] = 0, 0
            weights.append(weight[: width - 1, : width - 1].contiguous() if cut and not padded else weight)
        small = machine.random(width, narrow, seed=50) * 0.01
        small = F.pad(small, (0, 1)) if padded else small
        batch = machine.random(tokens, width)
        batch[:, width - 1 :] = 0
        start = batch if padded or not odd else batch[:, : width - 1].contiguous()

        @torch.no_grad()
        def step() -> Tensor:
            hidden = start
            for weight in weights:
                if hidden.shape[1] < weight.shape[0]:
                    hidden = F.pad(hidden, (0, 1))
                hidden = F.relu(hidden @ weight)
            if not odd:
                hidden = hidden[:256] @ small
            return hidden.float().sum() / tokens

        return step

    return Program(step_with(padded=False), step_with(padded=True), tolerance=2e-2)


def vocabulary_not_padded(severity: str, machine: Machine) -> Program:
    """A head of 50,257 classes is trained; fixed, it is padded to 50,304, the added classes barred by their bias."""
    width, tokens, depth = {"high": (1024, 8192, 2), "low": (2048, 8192, 12), "harmless": (4096, 16384, 5)}[severity]
    width, tokens = machine.size(width), machine.size(tokens)
    classes = machine.size(50257 if severity != "harmless" else 257, 17)

    def step_with(padding: int) -> Step:
        trunk = place(machine, lambda: Mlp(width, depth))
        weight = F.pad(machine.random(classes, width, seed=3) * 0.02, (0, 0, 0, padding)).requires_grad_(True)
        bias = torch.zeros(classes + padding, dtype=torch.bfloat16, device=machine.device)
        bias[classes:] = -1e4
        optimizer = adamw([*trunk.parameters(), weight])
        batch = machine.random(tokens, width)
        target = torch.arange(tokens, device=machine.device) % classes

        def step() -> Tensor:
            with machine.phase("forward"):
                loss = F.cross_entropy(F.linear(trunk(batch), weight, bias), target)
            return update(machine, loss, optimizer).float()

        return step

    return Program(step_with(0), step_with(-classes % 64), tolerance=2e-2)
