"""Any `nn.Module`, without a GPU and without memory: one step on the meta device, every storage counted. Needs PyTorch.

PyTorch itself runs forward and backward on tensors that have shapes and no data; a dispatch mode sees every operator's
results, and a storage is counted from its first sight until Python and autograd let go of it. Attention becomes the
flash operator, as it would on a GPU, unless asked not to. PyTorch's own autocast knows no meta device, so its two lists
are applied here: what runs in 16 bits, with the copies of weights kept until forward ends, and what runs in 32.

Not seen: workspaces of libraries, fragmentation, what custom CUDA extensions allocate, and other operators that PyTorch
picks by device.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timesink.errors import UsageError

try:
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter, tree_map
except ImportError as absent:
    raise UsageError("planning an nn.Module needs PyTorch", remedy="pip install torch") from absent

if TYPE_CHECKING:
    from torch import Tensor, nn

ROUND_BYTES = 512


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """Bytes of one step, storages rounded up to 512 as the allocator does.

    `activations_bytes` is alive at the end of forward beyond weights and inputs; peaks include everything alive.
    """

    parameters: int
    weights_bytes: int
    buffers_bytes: int
    inputs_bytes: int
    activations_bytes: int
    gradients_bytes: int
    forward_peak_bytes: int
    backward_peak_bytes: int

    def peak_bytes(self, state_bytes_per_parameter: float) -> int:
        """The step's peak with that much optimizer state per parameter, which lasts through forward and backward."""
        state = int(state_bytes_per_parameter * self.parameters)
        step = self.weights_bytes + self.buffers_bytes + self.inputs_bytes + self.gradients_bytes
        return max(self.forward_peak_bytes, self.backward_peak_bytes, step) + state


def module_memory(
    module: nn.Module,
    inputs: Iterable[Tensor],
    loss: Callable[[Any], Tensor] | None = None,
    *,
    autocast: bool = False,
    flash: bool = True,
) -> ModuleMemory:
    """Memory of one step of `module(*inputs)`, then `loss(result)` (default: its sum), then backward.

    Parameters
    ----------
    module, inputs
        On any device; both are moved to `meta`, the module in place.
    autocast
        Run forward under bf16 autocast.
    flash
        Count attention and RMSNorm as CUDA's fused operators. Without: as PyTorch does on a CPU.
    """
    module = module.to("meta")
    given = tuple(tensor.to("meta") for tensor in inputs)
    counter = StorageCounter()
    counter.watch([*module.parameters(), *module.buffers(), *given])
    static = counter.live
    weights = sum(rounded(p) for p in module.parameters())
    buffers = sum(rounded(b) for b in module.buffers())
    casting = Autocast() if autocast else None
    with counter, FusedOperators() if flash else nullcontext(), casting or nullcontext():
        result = module(*given)
        total = loss(result) if loss else result.sum()
        del result
        if casting:
            casting.forget()
        kept, forward_peak = counter.live, counter.peak
        counter.peak = counter.live
        if total.requires_grad:
            _run_backward(total)

    gradients = sum(rounded(p.grad) for p in module.parameters() if p.grad is not None)
    return ModuleMemory(
        parameters=sum(p.numel() for p in module.parameters()),
        weights_bytes=weights,
        buffers_bytes=buffers,
        inputs_bytes=static - weights - buffers,
        activations_bytes=kept - static,
        gradients_bytes=gradients,
        forward_peak_bytes=forward_peak,
        backward_peak_bytes=counter.peak,
    )


def _run_backward(total: Tensor) -> None:
    """As `Tensor.backward` does, which would suspend the modes while it runs; recomputation needs them."""
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward(
        (total,), (torch.ones_like(total),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def rounded(tensor: Tensor) -> int:
    """Bytes of a tensor's storage as the allocator hands them out."""
    size = int(tensor.untyped_storage().nbytes())
    return -(-size // ROUND_BYTES) * ROUND_BYTES


_IN_16_BITS = {
    functional.linear, functional.conv1d, functional.conv2d, functional.conv3d,
    functional.scaled_dot_product_attention, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm,
    torch.einsum, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.bmm, torch.Tensor.mm,
}  # fmt: skip
_IN_32_BITS = {
    functional.layer_norm, functional.group_norm, functional.softmax, functional.log_softmax,
    functional.cross_entropy, functional.nll_loss, functional.mse_loss, functional.binary_cross_entropy_with_logits,
    torch.softmax, torch.log_softmax, torch.exp, torch.log, torch.cumsum, torch.sum, torch.Tensor.softmax,
    torch.Tensor.sum, torch.Tensor.exp,
}  # fmt: skip


class StorageCounter(TorchDispatchMode):  # type: ignore[misc]
    """Live and peak bytes of the meta storages seen so far."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def watch(self, tensors: Iterable[Any]) -> None:
        """Count the storages not counted yet, until they are let go of."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._known or tensor.device.type != "meta":
                continue
            size = rounded(tensor)
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
