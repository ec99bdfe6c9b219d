"""What each cause of a kernel's time is in figures: those that its rule shows, its kind, its name and its price.

`figures_of` gives one launch's. Two of its keys choose words: `variant` is the kind of the cause, `advice` the name of
what helps where another change than the kind's does. Kernels too small to profile alone are told apart (`is_tiny`).
"""

from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any, Final

from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import HOPPER, LANES
from timesink.measures.counters.bounds import (
    FOR_CODE,
    MOSTLY,
    PRODUCT_WORK,
    awake_ns,
    bound_without,
    is_fp32_product,
    used,
)
from timesink.measures.counters.busiest import awaited_operands, busiest_pipes, is_slow
from timesink.measures.counters.limiter import KernelLimits, noun_of
from timesink.measures.counters.operations import excess_of_rows, executed_text, loads_widely, variant_of
from timesink.measures.counters.resources import Resource
from timesink.measures.counters.stalls import FULL, is_unoptimized
from timesink.measures.counters.waste import Cause
from timesink.units import NS_PER_US, share_text

Figures = dict[str, Any]
WAITING: Final = (Cause.OCCUPANCY, Cause.LATENCY)
NECESSARY: Final = frozenset({Cause.MEMORY, Cause.COMPUTE})
"""Causes that are the kernel's work, and what of it stays the same on the way to its roof."""
ALONE_US: Final = 5.0  # what takes less is launch, ramp-up and last blocks, whatever is done to its code
SLOW_FP64: Final = 0.25  # of the fp32 rate: a GPU below it is not made for fp64
FUSE: Final = "fuse"
OPTIMIZE: Final = "optimize"
_OF_CODE: Final = (Cause.COMPUTE, Cause.OCCUPANCY, Cause.LATENCY, Cause.REGISTER_SPILLS)  # of unoptimized code
AT_ROOF: Final = 0.9  # of a roof: beyond it less work is all that wins
BYTES_TO_ROOF: Final = "bytes to the roof"
COPIES_TO_ROOF: Final = "copies to the roof"
OPERATIONS_TO_ROOF: Final = "operations to the roof"
CODE_TO_ROOF: Final = "code to the roof"
LOADS_TO_ROOF: Final = "loads to the roof"
LEAST_NEXT: Final = 0.05  # of the time: a cause beside the limiter that is worth a word
_NO_BLOCKS: Final = 0.9  # of the SMs' time
FEW_SMS: Final = 2  # times as long
_NO_INTEGERS: Final = frozenset({Resource.TENSOR, Resource.FP64})  # pipes that integers do not pass


Counted = tuple[str, float | None, str, str]
"""The label of a counter, its value, its unit, and how it was measured."""


def is_tiny(limits: KernelLimits, alone_us: float = ALONE_US) -> bool:
    """Whether it waits, and is too short for anything done to it alone to matter; twice as long where nearly all SMs
    have no block: what is there to do fits a few of them."""
    most_us = alone_us * (FEW_SMS if (limits.occupancy.sm_idle or 0.0) >= _NO_BLOCKS else 1)
    return limits.limiter in WAITING and (awake_ns(limits.kernel) or inf) < most_us * NS_PER_US


def limiter_name(limits: KernelLimits, slow_fp64: float = SLOW_FP64) -> str:
    """The name of a launch's limiter: that of its cause, or precision where a slow format is what its work is."""
    return cause_name(limits, limits.limiter, slow_fp64)


def cause_name(limits: KernelLimits, cause: Cause, slow_fp64: float = SLOW_FP64) -> str:
    """The name of a cause in a launch."""
    if cause is not Cause.COMPUTE:
        return cause.value
    pipe, _, ratio = busiest_pipes(limits, slow_fp64)
    return "precision" if pipe.resource is Resource.FP64 and is_slow(ratio, slow_fp64) else cause.value


def limiter_words(name: object) -> str:
    """A limiter as people read it."""
    return str(name or "undecided").replace("_", " ").removesuffix(" kernel")


def figures_of(limits: KernelLimits, cause: Cause, slow_fp64: float = SLOW_FP64) -> Figures:
    """What the counters say of a cause in one launch."""
    figures = _compute(limits, slow_fp64) if cause is Cause.COMPUTE else _FIGURES[cause](limits)
    is_other_code = cause in _OF_CODE and is_unoptimized(limits.kernel) and figures.get("advice") != FUSE
    return {**figures, "advice": OPTIMIZE, "reach": None} if is_other_code else figures


def most_ns(limits: KernelLimits, cause: Cause) -> float:
    """Time of the launch that could be saved if the cause were gone: down to the next ceiling, or all that it takes
    where none is known; of an open verdict what is advised wins no more than its own bound."""
    bound = (bound_in_fp32(limits) if cause is Cause.COMPUTE else None) or limits.bounds[cause]
    bound = min(bound, advised_bound(limits, cause))
    return (limits.kernel.duration_ns or 0.0) * (1 - 1 / bound if isfinite(bound) else limits.most_share(cause))


def advised_bound(limits: KernelLimits, cause: Cause) -> float:
    """How many times as fast what is advised makes it at most, where the next ceiling is of another change: infinite
    where it is not. Of an open verdict less work is not other work, as of tensor cores, and there are no more places
    for warps than an SM has. With fewer integer operations tensor cores and fp64 pipes work as long."""
    if cause is not limits.limiter or _is_done_otherwise(limits, cause):
        return inf
    if limits.top.resource is Resource.ALU and cause is Cause.COMPUTE and to_roof(limits, cause) is None:
        stays = max((used(leaf) for leaf in limits.leaves if leaf.resource in _NO_INTEGERS), default=0.0)
        return 1 / stays if stays else inf
    match cause if limits.others else None:
        case Cause.MEMORY if not limits.is_roof_least:
            return max(bound_without(cause, limits.leaves, limits.waste), limits.roof_speedup or 1.0)
        case Cause.OCCUPANCY if _empty_by(limits) in ("", "blocks", "one", "lanes"):
            return _bound_of_places(limits)
        case _:
            return inf


def _bound_of_places(limits: KernelLimits) -> float:
    """Full warps in every place of every SM, each as quick as now; infinite where they were not counted."""
    places = limits.occupancy
    if not places.achieved or places.sm_idle is None or places.sm_idle >= 1:
        return inf
    return max(1.0, 1 / (places.achieved * (1 - places.sm_idle) * limits.waste.filled_lanes))


def told_most(limits: KernelLimits, cause: Cause) -> float:
    """The largest part of the time that is said to be the cause's: all that goes with it, as far as what is advised
    removes it, and no less than its unit may be busy with it."""
    most, bound = limits.most_share(cause), min(limits.bounds[cause], advised_bound(limits, cause))
    waits_too = cause is Cause.LATENCY and as_it_is(limits, cause) is None  # its busiest unit: that is latency as well
    if not limits.others or not isfinite(bound) or waits_too:
        return most
    busy = limits.largest.get(cause, 0.0) if cause in NECESSARY else limits.least_share(cause)
    return min(most, max(busy, 1 - 1 / bound))


def as_it_is(limits: KernelLimits, cause: Cause) -> float | None:
    """How many times as fast it is at most while it does what it does now: at its roof, or with its waits hidden; None
    of other causes, where its busiest unit waits, too, and where other operations take the place of its own."""
    if _is_done_otherwise(limits, cause):
        return None
    if cause in NECESSARY:
        return limits.roof_speedup
    is_apart = cause is Cause.LATENCY and limits.stalls is None and not limits.top.is_of_barriers
    return limits.bound_of_hidden_waits if is_apart else None


def bound_in_fp32(limits: KernelLimits, slow_fp64: float = SLOW_FP64) -> float | None:
    """How many times as fast a kernel whose slow format limits it is in fp32 at most: its other units stay as they are,
    and as many operations pass that pipe. None for other kernels."""
    pipe, _, ratio = busiest_pipes(limits, slow_fp64)
    if pipe.resource is not Resource.FP64 or ratio is None or not is_slow(ratio, slow_fp64):
        return None
    others = (used(leaf) for leaf in limits.leaves if leaf.resource not in (Resource.FP64, Resource.HIDDEN))
    return max(1.0, 1 / max([pipe.busy / ratio, *others]))


def gain_ns(limits: KernelLimits, cause: Cause) -> float:
    """Time of the launch that the cause takes, at most what the next ceiling leaves, and that alone where counters are
    missing; of necessary work what its roof leaves, with the same bytes and operations."""
    is_open = bool(limits.others) and cause not in NECESSARY
    if is_open or _is_done_otherwise(limits, cause):
        return most_ns(limits, cause)
    length_ns = limits.kernel.duration_ns or 0.0
    gain = min(length_ns * _advised_share(limits, cause), most_ns(limits, cause))
    is_work = cause in NECESSARY and cause is limits.limiter
    return min(gain, length_ns * max(0.0, 1 - limits.roof[1])) if is_work else gain


def _is_done_otherwise(limits: KernelLimits, cause: Cause) -> bool:
    """Whether other operations take the place of its own: how fast is not known, only its bound."""
    is_other_format = cause is Cause.COMPUTE and bound_in_fp32(limits) is not None
    is_other_code = cause in _OF_CODE and is_unoptimized(limits.kernel)
    return is_other_format or is_other_code or (cause in PRODUCT_WORK and is_fp32_product(limits.kernel))


def _advised_share(limits: KernelLimits, cause: Cause) -> float:
    """What advice wins back of a cause: more, whole and even blocks fill no slot that registers leave empty."""
    share, places = limits.shares[cause], limits.occupancy
    of_blocks = cause is Cause.OCCUPANCY and bool(_without_blocks(limits))
    if not of_blocks or not places.limited_by or not places.theoretical or not places.achieved:
        return share
    without, room = min(share, places.sm_idle or 0.0), max(0.0, places.theoretical - places.achieved)
    return without + (share - without) * room / (room + 1 - places.theoretical)


def to_roof(limits: KernelLimits, cause: Cause) -> str | None:
    """What brings necessary work to its roof, where that is the price, by what its warps wait for most: a tenth of the
    time or more is missing, and the same bytes or operations pass. None of a page that leaves open whether they must,
    and where warps wait in its queue: more on the way only lengthen that."""
    stalls, is_unknown = limits.stalls, limits.has_levels_only or bool(limits.others)
    queued = 0.0 if stalls is None else stalls.of(FULL) if cause is Cause.MEMORY else stalls.at_pipes
    if cause is not limits.limiter or limits.roof[1] >= AT_ROOF or is_unknown or queued >= MOSTLY:
        return None
    if stalls is not None and stalls.of(FOR_CODE) >= MOSTLY:
        return CODE_TO_ROOF
    if cause is not Cause.MEMORY:
        return OPERATIONS_TO_ROOF
    bytes_by = LOADS_TO_ROOF if loads_widely(limits.kernel) else BYTES_TO_ROOF
    return COPIES_TO_ROOF if limits.waste.copies_ahead else bytes_by


def may_be_scattered(limits: KernelLimits) -> bool:
    """Whether coalescing may relieve its busiest unit: of one that counts requests as many stay."""
    return Cause.UNCOALESCED in limits.others and limits.bounds[Cause.UNCOALESCED] > 1 / used(limits.top)


def wins_by_less_work(limits: KernelLimits, cause: Cause) -> bool:
    """Whether below its roof less work is all that is advised: the same work at that roof is not its price."""
    is_below = cause in NECESSARY and cause is limits.limiter and limits.roof[1] < AT_ROOF
    return is_below and to_roof(limits, cause) is None


def share_of(limits: KernelLimits, cause: Cause) -> float:
    """The cause's share of the time; none where it is not known whether that is the limiter, but for the lead."""
    is_open = limits.has_levels_only or limits.others
    return 0.0 if is_open and cause is not limits.limiter else limits.shares[cause]


def compared_with(limits: KernelLimits, cause: Cause, limit: float | None) -> float:
    """What a share is compared with: the rule's limit, or for a rule without one the largest share of another cause."""
    return limit if limit is not None else max(share for other, share in limits.shares.items() if other is not cause)


def next_cause(limits: KernelLimits) -> tuple[str, float] | None:
    """What takes most of the time beside the limiter, in words, and its share by what was counted; None where a page
    does not say what else there is, it is next to nothing, or more than the limiter's: work that fills no unit."""
    others = [cause for cause in limits.ranked if cause is not limits.limiter]
    largest = max(others, key=lambda cause: limits.shares[cause], default=None)
    if largest is None or limits.has_levels_only:
        return None
    if not LEAST_NEXT <= limits.shares[largest] <= limits.most_share(limits.limiter):
        return None
    waits = limits.stalls.top if largest is Cause.LATENCY and limits.stalls is not None else None
    reason = f" ({waits[0].replace('_', ' ')})" if waits is not None else ""
    return f"{noun_of(cause_name(limits, largest))}{reason}", limits.shares[largest]


def _uncoalesced(limits: KernelLimits) -> Figures:
    """Rows of a block that are shorter than a warp put its lanes in several rows of the data, which wastes so much."""
    access, block = limits.waste.access, limits.kernel.block
    is_of_rows = (access.excess_ratio or 0.0) <= excess_of_rows(limits.kernel)
    variant = "rows" if block[0] < LANES and block[1] * block[2] > 1 and is_of_rows else ""
    if access.excess_ratio is not None and access.sectors is not None:
        return {"excess": access.excess_ratio, "sectors": access.sectors, "variant": variant, "across": block[0]}
    return {"passes": access.wavefronts_per_request, "variant": variant, "across": block[0]}


def _bank_conflicts(limits: KernelLimits) -> Figures:
    access = limits.waste.access
    actual, ideal = access.shared_wavefronts or 0.0, access.ideal_shared_wavefronts or 0.0
    return {"passes": actual / ideal if ideal else 0.0, "actual": actual, "ideal": ideal}


def _register_spills(limits: KernelLimits) -> Figures:
    registers = limits.kernel.get("launch__registers_per_thread")
    return {"local": limits.waste.local_instructions, "registers": registers}


def _divergence(limits: KernelLimits) -> Figures:
    """Lanes that a block has no threads for take no branch."""
    waste = limits.waste
    is_unfilled = 1 - waste.filled_lanes >= MOSTLY * waste.idle_lanes > 0
    return {"lanes": waste.active_lanes or 0.0, "variant": "lanes" if is_unfilled else ""}


def _atomics(limits: KernelLimits) -> Figures:
    return {"requests": limits.waste.atomic_requests, "shared": limits.waste.access.shared_atomic_share or None}


def _without_blocks(limits: KernelLimits) -> str:
    """Why SMs have no block, where that is the larger part of the cause: blocks of unequal length, a last wave as equal
    blocks leave it, one block that does it all, too few blocks, or that the launch begins and ends. Too few also where
    they leave most of the warp slots empty that are."""
    occupancy, blocks = limits.occupancy, limits.kernel.blocks
    idle, sms = occupancy.sm_idle or 0.0, occupancy.sm_count or inf
    waves = 1.0 if occupancy.waves is None else occupancy.waves
    of_equal = (occupancy.tail or 0.0) if waves > 1 else max(0.0, 1 - blocks / sms)
    is_larger, is_more = idle >= limits.shares[Cause.OCCUPANCY] / 2, idle > 2 * of_equal
    rest_us = (idle - of_equal) * (limits.kernel.duration_ns or 0.0) / NS_PER_US
    if is_larger and is_more and rest_us > machines.UNFILLED_US.value:
        return "uneven" if waves > 1 else "longest"
    if is_larger and waves > 1 and not is_more:
        return "tail"
    if blocks == 1 and is_larger:
        return "one"
    is_few = 0 < idle <= 2 * of_equal or 1 - waves >= (1 - (occupancy.achieved or 0.0)) / 2
    return "blocks" if waves < 1 and is_few else "ends" if is_larger and is_more else ""


def _empty_by(limits: KernelLimits) -> str:
    """The variant of occupancy: what leaves most places for warps empty."""
    is_of_lanes = 1 - limits.waste.filled_lanes >= MOSTLY * limits.shares[Cause.OCCUPANCY] > 0
    by_blocks = "lanes" if is_of_lanes else _without_blocks(limits)
    return by_blocks or ("unequal" if limits.occupancy.is_unequal else "")


def _occupancy(limits: KernelLimits) -> Figures:
    occupancy, kernel, variant = limits.occupancy, limits.kernel, _empty_by(limits)
    limited = " and ".join(occupancy.limited_by)
    return {
        "blocks": kernel.blocks,
        "achieved": occupancy.achieved,
        "theoretical": occupancy.theoretical,
        "limits": f"limited by {limited}" if limited else "not limited",
        "sm_idle": occupancy.sm_idle,
        "waves": occupancy.waves,
        "at_once": kernel.blocks / occupancy.waves if occupancy.waves else None,
        "limited": limited or "the number of running blocks",
        "grid": f"{kernel.blocks} block{'' if kernel.blocks == 1 else 's'}",
        "sms": occupancy.sm_count or None,
        "variant": variant,
        "advice": FUSE if is_tiny(limits) else None if variant else awaited_operands(limits),
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
        "where": "at barriers or on the way to them" if empty else "while no unit is full",
        "variant": "copies" if is_copied else reason,
        "advice": FUSE if is_tiny(limits) else awaited_operands(limits),
    }


def _busy(limits: KernelLimits) -> Figures:
    """How busy a kernel's busiest unit is."""
    return {"busy": limits.top.busy, "unit": limits.top.name}


def _memory(limits: KernelLimits) -> Figures:
    resource, queue, roofline = limits.top.resource, limits.queued_loads, limits.roofline
    more: list[Counted] = []
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
    is_unknown = limits.has_levels_only or may_be_scattered(limits)
    advice = "fp32_products" if resource is Resource.L1 and is_fp32_product(limits.kernel) else None
    return {
        **_busy(limits),
        "roof": roof,
        "roof_share": roof_share,
        "operands": awaited_operands(limits),
        "reach": to_roof(limits, Cause.MEMORY),
        "variant": "queued" if queue is not None else resource.value,
        "advice": None if queue is not None else "levels" if is_unknown else advice,
        "more": more,
    }


def _compute(limits: KernelLimits, slow_fp64: float) -> Figures:
    """Where fp64 is slow, its format is the cause."""
    (pipe, beside, ratio), more = busiest_pipes(limits, slow_fp64), list[Counted]()
    resource, advice = pipe.resource, None
    roofs = limits.roofline.compute if limits.roofline is not None else ()
    for roof in roofs:
        how = "of its additions, multiplications and fused operations"
        more.append((f"{roof.label} roof", roof.share, "ratio", "of the dense peak at the profiled clock"))
        more.append((f"{roof.precision} fused share", roof.fused_ratio, "ratio", how))
    of_tensor = resource is Resource.TENSOR
    of_mma = limits.kernel.compute_capability == HOPPER and any(roof.path == "mma" for roof in roofs)
    if of_tensor:
        advice = awaited_operands(limits)
    elif beside is not None and not (resource is Resource.FP64 and is_slow(ratio, slow_fp64)):
        advice = "both"
    return {
        **_busy(limits),
        "ratio": ratio,
        "variant": variant_of(limits.kernel, pipe),
        "executed": executed_text(limits.kernel),
        "advice": "wgmma" if of_tensor and of_mma else "fp32_products" if is_fp32_product(limits.kernel) else advice,
        "reach": None if bound_in_fp32(limits, slow_fp64) is not None else to_roof(limits, Cause.COMPUTE),
        "beside": beside and variant_of(limits.kernel, beside),
        "beside_busy": beside and beside.busy,
        "more": more,
    }


_FIGURES: Final[Mapping[Cause, Callable[[KernelLimits], Figures]]] = {
    Cause.UNCOALESCED: _uncoalesced,
    Cause.BANK_CONFLICTS: _bank_conflicts,
    Cause.REGISTER_SPILLS: _register_spills,
    Cause.DIVERGENCE: _divergence,
    Cause.ATOMICS: _atomics,
    Cause.OCCUPANCY: _occupancy,
    Cause.LATENCY: _latency,
    Cause.MEMORY: _memory,
}
