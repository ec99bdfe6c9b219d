"""The pointwise work of a transformer layer as two Triton kernels. Without a GPU the same arithmetic in PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

EPSILON = 1e-5

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of PyTorch
    triton = None

if triton is not None:

    @triton.jit
    def add_rms_norm_kernel(residual, update, weight, total, normed, columns, epsilon, BLOCK: tl.constexpr):  # noqa: N803, PLR0917
        """One row: total = residual + update, and its root-mean-square norm."""
        row = tl.program_id(0).to(tl.int64) * columns
        at = tl.arange(0, BLOCK)
        inside = at < columns
        value = tl.load(residual + row + at, mask=inside, other=0.0)
        value += tl.load(update + row + at, mask=inside, other=0.0)
        tl.store(total + row + at, value, mask=inside)
        wide = value.to(tl.float32)
        scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / columns + epsilon)
        scaled = (wide * scale).to(value.dtype) * tl.load(weight + at, mask=inside, other=0.0)
        tl.store(normed + row + at, scaled, mask=inside)

    @triton.jit
    def rms_norm_kernel(residual, weight, normed, columns, epsilon, BLOCK: tl.constexpr):  # noqa: N803
        """One row's root-mean-square norm."""
        row = tl.program_id(0).to(tl.int64) * columns
        at = tl.arange(0, BLOCK)
        inside = at < columns
        value = tl.load(residual + row + at, mask=inside, other=0.0)
        wide = value.to(tl.float32)
        scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / columns + epsilon)
        scaled = (wide * scale).to(value.dtype) * tl.load(weight + at, mask=inside, other=0.0)
        tl.store(normed + row + at, scaled, mask=inside)

    @triton.jit
    def silu_times_kernel(gate, up, product, columns, gate_stride, up_stride, BLOCK: tl.constexpr):  # noqa: N803, PLR0917
        """A stretch of one row: silu(gate) * up. The inputs may be halves of one wider matrix."""
        row = tl.program_id(0).to(tl.int64)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = at < columns
        opened = tl.load(gate + row * gate_stride + at, mask=inside, other=0.0).to(tl.float32)
        opened = (opened * tl.sigmoid(opened)).to(product.dtype.element_ty)
        value = opened * tl.load(up + row * up_stride + at, mask=inside, other=0.0)
        tl.store(product + row * columns + at, value, mask=inside)


def rms_norm(hidden: Tensor, weight: Tensor) -> Tensor:
    """As model code writes it, operation by operation, in fp32 inside."""
    wide = hidden.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
    return wide.to(hidden.dtype) * weight


def fused_rms_norm(hidden: Tensor, weight: Tensor) -> Tensor:
    """The same in one kernel."""
    if not _on_gpu(hidden):
        return rms_norm(hidden, weight)
    normed, columns = torch.empty_like(hidden), hidden.shape[-1]
    block = triton.next_power_of_2(columns)
    rms_norm_kernel[(hidden.numel() // columns,)](hidden, weight, normed, columns, EPSILON, BLOCK=block, num_warps=8)
    return normed


def fused_add_rms_norm(residual: Tensor, update: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """residual + update, and its norm, in one kernel."""
    if not _on_gpu(residual):
        total = residual + update
        return total, rms_norm(total, weight)
    total, normed, columns = torch.empty_like(residual), torch.empty_like(residual), residual.shape[-1]
    block = triton.next_power_of_2(columns)
    add_rms_norm_kernel[(residual.numel() // columns,)](
        residual, update, weight, total, normed, columns, EPSILON, BLOCK=block, num_warps=8
    )
    return total, normed


def fused_silu_times(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up in one kernel; rows may be longer than what is read of them."""
    if not _on_gpu(gate):
        return F.silu(gate) * up
    rows, columns = gate.shape
    product = torch.empty(rows, columns, dtype=gate.dtype, device=gate.device)
    block = 2048
    grid = (rows, triton.cdiv(columns, block))
    silu_times_kernel[grid](gate, up, product, columns, gate.stride(0), up.stride(0), BLOCK=block, num_warps=8)
    return product


def _on_gpu(tensor: Tensor) -> bool:
    return triton is not None and tensor.is_cuda
