"""The pairs of this set that PyTorch calls by themselves; `torch_pair.py` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn.functional import linear

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


def attention_scores():
    """Queries times keys of 32 heads in fp32, or in TF32."""
    queries, keys = (torch.randn(32, 2048, 256, device="cuda") for _ in range(2))

    def run(fixed):
        torch.backends.cuda.matmul.allow_tf32 = fixed
        return torch.bmm(queries, keys.transpose(1, 2))

    return run


def recurrent_gates():
    """The gates of a recurrent layer over a long sequence in fp32, or in TF32."""
    x, weights = torch.randn(4096, 2048, device="cuda"), torch.randn(6144, 2048, device="cuda")
    bias = torch.randn(6144, device="cuda")

    def run(fixed):
        torch.backends.cuda.matmul.allow_tf32 = fixed
        return linear(x, weights, bias)

    return run


def cell_by_hand():
    """One step of a small LSTM cell in eleven operations, or in one."""
    of_input, of_state = (torch.randn(8, 1024, device="cuda") for _ in range(2))
    cell = torch.randn(8, 256, device="cuda")

    def by_hand():
        i, f, g, o = (of_input + of_state).chunk(4, 1)
        return torch.sigmoid(o) * torch.tanh(torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g))

    return lambda fixed: torch.ops.aten._thnn_fused_lstm_cell(of_input, of_state, cell)[0] if fixed else by_hand()


def losses_each():
    """Twelve small losses, each by itself or all together."""
    found, wanted = (torch.randn(12, 2048, device="cuda") for _ in range(2))
    parts = list(zip(found.unbind(), wanted.unbind(), strict=True))

    def each():
        return torch.stack([((f - w) ** 2).mean() for f, w in parts])

    return lambda fixed: torch.linalg.vector_norm(found - wanted, dim=1) ** 2 / 2048 if fixed else each()


if __name__ == "__main__":
    main(attention_scores, recurrent_gates, cell_by_hand, losses_each)
