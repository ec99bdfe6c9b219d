"""The rules on single kernels, one for each cause of a kernel's time.

Each function gives the figures that its cause has of one launch: those that its rule's file shows as facts and names in
texts, the `variant` of these, `more` counters, and `advice` in place of the rule's.
"""

from math import inf
from typing import Any, Final

from timesink.diagnosis.rule import rule_texts
from timesink.diagnosis.verdicts import Bottleneck
from timesink.diagnosis.words import number
from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import HOPPER, plain_per_double
from timesink.measures.counters import ARITHMETIC, Leaf, Resource
from timesink.measures.counters.bounds import is_fp32_product
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import FUSE, Counter, cause_rule, is_tiny, operands_advice
from timesink.units import NS_PER_US, share_text

Figures = dict[str, Any]


def _uncoalesced(limits: KernelLimits) -> Figures:
    access = limits.waste.access
    if access.excess_ratio is not None and access.sectors is not None:
        return {"excess": access.excess_ratio, "sectors": access.sectors}
    return {"passes": access.wavefronts_per_request}


def _bank_conflicts(limits: KernelLimits) -> Figures:
    access = limits.waste.access
    actual, ideal = access.shared_wavefronts or 0.0, access.ideal_shared_wavefronts or 0.0
    return {"passes": actual / ideal if ideal else 0.0, "actual": actual, "ideal": ideal}


def _register_spills(limits: KernelLimits) -> Figures:
    registers = limits.kernel.get("launch__registers_per_thread")
    return {"local": limits.waste.local_instructions, "registers": registers}


def _divergence(limits: KernelLimits) -> Figures:
    return {"lanes": limits.waste.active_lanes or 0.0}


def _atomics(limits: KernelLimits) -> Figures:
    return {"requests": limits.waste.atomic_requests, "shared": limits.waste.access.shared_atomic_share or None}


def _without_blocks(limits: KernelLimits) -> str:
    """Why SMs have no block, where that is the larger part of the cause: blocks of unequal length, a last wave as equal
    blocks leave it, too few blocks, or that the launch begins and ends. Too few also where they leave most of the warp
    slots empty that are."""
    occupancy, blocks = limits.occupancy, limits.kernel.blocks
    idle, sms = occupancy.sm_idle or 0.0, occupancy.sm_count or inf
    waves = 1.0 if occupancy.waves is None else occupancy.waves
    of_equal = (occupancy.tail or 0.0) if waves > 1 else max(0.0, 1 - blocks / sms)
    is_larger, is_more = idle >= limits.shares[Cause.OCCUPANCY] / 2, idle > 2 * of_equal
    rest_us = (idle - of_equal) * (limits.kernel.duration_ns or 0.0) / NS_PER_US
    if is_larger and is_more and rest_us > machines.UNFILLED_US.value:
        return "uneven"
    if is_larger and waves > 1 and not is_more:
        return "tail"
    is_few = 0 < idle <= 2 * of_equal or 1 - waves >= (1 - (occupancy.achieved or 0.0)) / 2
    return "blocks" if waves < 1 and is_few else "ends" if is_larger and is_more else ""


def _occupancy(limits: KernelLimits) -> Figures:
    occupancy, kernel = limits.occupancy, limits.kernel
    limited = " and ".join(occupancy.limited_by)
    variant = "lanes" if limits.waste.filled_lanes < 1 else _without_blocks(limits)
    return {
        "blocks": kernel.blocks,
        "achieved": occupancy.achieved,
        "theoretical": occupancy.theoretical,
        "limits": f"limited by {limited}" if limited else "not limited",
        "sm_idle": occupancy.sm_idle,
        "waves": occupancy.waves,
        "at_once": kernel.blocks / occupancy.waves if occupancy.waves else None,
        "limited": limited or "the number of running blocks",
        "grid": number(kernel.blocks, "block"),
        "sms": occupancy.sm_count or None,
        "variant": variant,
        "advice": FUSE if is_tiny(limits) else None if variant else operands_advice(limits),
    }


def _latency(limits: KernelLimits) -> Figures:
    top = limits.stalls.top if limits.stalls is not None else None
    reason, waiting = top or ("", None)
    empty = limits.waste.of(Cause.LATENCY, limits.top.resource)
    is_copied = limits.waste.copies_ahead and reason == "long_scoreboard"
    return {
        **_busy(limits),
        "reason": reason,
        "waiting": waiting,
        "source": "samples" if limits.stalls is not None and limits.stalls.is_sampled else "counters",
        "empty": empty or None,
        "where": "at barriers or running along to them" if empty else "while no unit is full",
        "variant": "copies" if is_copied else reason,
        "advice": FUSE if is_tiny(limits) else operands_advice(limits),
    }


def _busy(limits: KernelLimits) -> Figures:
    """How busy a kernel's busiest unit is."""
    return {"busy": limits.top.busy, "unit": limits.top.name}


def _memory(limits: KernelLimits) -> Figures:
    resource, queue, roofline = limits.top.resource, limits.queued_loads, limits.roofline
    more: list[Counter] = []
    if roofline is not None and roofline.nearest is not None:
        more = [
            (f"{roof.level} bytes", roof.bytes, "bytes", f"{share_text(roof.share)} of that level's peak")
            for roof in roofline.memory
            if roof.bytes is not None
        ]
    if queue is not None:
        how = f"cycles of a warp, by stalls and loads; {queue.idle:.0f} in an idle memory"
        more.append(("wait for a load", queue.waited, "cycles", how))
    roof, roof_share = (roofline.nearest if roofline is not None else None) or ("", None)
    advice = "fp32_products" if resource is Resource.L1 and is_fp32_product(limits.kernel) else None
    return {
        **_busy(limits),
        "roof": roof,
        "roof_share": roof_share,
        "words": "memory, through its issue slots",
        "operands": operands_advice(limits),
        "variant": "queued" if queue is not None else resource.value,
        "advice": None if queue is not None else "levels" if limits.has_levels_only else advice,
        "more": more,
    }


def _compute(limits: KernelLimits, fp64_ratio: float) -> Figures:
    """Where fp64 is slow, its format is the cause."""
    pipe, beside, ratio, more = limits.top, _as_busy(limits), _fp32_per_fp64(limits), list[Counter]()
    is_slow = ratio is not None and 1 / ratio < fp64_ratio
    if is_slow and beside is not None and beside.resource is Resource.FP64:
        pipe, beside = beside, pipe
    resource, advice = pipe.resource, None
    roofs = limits.roofline.compute if limits.roofline is not None else ()
    for roof in roofs:
        how = "of its additions, multiplications and fused operations"
        more.append((f"{roof.label} roof", roof.share, "ratio", "of the dense peak at the profiled clock"))
        more.append((f"{roof.precision} fused share", roof.fused_ratio, "ratio", how))
    of_tensor = resource is Resource.TENSOR
    of_mma = limits.kernel.compute_capability == HOPPER and any(roof.path == "mma" for roof in roofs)
    if of_tensor:
        advice = operands_advice(limits)
    elif beside is not None and not (is_slow and resource is Resource.FP64):
        advice = "both"
    return {
        **_busy(limits),
        "words": "instruction issue",
        "ratio": ratio,
        "variant": resource.value,
        "advice": "wgmma" if of_tensor and of_mma else "fp32_products" if is_fp32_product(limits.kernel) else advice,
        "bottleneck": Bottleneck.PRECISION if resource is Resource.FP64 and is_slow else None,
        "beside": beside and rule_texts("compute-bound-kernel").variants[beside.resource.value]["words"],
        "beside_busy": beside and beside.busy,
        "more": more,
    }


def _as_busy(limits: KernelLimits) -> Leaf | None:
    """The busiest pipe of another kind that is about as busy as a kernel's busiest one: without the work of either
    alone the kernel is hardly faster."""
    if limits.top.resource not in ARITHMETIC:
        return None
    others = [leaf for leaf in limits.leaves if leaf.resource in ARITHMETIC - {limits.top.resource}]
    return next((leaf for leaf in others if leaf.busy >= _AS_BUSY * limits.top.busy), None)


_AS_BUSY: Final = 0.9  # of the busiest pipe: without that one alone the kernel is a ninth faster at most


def _fp32_per_fp64(limits: KernelLimits) -> float | None:
    """By the report's own peaks, else as the GPU is known; None where nothing tells."""
    kernel = limits.kernel
    lanes = [kernel.get(f"sm__sass_thread_inst_executed_op_{op}fma_pred_on.sum.peak_sustained") for op in ("f", "d")]
    return lanes[0] / lanes[1] if lanes[0] and lanes[1] else plain_per_double(kernel.gpu, kernel.compute_capability)


RULES: Final = (
    cause_rule("uncoalesced", Cause.UNCOALESCED, _uncoalesced),
    cause_rule("bank-conflicts", Cause.BANK_CONFLICTS, _bank_conflicts),
    cause_rule("register-spills", Cause.REGISTER_SPILLS, _register_spills),
    cause_rule("divergence", Cause.DIVERGENCE, _divergence),
    cause_rule("atomics", Cause.ATOMICS, _atomics),
    cause_rule("occupancy", Cause.OCCUPANCY, _occupancy),
    cause_rule("latency-bound-kernel", Cause.LATENCY, _latency),
    cause_rule("memory-bound-kernel", Cause.MEMORY, _memory),
    cause_rule("compute-bound-kernel", Cause.COMPUTE, _compute),
)
