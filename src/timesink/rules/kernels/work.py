"""Rules on kernels whose work is done in vain, in pieces, in too wide a type, or in a shape that does not suit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.verdicts import Bottleneck, Evidence, NotApplicable, Quantity, Undecided
from timesink.fixes import table as fixes
from timesink.knowledge.assumptions import fixes as assumed
from timesink.measures.kernels.attainable import far_operators
from timesink.measures.kernels.conversions import cast_pairs, layout_kernels
from timesink.measures.kernels.fusion import OptimizerKernels, optimizer_kernels
from timesink.measures.kernels.precision import untold_share, wide_kernels
from timesink.measures.kernels.shapes import alignment_known, misaligned_products
from timesink.measures.steps.per_step import per_step_ns, period_name
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.rules.kernels import kernel_details, kernel_row, kernel_rule
from timesink.units import NS_PER_MS, share_text
from timesink.whatif import Selection


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
    "fp32": (fixes.TF32, "fp32 matmuls that do not use tensor cores"),
    "chosen": (fixes.BF16_WEIGHTS, "fp32 convolutions, though others beside them ran in TF32,"),
    "fp32 alone": (fixes.BF16_WEIGHTS, "fp32 matmuls{around} (this GPU is no faster in TF32)"),
    "fp32 to fp16": (fixes.FP16, "fp32 matmuls{around} (the tensor cores of this GPU only take fp16)"),
    "emulated": (fixes.FP16, "bf16 matmuls, which this GPU emulates,"),
    "tf32": (fixes.BF16_WEIGHTS, "TF32 matmuls, and fp32 kernels around them,"),
    "fp64": (fixes.FP32, "float64 kernels"),
}
"""By kind of kernels, each a variant of the rule's texts: the fix, and what they are called."""


_NONE: Final = np.empty(0)


def _wide(trace: Trace) -> Rows:
    rows = []
    for kind, selections in wide_kernels(trace).items():
        for kernels in selections:
            told = _kind_told(kind, kernels)
            fix, subject = _WIDE[told]
            around = " and kernels around them" if kernels.groups.get("streaming", _NONE).size else ""
            change, said = fix.change(kernels), {"subject": subject.format(around=around)}
            row = kernel_row(trace, getattr(change, "kernels", change), 0.0, change, **said)
            rows.append(replace(row, fix=fix, variant=told))
    untold = 0.0 if any(row.figures["count"] for row in rows) else untold_share(trace)
    taken = f"fp32 or bf16 matmuls take {share_text(untold)} of a step"
    why = f"{taken}; nothing tells which types this GPU has tensor cores for"
    return Undecided(why, "a capture that names the GPU", most_ratio=untold) if untold else rows


def _kind_told(kind: str, kernels: Selection) -> str:
    """What kernels that are offered 16 bits are called by: what most of their products are."""
    fp32, fp16, emulated = (kernels.groups.get(role, _NONE).size for role in ("fp32", "fp16", "emulated"))
    if kind == "fp16":
        return "emulated" if emulated > fp16 else "fp32 to fp16"
    return kind if kind != "bf16" else "fp32 alone" if fp32 else "tf32"


def _layouts(trace: Trace) -> Rows:
    """Kernels that only change a layout; as conversions for convolutions where most of them are, by their names."""
    groups = {kernels.device: kernels.groups for kernels in layout_kernels(trace)}
    converted = {device for device, of_role in groups.items() if of_role["converter"].size > of_role["strided"].size}
    rows = (kernel_row(trace, kernels) for kernels in fixes.CHANNELS_LAST.replay(trace))
    return [replace(row, variant="converted" if row.device in converted else "") for row in rows]


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
        kind=_of_parameters(single, kernels.per_step),
        idle_ms=idle_ns / NS_PER_MS,
        waited_ns=idle_ns if idle_ns > fixed_ns else None,
    )
    return replace(row, also=kernels.idle, variant="" if kernels.takes_fused else "other")


def _of_parameters(single: float, kernels: float) -> str:
    """How many of an optimizer's kernels update one parameter."""
    if not single:
        return "over lists of parameters"
    return "one or more for each parameter" if single == kernels else f"{single:,.0f} of them for one parameter each"


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
    kernel_rule("dtype-conversion", fixes.DROP_CASTS, details=_cast_pairs),
    kernel_rule("layout-conversion", fixes.CHANNELS_LAST, _layouts),
    kernel_rule("attention-unfused", fixes.FUSED_ATTENTION),
    kernel_rule("pointwise-unfused", fixes.FUSE_POINTWISE),
    kernel_rule("shape-alignment", fixes.PADDING, _misaligned),
    kernel_rule("precision", None, _wide),
    declare(
        "optimizer-unfused",
        lambda trace: [_optimizer_row(trace, kernels) for kernels in optimizer_kernels(trace)],
        fix=fixes.FUSED_OPTIMIZER,
    ),
    kernel_rule("far-from-bound", fixes.REACH_BOUND, _operators, most=SHOWN_ROWS),
)
