"""Second set: transformer layers for inference that cast, copy, rotate or mask by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.program import Program, Step
from benchmarks.faults.second_models import Attend, Encoder, Shape, attention, receipt, tokens_of
from torch import Tensor


def encoding(machine: Machine, encoder: Encoder) -> Step:
    tokens = tokens_of(machine, encoder.shape)

    @torch.no_grad()
    def step() -> Tensor:
        with machine.phase("forward"):
            return receipt(encoder(tokens))

    return step


def attending(machine: Machine, shape: Shape, attend: Attend, every: int = 1) -> Step:
    encoder = Encoder(machine, shape, every)
    encoder.attend = attend
    return encoding(machine, encoder)


def padding_mask_added(severity: str, machine: Machine) -> Program:
    """An encoder adds a float padding mask to scores it holds in memory; fixed, fused attention takes the mask."""
    shape = {
        "high": Shape(1024, 16, 8, 1024, 6), "low": Shape(1024, 16, 32, 256, 6), "harmless": Shape(4096, 32, 128, 64, 2)
    }[severity].on(machine)  # fmt: skip
    lengths = shape.length - torch.arange(shape.batch, device=machine.device) % (shape.length // 2)
    seen = (torch.arange(shape.length, device=machine.device) < lengths[:, None])[:, None, None, :]
    added = (1.0 - seen.to(torch.bfloat16)) * torch.finfo(torch.bfloat16).min
    scale = (shape.width // shape.heads) ** -0.5

    def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = torch.matmul(query, key.transpose(-1, -2)) * scale
        return torch.matmul(F.softmax(scores + added, dim=-1), value)

    def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=seen)

    return Program(attending(machine, shape, written_out), attending(machine, shape, fused), tolerance=5e-2)


def rotary_written_out(severity: str, machine: Machine) -> Program:
    """Rotary embeddings turn queries and keys in five kernels each; fixed, torch.compile makes one of them.

    Harmless: one layer of three rotates, and the layers are wide.
    """
    shape, every = {
        "high": (Shape(1024, 8, 16, 1024, 8, wide=False), 1),
        "low": (Shape(4096, 32, 8, 1024, 3, wide=False), 1),
        "harmless": (Shape(8192, 64, 4, 1024, 3), 3),
    }[severity]
    shape = shape.on(machine)
    half = shape.width // shape.heads // 2
    frequencies = 10_000.0 ** (-torch.arange(half, device=machine.device) / half)
    places = torch.arange(shape.length, device=machine.device, dtype=torch.float32)
    angles = torch.outer(places, frequencies).repeat(1, 2)
    cosine, sine = angles.cos().bfloat16(), angles.sin().bfloat16()

    def rotate(heads: Tensor) -> Tensor:
        first, second = heads[..., :half], heads[..., half:]
        return heads * cosine + torch.cat((-second, first), dim=-1) * sine

    def step_with(turn: Callable[[Tensor], Tensor]) -> Step:
        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(turn(query), turn(key), value, is_causal=True)

        return attending(machine, shape, attend, every)

    return Program(step_with(rotate), step_with(torch.compile(rotate, dynamic=False)), tolerance=5e-2)


def heads_made_contiguous(severity: str, machine: Machine) -> Program:
    """Query, key and value are copied to be contiguous, which fused attention does not need; fixed, they are not."""
    shape, every = {
        "high": (Shape(1024, 16, 64, 256, 12, wide=False), 1),
        "low": (Shape(1024, 16, 64, 256, 8), 1),
        "harmless": (Shape(4096, 32, 32, 256, 3), 3),
    }[severity]
    shape = shape.on(machine)

    def copied(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query.contiguous(), key.contiguous(), value.contiguous())

    return Program(
        attending(machine, shape, copied, every), attending(machine, shape, attention, every), tolerance=2e-2
    )


def norm_cast_by_hand(severity: str, machine: Machine) -> Program:
    """Every layer norm is cast to fp32 and back by hand; fixed, the bf16 kernel, which computes in fp32 by itself.

    Harmless: one layer of three is cast, and the layers are wide.
    """
    shape, every = {
        "high": (Shape(1024, 16, 64, 256, 12, wide=False), 1),
        "low": (Shape(2048, 16, 64, 256, 3), 1),
        "harmless": (Shape(8192, 64, 16, 256, 3), 3),
    }[severity]
    shape = shape.on(machine)
    scale = machine.random(shape.width, seed=90) * 0.1 + 1
    shift = machine.random(shape.width, seed=91) * 0.1

    def plain(hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, (shape.width,), scale, shift)

    def cast(hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden.float(), (shape.width,), scale.float(), shift.float()).to(hidden.dtype)

    def step_with(norm: Callable[[Tensor], Tensor]) -> Step:
        encoder = Encoder(machine, shape, every)
        encoder.norm, encoder.plain_norm = norm, plain
        return encoding(machine, encoder)

    return Program(step_with(cast), step_with(plain), tolerance=2e-2)
