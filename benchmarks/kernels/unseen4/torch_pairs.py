"""The pairs of this set that PyTorch calls by themselves; `torch_pair.py` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn.functional import conv2d, linear, rms_norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


def convolution():
    """A convolution of 3 x 3 in fp32, or in TF32."""
    x, weights = torch.randn(32, 256, 56, 56, device="cuda"), torch.randn(256, 256, 3, 3, device="cuda")

    def run(fixed):
        torch.backends.cudnn.allow_tf32 = fixed
        return conv2d(x, weights, padding=1)

    return run


def up_projection():
    """The first product of an MLP over a batch of sequences in fp32, or in TF32."""
    x, weights = torch.randn(8, 512, 1024, device="cuda"), torch.randn(4096, 1024, device="cuda")

    def run(fixed):
        torch.backends.cuda.matmul.allow_tf32 = fixed
        return linear(x, weights)

    return run


def rms_by_hand():
    """The RMS norm of 16 rows in six operations, or in one."""
    x, weight = torch.randn(16, 512, device="cuda"), torch.randn(512, device="cuda")

    def by_hand():
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight

    return lambda fixed: rms_norm(x, (512,), weight, 1e-5) if fixed else by_hand()


def averages_each():
    """The moving averages of sixteen small parameters, one by one, or together."""
    averages, weights = ([torch.randn(128, 64, device="cuda") for _ in range(16)] for _ in range(2))

    def each():
        return [torch.lerp(a, w, 0.1) for a, w in zip(averages, weights, strict=True)]

    return lambda fixed: (torch._foreach_lerp(averages, weights, 0.1) if fixed else each())[-1]


if __name__ == "__main__":
    main(convolution, up_projection, rms_by_hand, averages_each)
