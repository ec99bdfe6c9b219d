"""The pairs of this set that PyTorch calls by themselves; `torch_pair.py` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


def vocabulary():
    """The products of a vocabulary in fp32, or in TF32."""
    x, weights = torch.randn(2048, 1024, device="cuda"), torch.randn(32000, 1024, device="cuda")

    def run(fixed):
        torch.backends.cuda.matmul.allow_tf32 = fixed
        return x @ weights.t()

    return run


if __name__ == "__main__":
    main(vocabulary)
