"""Transformer layers of products and one fused attention kernel, with a place for each thing that can be done wrong.

No step between the products costs a notable share: residuals are added by the products, ReLU works in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    """`batch` sequences of `length` tokens; `wide`: each layer has a ReLU network four times as wide, too."""

    width: int
    heads: int
    batch: int
    length: int
    layers: int
    wide: bool = True

    def on(self, machine: Machine) -> Shape:
        """This shape, or on the CPU a tiny one."""
        if not machine.tiny:
            return self
        return Shape(32, 4, min(self.batch, 2), min(self.length, 8), self.layers, self.wide)


def unchanged(hidden: Tensor) -> Tensor:
    return hidden


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of every token to all."""
    return F.scaled_dot_product_attention(query, key, value)


class Encoder:
    """bf16 layers for inference; the same weights for the same shape.

    In every `every`-th layer `norm` sees the tokens [batch · length, width] before each product, and `attend` query,
    key and value [batch, heads, length, head width]; the others do `plain_norm` and `plain_attend`.
    """

    def __init__(self, machine: Machine, shape: Shape, every: int = 1) -> None:
        self.shape, self.every = shape, every
        self.norm = self.plain_norm = unchanged
        self.attend: Attend = attention
        self.plain_attend: Attend = attention
        width = shape.width
        sizes = [(width, 3 * width, 1.0), (width, width, 0.5)]
        sizes += [(width, 4 * width, 1.0), (4 * width, width, 0.5)] if shape.wide else []
        self.weights = [
            [
                machine.random(inputs, outputs, seed=10 * layer + number) * (scale / inputs**0.5)
                for number, (inputs, outputs, scale) in enumerate(sizes)
            ]
            for layer in range(shape.layers)
        ]

    def __call__(self, hidden: Tensor) -> Tensor:
        """The tokens [batch · length, width] after all layers."""
        shape = self.shape
        for number, (qkv, out, *network) in enumerate(self.weights):
            chosen = number % self.every == 0
            norm, attend = (self.norm, self.attend) if chosen else (self.plain_norm, self.plain_attend)
            heads = (norm(hidden) @ qkv).view(shape.batch, shape.length, 3, shape.heads, shape.width // shape.heads)
            attended = attend(*heads.permute(2, 0, 3, 1, 4).unbind(0)).transpose(1, 2).reshape(-1, shape.width)
            hidden = torch.addmm(hidden, attended, out)
            if network:
                up, down = network
                hidden = torch.addmm(hidden, torch.relu_(norm(hidden) @ up), down)
        return hidden


def tokens_of(machine: Machine, shape: Shape, seed: int = 0) -> Tensor:
    return machine.random(shape.batch * shape.length, shape.width, seed=seed)


def receipt(hidden: Tensor) -> Tensor:
    """Mean square over the first tokens, enough to tell two results apart and small enough to cost nothing."""
    return hidden[:512].float().square().mean()


def two_views(machine: Machine, pairs: int, width: int) -> Tensor:
    """`pairs` first views, then their noisy second views."""
    first = machine.random(pairs, width)
    return torch.cat([first, first + 0.5 * machine.random(pairs, width, seed=1)])
