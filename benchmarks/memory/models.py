"""The transformers that are measured, written in plain PyTorch as people write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint


def rotary(length: int, width: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
    frequency = 1.0 / 10000 ** (torch.arange(0, width, 2, device=device).float() / width)
    angle = torch.outer(torch.arange(length, device=device).float(), frequency)
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


def rotated(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = (part[None, :, None, :].to(x.dtype) for part in table)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Attention(nn.Module):
    def __init__(self, m: dict[str, Any], attention: str) -> None:
        super().__init__()
        self.heads, self.kv_heads = m["heads"], m.get("kv_heads", m["heads"])
        self.width = m["hidden"] // self.heads
        self.causal, self.flash = m["kind"] == "decoder", attention == "flash"
        self.fused_qkv = m.get("fused_qkv", False)
        kv, bias = self.kv_heads * self.width, m.get("bias", False)
        if self.fused_qkv:
            self.qkv = nn.Linear(m["hidden"], m["hidden"] + 2 * kv, bias=bias)
        else:
            self.q = nn.Linear(m["hidden"], m["hidden"], bias=bias)
            self.k = nn.Linear(m["hidden"], kv, bias=bias)
            self.v = nn.Linear(m["hidden"], kv, bias=bias)
        self.out = nn.Linear(m["hidden"], m["hidden"], bias=bias)
        self.cache: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, table: tuple[Tensor, Tensor] | None, start: int = 0) -> Tensor:
        b, s, h = x.shape
        if self.fused_qkv:
            q, k, v = self.qkv(x).split([h, self.kv_heads * self.width, self.kv_heads * self.width], dim=-1)
        else:
            q, k, v = self.q(x), self.k(x), self.v(x)
        q = q.view(b, s, self.heads, self.width)
        k = k.view(b, s, self.kv_heads, self.width)
        v = v.view(b, s, self.kv_heads, self.width)
        if table is not None:
            q, k = rotated(q, table), rotated(k, table)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if self.cache is not None:
            self.cache[0][:, :, start : start + s] = k
            self.cache[1][:, :, start : start + s] = v
            k, v = self.cache[0][:, :, : start + s], self.cache[1][:, :, : start + s]
        grouped = self.kv_heads != self.heads
        if self.flash:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                y = functional.scaled_dot_product_attention(
                    q, k, v, is_causal=self.causal and s > 1, enable_gqa=grouped
                )
        else:
            scores = (q @ k.transpose(-2, -1)) * self.width**-0.5
            mask = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1)
            y = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, s, h))


class Block(nn.Module):
    def __init__(self, m: dict[str, Any], attention: str) -> None:
        super().__init__()
        norm = nn.RMSNorm if m.get("norm") == "rmsnorm" else nn.LayerNorm
        self.gated, bias = m.get("gated", False), m.get("bias", False)
        self.norm1, self.attention, self.norm2 = norm(m["hidden"]), Attention(m, attention), norm(m["hidden"])
        self.up = nn.Linear(m["hidden"], m["feedforward"], bias=bias)
        self.gate = nn.Linear(m["hidden"], m["feedforward"], bias=bias) if self.gated else None
        self.down = nn.Linear(m["feedforward"], m["hidden"], bias=bias)
        self.dropout = m.get("dropout", 0.0)

    def forward(self, x: Tensor, table: tuple[Tensor, Tensor] | None = None, start: int = 0) -> Tensor:
        y = self.attention(self.norm1(x), table, start)
        x = x + (functional.dropout(y, self.dropout, self.training) if self.dropout else y)
        y = self.norm2(x)
        y = self.down(
            functional.silu(self.gate(y)) * self.up(y) if self.gate is not None else functional.gelu(self.up(y))
        )
        return x + (functional.dropout(y, self.dropout, self.training) if self.dropout else y)


class Transformer(nn.Module):
    """Decoder, encoder (every position predicted) or vision transformer (patches, classes)."""

    def __init__(self, m: dict[str, Any], attention: str = "flash", recompute: str = "none") -> None:
        super().__init__()
        self.m, self.recompute = m, recompute
        self.tokens = (
            nn.Conv2d(3, m["hidden"], m["patch"], m["patch"])
            if m["kind"] == "vision"
            else nn.Embedding(m["vocab"], m["hidden"])
        )
        self.positions = nn.Embedding(m["max_positions"], m["hidden"]) if m.get("positions") == "learned" else None
        self.blocks = nn.ModuleList(Block(m, attention) for _ in range(m["layers"]))
        self.norm = (nn.RMSNorm if m.get("norm") == "rmsnorm" else nn.LayerNorm)(m["hidden"])
        self.head = nn.Linear(m["hidden"], m["vocab"], bias=False)
        if m.get("tied"):
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, targets: Tensor | None = None, start: int = 0) -> Tensor:
        x = self.tokens(tokens)
        if self.m["kind"] == "vision":
            x = x.flatten(2).transpose(1, 2)
        s = x.shape[1]
        if self.positions is not None:
            x = x + self.positions(torch.arange(start, start + s, device=x.device))
        table = None
        if self.m.get("positions") == "rotary":
            whole = rotary(start + s, self.m["hidden"] // self.m["heads"], x.device)
            table = (whole[0][start:], whole[1][start:])
        for block in self.blocks:
            full = self.recompute == "full"
            x = checkpoint(block, x, table, use_reentrant=False) if full else block(x, table, start)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, -1])
        if self.m["kind"] == "vision":
            return functional.cross_entropy(self.head(x.mean(1)).float(), targets)
        return functional.cross_entropy(self.head(x).flatten(0, 1).float(), targets.flatten())
