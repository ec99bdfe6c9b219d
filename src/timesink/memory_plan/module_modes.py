"""The PyTorch modes that `module` runs a step under: storages counted, attention fused, autocast on the meta device.

PyTorch's own autocast knows no meta device, so its two lists are applied here: what runs in 16 bits, with the copies of
weights kept until forward ends, and what runs in 32.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

_IN_16_BITS = {
    functional.linear,
    functional.conv1d,
    functional.conv2d,
    functional.conv3d,
    functional.scaled_dot_product_attention,
    torch.matmul,
    torch.mm,
    torch.bmm,
    torch.addmm,
    torch.baddbmm,
    torch.einsum,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.bmm,
    torch.Tensor.mm,
}
_IN_32_BITS = {
    functional.layer_norm,
    functional.group_norm,
    functional.softmax,
    functional.log_softmax,
    functional.cross_entropy,
    functional.nll_loss,
    functional.mse_loss,
    functional.binary_cross_entropy_with_logits,
    torch.softmax,
    torch.log_softmax,
    torch.exp,
    torch.log,
    torch.cumsum,
    torch.sum,
    torch.Tensor.softmax,
    torch.Tensor.sum,
    torch.Tensor.exp,
}


class StorageCounter(TorchDispatchMode):  # type: ignore[misc]
    """Live and peak bytes of the meta storages seen so far."""

    def __init__(self, round_bytes: int) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._round_bytes = round_bytes
        self._known: set[int] = set()

    def watch(self, tensors: Iterable[Any]) -> None:
        """Count the storages not counted yet, until they are let go of."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._known or tensor.device.type != "meta":
                continue
            size = -(-int(storage.nbytes()) // self._round_bytes) * self._round_bytes
            self._known.add(key)
            self.live += size
            weakref.finalize(storage, self._let_go, key, size)
        self.peak = max(self.peak, self.live)

    def _let_go(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.watch(part for part in tree_iter(result) if isinstance(part, torch.Tensor))
        return result


class FusedOperators(TorchFunctionMode):  # type: ignore[misc]
    """Attention becomes the flash operator where it would take it; RMSNorm one operator, as CUDA has it.

    Layer norm stands in for the fused RMSNorm, which PyTorch has on CUDA only: it keeps one number more per row.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention and _flash_takes(args, kwargs):
            dropout, causal = kwargs.get("dropout_p", 0.0), kwargs.get("is_causal", False)
            operator = torch.ops.aten._scaled_dot_product_flash_attention
            return operator(*args[:3], dropout, causal, False, scale=kwargs.get("scale"))[0]
        if func is functional.rms_norm:
            return _as_layer_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _as_layer_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    return functional.layer_norm(x, shape, weight, None, eps or 1e-6)


def _flash_takes(args: Any, kwargs: Any) -> bool:
    half = all(part.dtype in (torch.float16, torch.bfloat16) for part in args[:3])
    return len(args) == 3 and half and kwargs.get("attn_mask") is None


class Autocast(TorchFunctionMode):  # type: ignore[misc]
    """bf16 autocast by PyTorch's lists for CUDA; copies of weights are kept until `forget`."""

    def __init__(self) -> None:
        super().__init__()
        self._copies: dict[int, Any] = {}

    def forget(self) -> None:
        """Let the copies go, as leaving autocast does."""
        self._copies.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _IN_16_BITS:
            args, kwargs = tree_map(self._in_16_bits, (args, kwargs))
        elif func in _IN_32_BITS:
            args, kwargs = tree_map(_in_32_bits, (args, kwargs))
        return func(*args, **kwargs)

    def _in_16_bits(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(torch.bfloat16)
        if id(value) not in self._copies:
            self._copies[id(value)] = value.to(torch.bfloat16)
        return self._copies[id(value)]


def _in_32_bits(value: Any) -> Any:
    is_half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if is_half else value


def storage_counter(round_bytes: int) -> StorageCounter:
    """A counter that has seen nothing."""
    return StorageCounter(round_bytes)


def fused_operators() -> FusedOperators:
    """The mode that fuses attention and RMSNorm."""
    return FusedOperators()


def autocasting() -> Autocast:
    """The mode that casts."""
    return Autocast()
