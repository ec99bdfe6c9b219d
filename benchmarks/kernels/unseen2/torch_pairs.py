"""The pairs of this set that PyTorch calls by themselves; `torch_pair.py` runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn.functional import layer_norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from torch_pair import main


def _fp32(multiply):
    def run(fixed):
        torch.backends.cuda.matmul.allow_tf32 = fixed
        return multiply()

    return run


def weight_gradient():
    """The gradient of a layer's weights in fp32, or in TF32."""
    x, gradient = (torch.randn(8192, 2048, device="cuda") for _ in range(2))
    return _fp32(lambda: x.t() @ gradient)


def biased_layer():
    """A layer with its bias in fp32, or in TF32."""
    x, weights, bias = (torch.randn(*size, device="cuda") for size in ((4096, 1024), (4096, 1024), (4096,)))
    return _fp32(lambda: torch.addmm(bias, x, weights.t()))


def hand_made_norm():
    """The layer norm of 32 rows in nine operations, or in one."""
    x, weight, bias = (torch.randn(*size, device="cuda") for size in ((32, 256), (256,), (256,)))

    def by_hand():
        away = x - x.mean(-1, keepdim=True)
        return away * torch.rsqrt((away * away).mean(-1, keepdim=True) + 1e-5) * weight + bias

    return lambda fixed: layer_norm(x, (256,), weight, bias) if fixed else by_hand()


def update_each():
    """Twelve small parameters, each updated by itself, or together."""
    weights, gradients = ([torch.randn(64, 64, device="cuda") for _ in range(12)] for _ in range(2))

    def each():
        return [torch.add(w, g, alpha=-1e-3) for w, g in zip(weights, gradients, strict=True)]

    return lambda fixed: (torch._foreach_add(weights, gradients, alpha=-1e-3) if fixed else each())[-1]


if __name__ == "__main__":
    main(weight_gradient, biased_layer, hand_made_norm, update_each)
