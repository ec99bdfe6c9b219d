"""The rules on single kernels, one for each cause of a kernel's time.

Each `_explain` says what its cause means for one launch: the end of the sentence, the counters behind it, the advice.
"""

from __future__ import annotations

from typing import Final

from timesink.diagnosis.verdicts import Bottleneck
from timesink.diagnosis.words import number
from timesink.knowledge.gpus import HOPPER
from timesink.measures.counters.bounds import is_fp32_product
from timesink.measures.counters.counters import Resource
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu._family import ALLOW_TF32, Explanation, busiest_unit, cause_rule, counted, operands_advice
from timesink.rules.ncu._tiny import FUSE, is_tiny
from timesink.units import share_text


def _explain_uncoalesced(limits: KernelLimits) -> Explanation:
    access = limits.waste.access
    if access.excess_ratio is not None and access.sectors is not None:
        how = f"{access.sectors:.0f} sectors touched by global loads and stores"
        evidence = counted(limits, ("sectors beyond the ideal", access.excess_ratio, "ratio", how))
    else:
        how = "utilization of the L1 data pipe over that of its requests"
        evidence = counted(limits, ("L1 passes per request", access.wavefronts_per_request, "passes", how))
    return Explanation(
        "on sectors that coalesced accesses would not touch",
        evidence,
        "Let adjacent threads access adjacent addresses: swap the roles of the indices, stage through shared "
        "memory, store the field as an array of its own, or sort the indices first.",
    )


def _explain_bank_conflicts(limits: KernelLimits) -> Explanation:
    access = limits.waste.access
    actual, ideal = access.shared_wavefronts or 0.0, access.ideal_shared_wavefronts or 0.0
    how = f"{actual:.0f} passes of shared accesses, {ideal:.0f} without conflicts"
    ratio = actual / ideal if ideal else 0.0
    return Explanation(
        "on passes that shared memory repeats because lanes meet in one bank",
        counted(limits, ("passes per pass needed", ratio, "passes", how)),
        "Pad or swizzle the shared tile: one more word per row, or columns swizzled by the row, so that lanes of "
        "a warp access 32 different banks.",
    )


def _explain_register_spills(limits: KernelLimits) -> Explanation:
    registers = limits.kernel.get("launch__registers_per_thread")
    return Explanation(
        "on local memory",
        counted(
            limits,
            ("local instructions", limits.waste.local_instructions, "ratio", "of the instructions executed"),
            ("registers per thread", registers, "registers", "as launched"),
        ),
        "Allow more registers, or keep fewer values alive: launch bounds, -maxrregcount; unroll loops over arrays "
        "so that their indices are constants, or move the array to shared memory.",
    )


_WHOLE_WARPS = "Launch whole warps: blocks of a multiple of 32 threads, say 128 to 256; lanes stay empty here."
_SAME_WAY = (
    "Deal the work so that the lanes of a warp take the same branch and loop equally often: sort or bucket it, or "
    "spread one item over the lanes of a warp."
)


def _explain_divergence(limits: KernelLimits) -> Explanation:
    lanes = limits.waste.active_lanes or 0.0
    how = "threads executed (not switched off, where most are) over warp instructions; a warp has 32"
    return Explanation(
        "on lanes that are idle while their warp executes",
        counted(limits, ("active lanes", lanes, "lanes", how)),
        "Let all lanes of a warp take the same branch: sort or bucket the work, loop equally often, or "
        "spread one item over the lanes of a warp.",
    )


def _explain_atomics(limits: KernelLimits) -> Explanation:
    shared = limits.waste.access.shared_atomic_share or None
    return Explanation(
        "on atomic updates",
        counted(
            limits,
            ("atomic requests", limits.waste.atomic_requests, "ratio", "of global memory requests"),
            ("shared atomics", shared, "ratio", "of shared-memory instructions"),
        ),
        "Combine values before the atomic update: by shuffles in a warp, then in shared memory, and one atomic per "
        "block; give each warp or lane its own copy of a small histogram.",
    )


def _explain_occupancy(limits: KernelLimits) -> Explanation:
    occupancy, kernel = limits.occupancy, limits.kernel
    limited = f"limited by {' and '.join(occupancy.limited_by)}" if occupancy.limited_by else "not limited"
    evidence = counted(
        limits,
        ("blocks in the grid", kernel.blocks, "blocks", "as launched"),
        ("achieved occupancy", occupancy.achieved, "ratio", "while an SM was active"),
        ("theoretical occupancy", occupancy.theoretical, "ratio", limited),
        ("SMs without a block", occupancy.sm_idle, "ratio", "mean over SMs and the kernel"),
        ("waves", occupancy.waves, "waves", "times the grid fills the GPU"),
    )
    return Explanation("waiting with empty warp slots", evidence, _advise_occupancy(limits))


def _advise_occupancy(limits: KernelLimits) -> str:
    if is_tiny(limits):
        return FUSE
    occupancy, kernel = limits.occupancy, limits.kernel
    if limits.waste.filled_lanes < 1:
        return _WHOLE_WARPS
    idle, achieved = occupancy.sm_idle or 0.0, occupancy.achieved or 0.0
    sms = f" on {occupancy.sm_count:.0f} SMs" if occupancy.sm_count else ""
    if idle > 1 - achieved or (occupancy.waves or 1.0) < 1:
        return (
            "Launch enough blocks for whole waves: smaller tiles, split-K, or persistent blocks with a queue. The grid "
            f"has {number(kernel.blocks, 'block')}{sms}."
        )
    if operands := operands_advice(limits):
        return operands
    limited = " and ".join(occupancy.limited_by) or "the number of running blocks"
    return (
        f"Fit more warps on an SM: the limit is {limited}. Or keep more loads in flight per warp (unroll, wider loads, "
        "asynchronous copies)."
    )


_LATENCY_ADVICE = {
    "barrier": "Synchronize less: balance the warps of a block, use smaller blocks, warp-level reductions, or barriers "
    "that split arrive from wait.",
    "membar": "Use fewer or weaker fences: one at the end of a phase instead of one per store.",
    "no_instruction": "Unroll less and keep cold paths out of line: the code does not fit the instruction caches.",
    "no_instructions": "Unroll less and keep cold paths out of line: the code does not fit the instruction caches.",
    "long_scoreboard": "Keep more loads in flight per warp: unroll, load ahead, copy asynchronously; reuse data.",
    "short_scoreboard": "Use fewer, wider shared-memory accesses; fast-math versions of special functions.",
    "wait": "Give each warp independent work: several accumulators, unrolled loops.",
    "lg_throttle": "Use fewer, wider global accesses; remove spills.",
    "mio_throttle": "Use fewer, wider shared-memory accesses; keep values in registers.",
    "imc_miss": "Index constants uniformly per warp; or read them from global memory.",
    "warpgroup_arrive": "Keep more wgmma groups in flight before waiting for one.",
    "gmma": "Keep more wgmma groups in flight before waiting for one.",
}


_STAGES = "Add pipeline stages: issue several asynchronous copies before waiting for the first."


_OTHERWISE = "Find the instruction that warps stall on: the source page of the profile shows the samples per line."


def _explain_latency(limits: KernelLimits) -> Explanation:
    counters = [busiest_unit(limits)]
    top = limits.stalls.top if limits.stalls is not None else None
    if limits.stalls is not None and top is not None:
        source = "samples" if limits.stalls.is_sampled else "counters"
        counters.append((f"waiting on {top[0]}", top[1], "ratio", f"of warps' waiting time, by {source}"))
    reason = f", mostly on {top[0]}" if top is not None else ""
    empty = limits.waste.of(Cause.LATENCY, limits.top.resource)
    if empty:
        how = f"of what {limits.top.name} does: warps without work run along to the next barrier"
        counters.append(("instructions with every lane off", empty, "ratio", how))
    return Explanation(
        f"in latency {'at barriers or running along to them' if empty else 'while no unit is full'}{reason}",
        counted(limits, *counters),
        _advise_latency(limits, None if top is None else top[0]),
    )


def _advise_latency(limits: KernelLimits, reason: str | None) -> str:
    if is_tiny(limits):
        return FUSE
    if limits.waste.copies_ahead and reason == "long_scoreboard":
        return operands_advice(limits) or _STAGES
    return operands_advice(limits) or _LATENCY_ADVICE.get(reason or "", _OTHERWISE)


_MEMORIES = {
    Resource.DRAM: "DRAM",
    Resource.L2: "the L2 cache",
    Resource.L1: "L1, shared memory or load-store",
    Resource.HIDDEN: "a memory unit the report does not name",
}


_FEWER = "move fewer bytes: fuse with neighboring kernels, store narrower types, read each byte once."
_REUSE = "Reuse data in shared memory and registers: larger tiles, fewer passes over the same data."


def _explain_memory(limits: KernelLimits) -> Explanation:
    level, queue = _MEMORIES.get(limits.top.resource, "memory, through its issue slots"), limits.queued_loads
    counters = [busiest_unit(limits)]
    if limits.roofline is not None and limits.roofline.nearest is not None:
        name, share = limits.roofline.nearest
        counters.append((f"nearest roof: {name}", share, "ratio", "of that roof, at the profiled clock"))
        counters += [
            (f"{roof.level} bytes", roof.bytes, "bytes", f"{share_text(roof.share)} of that level's peak")
            for roof in limits.roofline.memory
            if roof.bytes is not None
        ]
    if queue is not None:
        how = f"cycles of a warp, by stalls and loads; {queue.idle:.0f} in an idle memory"
        evidence = counted(limits, *counters, ("wait for a load", queue.waited, "cycles", how))
        return Explanation("in loads that queue for memory", evidence, _REUSE)
    return Explanation(f"moving bytes through {level}", counted(limits, *counters), _advise_memory(limits))


def _advise_memory(limits: KernelLimits) -> str:
    if limits.has_levels_only:
        return "Coalesce accesses (check with ncu --page raw); then " + _FEWER
    if limits.top.resource is Resource.L1 and is_fp32_product(limits.kernel):
        return ALLOW_TF32
    match limits.top.resource:
        case Resource.L1:
            return "Use larger register tiles: 16-byte loads per lane, matrix loads for tensor cores."
        case Resource.L2:
            return " ".join(filter(None, (_REUSE, operands_advice(limits))))
        case Resource.DRAM | Resource.HIDDEN:
            return _FEWER.capitalize()
        case _:
            return (
                "Use fewer instructions per byte, then fewer bytes: 16-byte loads per lane, packed arithmetic, "
                "fusion with neighboring kernels."
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


_COMPUTE_ADVICE = {
    Resource.FP64: "Use fp32 where the accuracy allows: this GPU does {ratio:.0f} times as much of it.",
    Resource.FMA: "Move the products to tensor cores (tf32, bf16); or fuse multiply and add, or compute less.",
    Resource.ALU: "Use fewer integer operations: strength-reduce indices, divide by constants or powers of two.",
    Resource.XU: "Use fewer special functions: hoist them, replace powers by products, approximate by polynomials.",
    Resource.TENSOR: "Use narrower operands (bf16, fp8) or fewer products; below the peak, other tiles: torch.compile "
    'with mode="max-autotune", or the heuristics of cuBLASLt.',
    Resource.ISSUE: "Issue fewer instructions: wider loads, packed arithmetic, tensor cores, less index work.",
    Resource.CONTROL: "Use fewer branches and less uniform index work: unroll, hoist.",
}


def _explain_compute(limits: KernelLimits, fp64_ratio: float) -> Explanation:
    """What this cause means for one launch. Where fp64 is slow, its format is the cause."""
    counters = [busiest_unit(limits)]
    for roof in limits.roofline.compute if limits.roofline is not None else ():
        how = "of its additions, multiplications and fused operations"
        counters.append((f"{roof.label} roof", roof.share, "ratio", "of the dense peak at the profiled clock"))
        counters.append((f"{roof.precision} fused share", roof.fused_ratio, "ratio", how))
    pipe = _PIPES.get(limits.top.resource, "instruction issue")
    is_slow = limits.top.resource is Resource.FP64 and 1 / _fp32_per_fp64(limits) < fp64_ratio
    evidence = counted(limits, *counters)
    return Explanation(f"on {pipe}", evidence, _advise_compute(limits), Bottleneck.PRECISION if is_slow else None)


def _advise_compute(limits: KernelLimits) -> str:
    roofs = limits.roofline.compute if limits.roofline is not None else ()
    of_mma = limits.kernel.compute_capability == HOPPER and any(roof.path == "mma" for roof in roofs)
    if limits.top.resource is Resource.TENSOR and of_mma:
        return "Move the products from mma.sync to wgmma; it has 1.5 times the rate on this GPU."
    if is_fp32_product(limits.kernel):
        return ALLOW_TF32
    if limits.top.resource is Resource.TENSOR and (operands := operands_advice(limits)):
        return operands
    advice = _COMPUTE_ADVICE.get(limits.top.resource, _COMPUTE_ADVICE[Resource.ISSUE])
    return advice.format(ratio=_fp32_per_fp64(limits)) if limits.top.resource is Resource.FP64 else advice


def _fp32_per_fp64(limits: KernelLimits) -> float:
    lanes = [
        limits.kernel.get(f"sm__sass_thread_inst_executed_op_{op}fma_pred_on.sum.peak_sustained") for op in ("f", "d")
    ]
    return lanes[0] / lanes[1] if lanes[0] and lanes[1] else 2.0


RULES: Final = (
    cause_rule("uncoalesced", Cause.UNCOALESCED, _explain_uncoalesced),
    cause_rule("bank-conflicts", Cause.BANK_CONFLICTS, _explain_bank_conflicts),
    cause_rule("register-spills", Cause.REGISTER_SPILLS, _explain_register_spills),
    cause_rule("divergence", Cause.DIVERGENCE, _explain_divergence),
    cause_rule("atomics", Cause.ATOMICS, _explain_atomics),
    cause_rule("occupancy", Cause.OCCUPANCY, _explain_occupancy),
    cause_rule("latency-bound-kernel", Cause.LATENCY, _explain_latency),
    cause_rule("memory-bound-kernel", Cause.MEMORY, _explain_memory),
    cause_rule("compute-bound-kernel", Cause.COMPUTE, _explain_compute),
)
