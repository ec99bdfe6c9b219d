"""The pipe that a kernel keeps busiest, one about as busy, and what the tensor cores of a product wait for."""

from typing import Final

from timesink.knowledge.gpus import plain_per_double
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.resources import ARITHMETIC, Leaf, Resource

OF_MEMORY: Final = "operands of memory"
OF_SHARED: Final = "operands of shared memory"
OF_OTHERS: Final = "operands of other warps"
_OPERANDS: Final = {
    **dict.fromkeys(("long_scoreboard", "lg_throttle"), OF_MEMORY),
    **dict.fromkeys(("short_scoreboard", "mio_throttle"), OF_SHARED),
    **dict.fromkeys(("barrier", "sleeping", "membar"), OF_OTHERS),
}
_BUSY_TENSOR: Final = 0.6  # of its peak: below it tensor cores wait more than the field takes for well fed
_SOME_TENSOR: Final = 0.05  # of its peak: below it products are not what the kernel is for
_AS_BUSY: Final = 0.9  # of the busiest pipe: without that one alone the kernel is a ninth faster at most


def awaited_operands(limits: KernelLimits) -> str | None:
    """Where the operands are that a product's tensor cores wait for; None for other kernels."""
    roofs = limits.roofline.compute if limits.roofline is not None else ()
    tensor = max((roof.share for roof in roofs if roof.path != "cuda"), default=0.0)
    top = limits.stalls.top if limits.stalls is not None else None
    return _OPERANDS.get(top[0]) if top is not None and _SOME_TENSOR < tensor < _BUSY_TENSOR else None


def busiest_pipes(limits: KernelLimits, slow_fp64: float) -> tuple[Leaf, Leaf | None, float | None]:
    """The busiest pipe, one of another kind about as busy, and how many operations in fp32 take the time of one in
    fp64: where that format is slow, its pipe is the first of two."""
    pipe, beside, ratio = limits.top, _as_busy(limits), _fp32_per_fp64(limits)
    if beside is not None and beside.resource is Resource.FP64 and is_slow(ratio, slow_fp64):
        return beside, pipe, ratio
    return pipe, beside, ratio


def is_slow(ratio: float | None, slow_fp64: float) -> bool:
    """Whether so many operations in fp32 for one in fp64 make that format slow."""
    return ratio is not None and 1 / ratio < slow_fp64


def _as_busy(limits: KernelLimits) -> Leaf | None:
    """The busiest pipe of another kind that is about as busy as a kernel's busiest one: without the work of either
    alone the kernel is hardly faster."""
    if limits.top.resource not in ARITHMETIC:
        return None
    others = [leaf for leaf in limits.leaves if leaf.resource in ARITHMETIC - {limits.top.resource}]
    return next((leaf for leaf in others if leaf.busy >= _AS_BUSY * limits.top.busy), None)


def _fp32_per_fp64(limits: KernelLimits) -> float | None:
    """By the report's own peaks, else as the GPU is known; None where nothing tells."""
    kernel = limits.kernel
    lanes = [kernel.get(f"sm__sass_thread_inst_executed_op_{op}fma_pred_on.sum.peak_sustained") for op in ("f", "d")]
    return lanes[0] / lanes[1] if lanes[0] and lanes[1] else plain_per_double(kernel.gpu, kernel.compute_capability)
