"""A kernel spends its time on arithmetic or instruction issue.

## What it detects
Kernels whose busiest unit is an arithmetic pipe, the tensor cores or instruction issue, with their lanes active.

## Why it matters
Bytes are free there: better caching gains nothing. Fewer operations, cheaper ones, or a faster unit do.

## How it is measured
Utilisation of the pipes among the leaves of the profiler's throughput breakdown. Load-store and other memory pipes are
not counted as compute, though `sm__throughput` contains them. Idle lanes are taken off first. Peaks are dense rates of
the report itself; the share of fused instructions gives the ceiling of the mix, peak x (1 + fused) / 2.

## What to do
Tensor cores for products (on Hopper through wgmma: mma.sync reaches two thirds of it); narrower formats; fused
multiply-add; fp32 where fp64 is slow; fewer special functions; constants instead of run-time divisors.

## When it misleads
Issue slots serve every instruction: a kernel of index arithmetic is "compute-bound" without one useful operation. The
roofline says how much of the peak was useful.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.knowledge.gpus import HOPPER
from timesink.measures.counters.bounds import is_fp32_product
from timesink.measures.counters.counters import Resource
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import ALLOW_TF32, Explanation, busiest_unit, cause_rule, counted, operands_advice

FP64_RATIO = Limit.ratio(
    0.25,
    "below a quarter of the fp32 rate the GPU is not made for fp64; data-centre parts have a half",
    "fp64 to fp32 lanes of nine GPUs' reports: 1/2 on V100, A100, H100; 1/64 on A10G, RTX A4500; 1/64 on H800",
)
_PIPES = {
    Resource.TENSOR: "tensor cores",
    Resource.FP64: "the fp64 pipe",
    Resource.FMA: "the fused-multiply-add pipe",
    Resource.ALU: "the integer and logic pipe",
    Resource.XU: "the special-function pipe",
    Resource.ISSUE: "instruction issue",
    Resource.CONTROL: "the control pipes",
}
_ADVICE = {
    Resource.FP64: "Use fp32 where the accuracy allows: this GPU does {ratio:.0f} times as much of it.",
    Resource.FMA: "Fuse multiply and add, compute less, or move the products to tensor cores (tf32, bf16).",
    Resource.ALU: "Fewer integer operations: strength-reduce indices, divide by constants or powers of two.",
    Resource.XU: "Fewer special functions: hoist them, replace powers by products, approximate by polynomials.",
    Resource.TENSOR: "Narrower operands (bf16, fp8) or fewer products; short of the peak, other tiles: torch.compile "
    'with mode="max-autotune", or the heuristics of cuBLASLt.',
    Resource.ISSUE: "Fewer instructions: wider loads, packed arithmetic, tensor cores for products, less index work.",
    Resource.CONTROL: "Fewer branches and less uniform index work: unroll, hoist.",
}


def explain(limits: KernelLimits, fp64_ratio: float = FP64_RATIO.default) -> Explanation:
    """What this cause means for one launch. Where fp64 is slow, its format is the cause."""
    counters = [busiest_unit(limits)]
    for roof in limits.roofline.compute if limits.roofline is not None else ():
        how = "of its additions, multiplications and fused operations"
        counters.append((f"{roof.label} roof", roof.share, "ratio", "of the dense peak at the profiled clock"))
        counters.append((f"{roof.precision} fused share", roof.fused_ratio, "ratio", how))
    pipe = _PIPES.get(limits.top.resource, "instruction issue")
    is_slow = limits.top.resource is Resource.FP64 and 1 / _fp32_per_fp64(limits) < fp64_ratio
    evidence = counted(limits, *counters)
    return Explanation(f"on {pipe}", evidence, _advice(limits), Bottleneck.PRECISION if is_slow else None)


def _advice(limits: KernelLimits) -> str:
    roofs = limits.roofline.compute if limits.roofline is not None else ()
    of_mma = limits.kernel.compute_capability == HOPPER and any(roof.path == "mma" for roof in roofs)
    if limits.top.resource is Resource.TENSOR and of_mma:
        return "Move the products from mma.sync to wgmma, which has 1.5 times its rate on this GPU."
    if is_fp32_product(limits.kernel):
        return ALLOW_TF32
    if limits.top.resource is Resource.TENSOR and (operands := operands_advice(limits)):
        return operands
    advice = _ADVICE.get(limits.top.resource, _ADVICE[Resource.ISSUE])
    return advice.format(ratio=_fp32_per_fp64(limits)) if limits.top.resource is Resource.FP64 else advice


def _fp32_per_fp64(limits: KernelLimits) -> float:
    lanes = [
        limits.kernel.get(f"sm__sass_thread_inst_executed_op_{op}fma_pred_on.sum.peak_sustained") for op in ("f", "d")
    ]
    return lanes[0] / lanes[1] if lanes[0] and lanes[1] else 2.0


RULE = cause_rule(
    "NCU109",
    Cause.COMPUTE,
    explain,
    ("https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#metrics-decoder",),
    {"fp64_ratio": FP64_RATIO},
)
