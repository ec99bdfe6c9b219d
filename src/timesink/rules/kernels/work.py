"""Rules on kernels whose work is done in vain, in pieces, in too wide a type, or in a shape that does not suit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from timesink.diagnosis.judge import Fact, Row, Rows, declare
from timesink.diagnosis.rule import HEALTHY, Limit
from timesink.diagnosis.verdicts import Bottleneck, Evidence, NotApplicable, Quantity, Undecided
from timesink.fixes import table as fixes
from timesink.knowledge.assumptions import fixes as assumed
from timesink.measures.kernels.attainable import far_operators
from timesink.measures.kernels.conversions import cast_pairs
from timesink.measures.kernels.fusion import OptimizerKernels, optimizer_kernels
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.kernels.shapes import alignment_known, misaligned_products
from timesink.measures.steps.per_step import per_step_ns, period_name
from timesink.model.record import replace
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, EVENT_WAITS, GPU_METRICS, HOST_OPS
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.rules.kernels import (
    LINE_READS,
    ONE_PERCENT,
    kernel_details,
    kernel_row,
    kernel_rule,
    saved_fact,
)
from timesink.units import NS_PER_MS


def _cast_pairs(trace: Trace, row: Row, figures: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Evidence, ...]]:
    """Which types are cast to which, and the time of each pair."""
    assert row.kernels is not None
    usual, sampled = kernel_details(trace, row, figures)
    pairs = cast_pairs(trace, row.kernels.rows)
    most = ", ".join(f"{pair} {count} times" for pair, count, _ in pairs[:3])
    times = tuple(Evidence(pair, Quantity.ms(time), f"{count} casts in all") for pair, count, time in pairs)
    return {**usual, "pairs": most}, (*times, *sampled)


def _misaligned(trace: Trace) -> Rows:
    parts = misaligned_products(trace)
    if parts and not alignment_known(trace):
        return Undecided("neither names nor shapes tell how products are aligned", "torch.profiler, record_shapes=True")
    return [kernel_row(trace, fixes.PADDING.change(part)) for part in parts]


_WIDE: Final = {
    "fp32": (
        fixes.TF32,
        "fp32 products without tensor cores",
        'Allow TF32: torch.set_float32_matmul_precision("high"); or run the products in bf16 under autocast.',
    ),
    "fp32 alone": (
        fixes.BF16,
        "fp32 products (the peak of this GPU in TF32 is no higher)",
        "Run the products in bf16 or fp16: autocast, or parameters of that type.",
    ),
    "tf32": (
        fixes.BF16,
        "TF32 products, and fp32 kernels around them,",
        "Run in bf16: autocast, or parameters in bf16 where the optimizer keeps what it needs.",
    ),
    "fp64": (
        fixes.FP32,
        "kernels in float64",
        "Find where float64 enters (a NumPy array, a Python constant made a tensor) and give it float32.",
    ),
}
"""By kind of kernels: the fix, what they are called, what to do."""


def _wide(trace: Trace) -> Rows:
    wide = wide_kernels(trace)
    return [
        replace(kernel_row(trace, fix.change(kernels), subject=subject, advice=advice), fix=fix)
        for kind, (fix, subject, advice) in _WIDE.items()
        for kernels in wide[kind]
    ]


def _optimizer_row(trace: Trace, kernels: OptimizerKernels) -> Row:
    """What fusing saves as the device shows it: kernel time, and gaps beyond the time of a fused step."""
    idle_ns, fixed_ns = per_step_ns(trace, kernels.device, kernels.idle), assumed.OPTIMIZER_FIXED_US.ns
    change, single = fixes.FUSED_OPTIMIZER.change(kernels.unfused), kernels.one_by_one
    row = kernel_row(
        trace,
        change.kernels,
        max(idle_ns - fixed_ns, 0.0) if kernels.unfused.rows.size else 0.0,
        change,
        per_step=kernels.per_step,
        in_step=None if period_name(trace) == "window" else kernels.per_step,
        kind=f"{single:.0f} of them for one parameter each" if single else "over lists of parameters",
        idle_ms=idle_ns / NS_PER_MS,
        waited_ns=idle_ns if idle_ns > fixed_ns else None,
    )
    return replace(row, also=kernels.idle)


_LIMITED_BY: Final = {
    "memory": Bottleneck.MEMORY_BOUND_KERNEL,
    "compute": Bottleneck.COMPUTE_BOUND_KERNEL,
    "latency": Bottleneck.LATENCY_BOUND_KERNEL,
}


def _operators(trace: Trace) -> Rows:
    if not trace[HOST_OPS].height:
        return NotApplicable("no operator is recorded")
    far = far_operators(trace)
    if not far:
        return Undecided("no operator's shapes, or not this GPU's peaks, are known", _SHAPES)
    rows = []
    for operator in far:
        figures = {"attained_ratio": operator.attained_ratio, "limiter": operator.limiter, "operator": operator.name}
        row = kernel_row(
            trace, fixes.REACH_BOUND.change(operator.kernels), subject=f"kernels of {operator.name}", **figures
        )
        rows.append(replace(row, bottleneck=_LIMITED_BY[operator.limiter]))
    return rows


_SHAPES: Final = "torch.profiler with record_shapes=True, on a GPU that timesink knows"

RULES: Final = (
    kernel_rule(
        "KRN101",
        "dtype-conversion",
        fix=fixes.DROP_CASTS,
        bottleneck=Bottleneck.DTYPE_CONVERSION,
        subject="casts between floating types, with losses on their results,",
        how="casts go unless a sum reads them, a log-softmax beside one moves half the bytes",
        words="{pairs}",
        details=_cast_pairs,
        advice="Store weights in the type they are used in, give losses and norms bf16 (they accumulate in fp32), drop "
        "round trips, or let torch.compile fuse the cast into its neighbour.",
        verify="Capture again: the casting kernels are gone, and the step is shorter by about their time.",
        limits={
            "saved_ratio": Limit.ratio(
                0.03,
                "fewer than three steps in a hundred are won back, and some casts are wanted",
                "benchmarks/faults: healthy programs in bf16 stay under it",
            )
        },
        references=("https://docs.pytorch.org/docs/stable/amp.html",),
    ),
    kernel_rule(
        "KRN102",
        "layout-conversion",
        fix=fixes.CHANNELS_LAST,
        bottleneck=Bottleneck.LAYOUT_CONVERSION,
        subject="kernels that only change a layout",
        how="conversions and strided copies within one type go, normalisations beside them fill the device",
        advice="Keep one layout: channels_last for model and input of a convolutional network, no contiguous() before "
        "an operator that takes strides, shapes for which view suffices.",
        verify="Capture again: the copying kernels are gone, and the kernels that read their results take no longer.",
        limits={
            "saved_ratio": Limit.ratio(
                0.03,
                "a step of well-written code has that many transposes which somebody needs",
                "benchmarks/faults: healthy programs stay under 2 %",
            )
        },
        references=("https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",),
    ),
    kernel_rule(
        "KRN103",
        "attention-unfused",
        fix=fixes.FUSED_ATTENTION,
        bottleneck=Bottleneck.ATTENTION_UNFUSED,
        subject="products and softmax of attention written out",
        how="kernels between the products go, {fixes.attention_products} of the products' time stay "
        "(in fp32 {fixes.attention_wide})",
        advice="Call scaled_dot_product_attention (is_causal instead of a causal mask), ask for no attention weights, "
        "and check which backend it takes.",
        verify="Capture again: one fused attention kernel stands where products and softmax stood.",
        limits={"saved_ratio": ONE_PERCENT},
        references=(
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        ),
    ),
    kernel_rule(
        "KRN104",
        "pointwise-unfused",
        fix=fixes.FUSE_POINTWISE,
        bottleneck=Bottleneck.POINTWISE_UNFUSED,
        subject="eager elementwise kernels in chains, the longest of each aside,",
        how="of each run the longest kernel and {fixes.pointwise_others:words} of the others' time stay",
        advice="Use the fused operator where there is one (gelu, layer_norm, silu), or torch.compile the module.",
        verify="Capture again: one kernel stands where the chain stood, and takes about as long as the longest of it.",
        limits={
            "saved_ratio": Limit.ratio(
                0.032,
                "a step of well-written eager code has that much to fuse around its products",
                "benchmarks/faults, benchmarks/ranks: healthy programs stay under 2.1 % and 3.1 %",
            )
        },
        references=("https://docs.pytorch.org/docs/stable/torch.compiler.html",),
    ),
    kernel_rule(
        "KRN105",
        "shape-alignment",
        rows=_misaligned,
        fix=fixes.PADDING,
        bottleneck=Bottleneck.SHAPE_ALIGNMENT,
        subject="products of operands not aligned to 16 bytes",
        how="aligned products at {fixes.aligned_reach:words} of the attainable bound, or {fixes.aligned_by_name} of "
        "the time by name",
        advice="Pad the dimension that is no multiple of 8 elements to a multiple of 64 (a vocabulary of 50257 to "
        "50304).",
        verify="Capture again: the products run on other kernels (nvjet or align8) and take less time.",
        limits={"saved_ratio": ONE_PERCENT},
        references=("https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/",),
    ),
    kernel_rule(
        "KRN106",
        "precision",
        rows=_wide,
        fix=None,
        bottleneck=Bottleneck.PRECISION,
        how="time kept by the ratio of peak rates or bytes",
        advice="{advice}",
        otherwise="no kernel ran",
        verify="Capture again: the kernels bear the narrower type in their names, and results agree within its "
        "tolerance.",
        limits={"saved_ratio": ONE_PERCENT},
        references=("https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",),
    ),
    declare(
        "KRN108",
        "optimizer-unfused",
        rows=lambda trace: [_optimizer_row(trace, kernels) for kernels in optimizer_kernels(trace)],
        fix=fixes.FUSED_OPTIMIZER,
        facts=(
            saved_fact(
                "time saved in the optimizer's step on device {device}",
                "a fused step keeps {fixes.optimizer_kernels} of the kernel time and {fixes.optimizer_fixed_us:ms} of "
                "the gaps",
            ),
            Fact("per_step", "unfused kernels per step", "kernels", "in its ranges"),
            Fact("time_ms", "time of the unfused kernels", "ms", "union of the kernels, per steady step"),
            Fact("idle_ms", "idle time between them", "ms", "in the optimizer's ranges"),
        ),
        bottleneck=Bottleneck.OPTIMIZER_UNFUSED,
        message="the optimizer runs[ {in_step:.0f}] kernels that are not fused, {kind}: {time} on device {device}"
        "[, which waits {waited_ns:time} between them]",
        advice="Pass fused=True to Adam, AdamW, SGD or Adagrad; compile optimizer.step() of another.",
        verify="Capture again: a few FusedOptimizer kernels are all that the optimizer's range launches.",
        otherwise="no range of an optimizer's step launched kernels, and none is named as Adam's",
        limits={"saved_ratio": ONE_PERCENT},
        needs=(DEVICE_OPS,),
        reads=(*BLAME_READS, *LINE_READS, API_CALLS, DEVICES),
        references=("https://docs.pytorch.org/docs/stable/optim.html",),
    ),
    kernel_rule(
        "KRN109",
        "far-from-bound",
        rows=_operators,
        fix=fixes.REACH_BOUND,
        bottleneck=Bottleneck.MEMORY_BOUND_KERNEL,
        how="the operator at {fixes.bound_reached} of its attainable bound",
        words="at {attained_ratio:share} of the {limiter} bound of its shapes",
        facts=(
            Fact(
                "attained_ratio",
                "share of the attainable bound that {operator} reaches",
                "ratio",
                "{limiter} bound of its shapes over the time of its kernels",
            ),
        ),
        most=SHOWN_ROWS,
        advice="Profile the named kernel with Nsight Compute; try a fused operator, another backend or torch.compile.",
        otherwise="",
        verify="Capture again: the operator reaches a larger share of its bound.",
        limits={
            "attained_ratio": Limit.ratio(
                0.5,
                "well-written kernels of everyday shapes reach seven tenths; half leaves room for odd shapes",
                "benchmarks/faults on an H200: products 0.9 to 1.1, attention 0.7, elementwise 0.9 to 1.0",
                passes="<",
            ),
            "saved_ratio": Limit.ratio(
                0.05, "writing or finding another kernel is work: it should win one step in twenty", HEALTHY
            ),
        },
        needs=(DEVICE_OPS, HOST_OPS),
        reads=(*BLAME_READS, *LINE_READS, API_CALLS, DEVICES, EVENT_WAITS, GPU_METRICS),
        references=("https://docs.nvidia.com/nsight-compute/ProfilingGuide/#roofline-charts",),
        capture=_SHAPES,
    ),
)
