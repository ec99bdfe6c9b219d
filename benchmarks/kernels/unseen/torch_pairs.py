"""The pairs of this set that PyTorch calls by themselves; `torch_pair.py` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


def wide_output():
    """Products over a K of 64: the output is written in fp32, or in bf16."""
    a, b = (torch.randn(8192, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda fixed: a @ b.t() if fixed else torch.mm(a, b.t(), out_dtype=torch.float32)


def _fp32(multiply):
    def run(fixed):
        torch.backends.cuda.matmul.allow_tf32 = fixed
        return multiply()

    return run


def fp32_product():
    """A product of a layer in fp32, or in TF32."""
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 2048, device="cuda")
    return _fp32(lambda: a @ b)


def fp32_batch():
    """Products of the heads of an attention in fp32, or in TF32."""
    q, k = (torch.randn(32, 1024, 128, device="cuda") for _ in range(2))
    return _fp32(lambda: torch.bmm(q, k.transpose(1, 2)))


def wide_vector_product():
    """A matrix of 512 MB in fp32 times a vector, or the same in bf16."""
    weights, x = torch.randn(16384, 8192, device="cuda"), torch.randn(8192, device="cuda")
    narrow = weights.bfloat16(), x.bfloat16()
    return lambda fixed: torch.mv(*narrow) if fixed else torch.mv(weights, x)


if __name__ == "__main__":
    main(wide_output, fp32_product, fp32_batch, wide_vector_product)
