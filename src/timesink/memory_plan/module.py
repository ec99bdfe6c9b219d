"""Any `nn.Module`, without a GPU and without memory: one step on the meta device, every storage counted.

PyTorch itself runs forward and backward on tensors that have shapes and no data; a dispatch mode sees every operator's
results, and a storage is counted from its first sight until Python and autograd let go of it. Attention becomes the
flash operator, as it would on a GPU, unless asked not to. Not seen: workspaces of libraries, fragmentation, what custom
CUDA extensions allocate, and other operators that PyTorch picks by device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timesink.errors import UsageError

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
    torch = _torch()
    from timesink.memory_plan.module_modes import autocasting, fused_operators, storage_counter

    module = module.to("meta")
    given = tuple(tensor.to("meta") for tensor in inputs)
    counter = storage_counter(ROUND_BYTES)
    counter.watch([*module.parameters(), *module.buffers(), *given])
    static = counter.live
    weights = sum(rounded(p) for p in module.parameters())
    buffers = sum(rounded(b) for b in module.buffers())
    casting = autocasting() if autocast else None
    with counter, fused_operators() if flash else nullcontext(), casting or nullcontext():
        result = module(*given)
        total = loss(result) if loss else result.sum()
        del result
        if casting:
            casting.forget()
        kept, forward_peak = counter.live, counter.peak
        counter.peak = counter.live
        if total.requires_grad:
            _run_backward(torch, total)

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


def _torch() -> Any:
    try:
        import torch
    except ImportError as absent:
        raise UsageError("planning an nn.Module needs PyTorch", remedy="pip install torch") from absent
    return torch


def _run_backward(torch: Any, total: Tensor) -> None:
    """As `Tensor.backward` does, which would suspend the modes while it runs; recomputation needs them."""
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward(
        (total,), (torch.ones_like(total),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def rounded(tensor: Tensor) -> int:
    """Bytes of a tensor's storage as the allocator hands them out."""
    size = int(tensor.untyped_storage().nbytes())
    return -(-size // ROUND_BYTES) * ROUND_BYTES
