"""What a profiled kernel's time goes to, by cause, and how much faster it could be without each.

The busiest unit is busy for a share `u` of the time: that share is waste of a known cause or necessary work. For the
rest even the busiest unit waits: for blocks, for warps, for each other. Every nanosecond gets exactly one cause, so
the shares of a kernel add up to 1, which the profiler's own estimates do not.

An example: the busiest unit, L1, is busy for 0.8 of the time, a quarter of that with bank conflicts; SMs have no block
for 0.1 of the time, and the stalls of the other 0.1 are waits that more warps would hide, at an occupancy of 0.6:

    bank conflicts 0.8 x 0.25 = 0.2   memory 0.8 - 0.2 = 0.6   occupancy 0.1 + 0.1 x (1 - 0.6) = 0.14   latency 0.06

The bound of a cause is the next ceiling: the kernel's time cannot fall below what the remaining units still need. Of
latency that is less than all units do: a fix may wait for fewer barriers or loads, and what they pass through goes with
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import LANES, SECTORS_OF_PASS, Precision, peaks
from timesink.knowledge.kernel_names import library_of
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.counters.counters import (
    ARITHMETIC,
    FULL,
    HIDDEN_BY_WARPS,
    MEMORY,
    KernelCounters,
    Leaf,
    Occupancy,
    Resource,
    Stalls,
    is_complete,
    kernel_counters,
    lacks_units,
    leaves,
    occupancy_of,
    stalls_of,
)
from timesink.measures.counters.roofline import KernelRoofline, roofline_of
from timesink.measures.counters.waste import Cause, Waste, least_passes, waste_of
from timesink.model.record import dataclass
from timesink.model.trace import Trace, remembered
from timesink.units import NS_PER_US

# In this order they take their part of the busy time; of latency that is what runs along to barriers without work.
_WASTES = (
    *(Cause.REGISTER_SPILLS, Cause.ATOMICS, Cause.BANK_CONFLICTS, Cause.UNCOALESCED, Cause.DIVERGENCE),
    Cause.LATENCY,
)
_LOAD_STALLS = frozenset({"long_scoreboard", "lg_throttle", "drain", "membar"})
_SHARED_STALLS = frozenset({"short_scoreboard", "mio_throttle"})
# Units that count requests, not the passes a request takes: coalescing and conflicts leave them as they are.
_REQUESTS = ("lsuin_requests", "inst_executed_pipe_lsu", "mio_inst", "inst_executed_pipe_adu")
_BARRIERS = "pipe_adu"  # the unit that executes barriers: fewer of them, less of it
# What tests, votes and loops around barriers go through: how much of it leaves with them is not known.
_GUARDS = (Resource.ISSUE, Resource.ALU, Resource.CONTROL)
# What waiting for an asynchronous copy shows as too: stages hide it, not warps.
_AT_BARRIERS, _FOR_LOADS = frozenset({"barrier"}), frozenset({"long_scoreboard"})
# What stays with fewer loads: traffic with DRAM, and arithmetic that is not of integers or addresses.
_STAYS_WITHOUT_LOADS = (Resource.DRAM, Resource.TENSOR, Resource.FP64, Resource.XU)
_UNIT_ROOFS = {
    Resource.ISSUE: "issue slots",
    Resource.ALU: "integer pipe",
    Resource.XU: "special functions",
    Resource.CONTROL: "control pipes",
}
PRODUCT_WORK = (Cause.COMPUTE, Cause.MEMORY)  # what other products than those of fp32 units do otherwise
_FAR_FROM_FULL, _NO_QUEUE, _MOSTLY = 0.6, 0.1, 0.5  # of its peak; of the waiting; of the waiting
_HALF_OF_FMA = ("fmaheavy", "fmalite")
_SCATTERED = 0.5  # of the bytes of each sector that a store touches


@dataclass(frozen=True, slots=True, eq=False)
class KernelLimits:
    """One profiled kernel, explained.

    `shares` maps every cause to its share of the kernel's time; they sum to 1. `limiter` is what binds it. `bounds`
    holds for each the largest possible speedup if that cause were gone and nothing else changed, limited by the next
    unit.
    """

    kernel: KernelCounters
    leaves: tuple[Leaf, ...]
    is_complete: bool
    shares: Mapping[Cause, float]
    bounds: Mapping[Cause, float]
    roofline: KernelRoofline | None
    occupancy: Occupancy
    stalls: Stalls | None
    waste: Waste
    top: Leaf

    @property
    def limiter(self) -> Cause:
        """The first of `ranked`: what to think of first."""
        return self.ranked[0]

    @property
    def is_half_busy(self) -> bool:
        """Whether its busiest unit is below 60 % of its peak and warps do not queue for it: then it is bound by what it
        waits for or wastes, not by that unit's work ("Kernel Profiling Guide", speed of light)."""
        has_queue = self.top.resource is Resource.L1 and self.stalls is not None and self.stalls.of(FULL) >= _NO_QUEUE
        return _used(self.top) < _FAR_FROM_FULL and not has_queue and not is_fp32_product(self.kernel)

    @property
    def nearest_roof(self) -> tuple[str, float] | None:
        """The nearest roof and the share of it that is reached: one of the roofline, or of a unit that no roofline has
        (issue slots, integers, special functions) where necessary work keeps that unit nearer to its peak."""
        nearest = self.roofline.nearest if self.roofline is not None else None
        unit = _UNIT_ROOFS.get(self.top.resource) if self.limiter in (Cause.MEMORY, Cause.COMPUTE) else None
        if unit is not None and (nearest is None or self.top.busy > nearest[1]):
            return unit, self.top.busy
        return nearest

    @property
    def bound_of_hidden_waits(self) -> float:
        """The largest speedup while it does what it does now: its waits are hidden, none of them is saved."""
        return _bound(Cause.LATENCY, self.leaves, self.waste)

    @property
    def ranked(self) -> tuple[Cause, ...]:
        """Causes that have a share, the largest first; the work of a unit that is `is_half_busy` comes last."""
        order, last = list(Cause), PRODUCT_WORK if self.is_half_busy else ()
        found = (cause for cause in Cause if self.shares[cause] > 0)
        return tuple(sorted(found, key=lambda cause: (cause in last, -self.shares[cause], order.index(cause))))


@remembered
def kernel_limits(trace: Trace) -> tuple[KernelLimits | None, ...]:
    """Every profiled launch in report order; None where its counters failed or tell too little."""
    return tuple(limits_of(kernel) for kernel in kernel_counters(trace))


def limits_of(kernel: KernelCounters) -> KernelLimits | None:
    """The explanation of one kernel, None where `why_unexplained` says so."""
    if why_unexplained(kernel):
        return None
    units = leaves(kernel)
    waste, occupancy, stalls = waste_of(kernel), occupancy_of(kernel), stalls_of(kernel)
    roofline = roofline_of(kernel)
    top = _top(units, waste)
    busy = _used(top)
    shares = dict.fromkeys(Cause, 0.0)
    left = _share_out_busy(shares, busy, top, waste)
    shares[Cause.LATENCY if _is_under_waits(top, stalls) else _work(top, roofline)] += left
    _share_out_idle(shares, 1 - busy, waste, occupancy, stalls)
    bounds = {cause: _bound(cause, units, waste) if shares[cause] > 0 else 1.0 for cause in Cause}
    if shares[Cause.LATENCY] > 0:
        fewer = _bound_of_fewer_waits(units, waste, top, stalls, roofline)
        bounds[Cause.LATENCY] = max(bounds[Cause.LATENCY], min(fewer, _bound_of_any(kernel)))
    if is_fp32_product(kernel):
        in_tf32 = _bound_in_tf32(kernel, roofline)
        bounds |= {cause: max(bounds[cause], in_tf32) for cause in PRODUCT_WORK if shares[cause] > 0}
    return KernelLimits(kernel, units, is_complete(kernel), shares, bounds, roofline, occupancy, stalls, waste, top)


def is_fp32_product(kernel: KernelCounters) -> bool:
    """Whether the kernel is a library's product or convolution in fp32, which tensor cores would take in TF32."""
    decoded = decode(kernel.name)
    is_product = decoded.family in (KernelFamily.GEMM, KernelFamily.CONVOLUTION)
    return is_product and decoded.math == "fp32" and library_of(kernel.name) != ""


def _bound_in_tf32(kernel: KernelCounters, roofline: KernelRoofline | None) -> float:
    """How many times as fast an fp32 product is on tensor cores at most: its operations at their peak and its traffic
    with DRAM stay (of a convolution they do not: it may have gone by way of transforms), its instructions and its way
    through the caches are other ones. 1 where that is not known."""
    sheet = peaks(kernel.gpu)
    rate = None if sheet is None else sheet.flops_of(Precision.TF32)
    if rate is None or roofline is None or not roofline.flops:
        return 1.0
    dram = None if decode(kernel.name).family is KernelFamily.CONVOLUTION else roofline.memory_of("dram")
    products = roofline.flops / rate / (roofline.duration_ns / 1e9)
    return 1 / max(products, 0.0 if dram is None else dram.share)


def why_unexplained(kernel: KernelCounters) -> str:
    """Why nothing can be said of a kernel's limiter; empty where it can."""
    if kernel.is_failed:
        return f"{len(kernel.failed)} counters are NaN (failed passes)"
    if lacks_units(kernel):
        return "its limiter is not in this page, which leaves out the units: use --page raw, or give the report"
    if not leaves(kernel):
        return "no unit's throughput was collected"
    return ""


def _used(leaf: Leaf) -> float:
    return min(1.0, leaf.busy / (machines.DRAM_BUSY.value if leaf.resource is Resource.DRAM else 1.0))


def _top(units: tuple[Leaf, ...], waste: Waste) -> Leaf:
    """The busiest leaf. Atomics on few words keep one slice of L2 busy while the average is low: then that slice."""
    visible = [leaf for leaf in units if leaf.resource is not Resource.HIDDEN] or list(units)
    top = max(visible, key=_used)
    hot = [
        leaf for leaf in visible if leaf.resource is Resource.L2 and leaf.hottest * waste.atomic_requests > _used(top)
    ]
    if not hot:
        return top
    hottest = max(hot, key=lambda leaf: leaf.hottest)
    return Leaf(hottest.name, Resource.L2, hottest.hottest, hottest.hottest)


def _share_out_busy(shares: dict[Cause, float], busy: float, top: Leaf, waste: Waste) -> float:
    """Give each kind of waste its part of the busy time; what is left is necessary work."""
    left = busy
    for cause in _WASTES:
        wasted = waste.of(cause, top.resource)
        if cause is Cause.UNCOALESCED and top.resource is Resource.L2 and wasted:
            wasted = max(wasted, 1 - _kept_when_coalesced(top, waste))  # of the direction that is busy
        part = min(left, busy * wasted)
        shares[cause] += part
        left -= part
    return left


def _work(top: Leaf, roofline: KernelRoofline | None) -> Cause:
    """Necessary work of the busiest unit. Issue slots serve both sides: there the roofline tells which it is. What
    executes barriers works for warps that wait for each other."""
    if _BARRIERS in top.name:
        return Cause.LATENCY
    if top.resource in MEMORY:
        return Cause.MEMORY
    is_shared = top.resource in (Resource.ISSUE, Resource.CONTROL)
    return Cause.MEMORY if is_shared and roofline is not None and roofline.is_memory_side else Cause.COMPUTE


def _is_under_waits(top: Leaf, stalls: Stalls | None) -> bool:
    """Whether warps wait for loads and not for the busiest unit: one of the SM, far from full, whose queue is empty."""
    if top.resource is not Resource.L1 or stalls is None or top.busy >= _FAR_FROM_FULL:
        return False
    return stalls.of(FULL) < _NO_QUEUE and stalls.of(_LOAD_STALLS) >= _MOSTLY


def _share_out_idle(
    shares: dict[Cause, float], idle: float, waste: Waste, occupancy: Occupancy, stalls: Stalls | None
) -> None:
    """Give the time in which even the busiest unit waits to what it waits for."""
    without_blocks = min(idle, occupancy.sm_idle or 0.0)
    shares[Cause.OCCUPANCY] += without_blocks
    left = waiting = idle - without_blocks
    for cause, ratio in _waiting_for_waste(waste, stalls).items():
        part = min(left, waiting * ratio)
        shares[cause] += part
        left -= part
    hidden = HIDDEN_BY_WARPS - (_FOR_LOADS if waste.copies_ahead else frozenset())
    hideable = 1.0 if stalls is None else stalls.of(hidden)
    room = 0.0 if occupancy.achieved is None else max(0.0, 1 - occupancy.achieved)
    part = left * hideable * room
    shares[Cause.OCCUPANCY] += part
    shares[Cause.LATENCY] += left - part


def _waiting_for_waste(waste: Waste, stalls: Stalls | None) -> dict[Cause, float]:
    """Shares of the waiting time that a kind of waste lengthens."""
    if stalls is None:
        return {}
    loads, shared = stalls.of(_LOAD_STALLS), stalls.of(_SHARED_STALLS)
    lanes = 0.0 if waste.active_lanes is None else max(0.0, 1 - waste.active_lanes / LANES)
    return {
        Cause.REGISTER_SPILLS: loads * waste.of(Cause.REGISTER_SPILLS, Resource.L1),
        Cause.ATOMICS: loads * waste.atomic_requests + shared * waste.of(Cause.ATOMICS, Resource.L1),
        Cause.BANK_CONFLICTS: shared * waste.of(Cause.BANK_CONFLICTS, Resource.L1),
        Cause.UNCOALESCED: loads * waste.of(Cause.UNCOALESCED, Resource.L1),
        Cause.DIVERGENCE: (1 - stalls.of(FULL)) * lanes,
    }


def _bound(cause: Cause, units: tuple[Leaf, ...], waste: Waste) -> float:
    """The largest speedup without the cause: 1 / (busy share of the busiest unit that is left), at least 1."""
    return _inverse(_used(leaf) * _kept(cause, leaf, waste) for leaf in _visible(units))


def _visible(units: tuple[Leaf, ...]) -> Iterator[Leaf]:
    return (leaf for leaf in units if leaf.resource is not Resource.HIDDEN)


def _inverse(remaining: Iterable[float]) -> float:
    """The speedup that the busiest of what remains allows, at least 1; 1 where nothing was measured."""
    ceiling = max(remaining, default=1.0)
    return max(1.0, 1 / ceiling) if ceiling > 0 else float("inf")


def _bound_of_fewer_waits(
    units: tuple[Leaf, ...], waste: Waste, top: Leaf, stalls: Stalls | None, roofline: KernelRoofline | None
) -> float:
    """The largest speedup where a fix waits for fewer barriers or loads: the larger of both, 1 where neither is what
    warps wait for.

    Barriers take along what guards them and what is handed over in shared memory between them. Loads take along their
    way through the caches, their addresses and their loops: counted operations and bytes of DRAM stay. Asynchronous
    copies stay as they are: more of them on the way are no fewer bytes.
    """
    bound = 1.0
    if _BARRIERS in top.name or (stalls is not None and stalls.of(_AT_BARRIERS) >= _MOSTLY):
        bound = _inverse(_used(leaf) * _kept_without_barriers(leaf, waste) for leaf in _visible(units))
    has_dram = any(leaf.resource is Resource.DRAM for leaf in units)
    if stalls is not None and stalls.of(_FOR_LOADS) >= _MOSTLY and has_dram and not waste.copies_ahead:
        is_counted = roofline is not None and roofline.counts_flops
        stays = (*_STAYS_WITHOUT_LOADS, *(() if is_counted else (Resource.FMA,)))
        work = [roof.share for roof in roofline.compute] if roofline is not None else []
        bound = max(bound, _inverse([*(_used(leaf) for leaf in units if leaf.resource in stays), *work]))
    return bound


def _bound_of_any(kernel: KernelCounters) -> float:
    """The largest speedup of any kernel of that time: none is shorter than one that does nothing."""
    least_ns = machines.KERNEL_FLOOR_US.high * NS_PER_US
    return float("inf") if kernel.duration_ns is None else max(1.0, kernel.duration_ns / least_ns)


def _kept_without_barriers(leaf: Leaf, waste: Waste) -> float:
    """The share of a unit's busy time that stays without barriers and what goes with them; of L1 passes for global
    memory alone."""
    if leaf.resource in _GUARDS:
        return 0.0
    kept = _kept(Cause.LATENCY, leaf, waste)
    if leaf.resource is not Resource.L1:
        return kept
    passes = waste.access.wavefronts
    is_request = any(word in leaf.name for word in _REQUESTS)
    return 0.0 if is_request or not passes else min(kept, max(0.0, 1 - waste.access.other_wavefronts / passes))


def _kept(cause: Cause, leaf: Leaf, waste: Waste) -> float:
    """The share of a unit's busy time that stays when the cause is gone: an underestimate, so that the bound holds."""
    is_request = any(word in leaf.name for word in _REQUESTS)
    match cause:
        case Cause.MEMORY | Cause.COMPUTE:
            return _kept_of_other_side(cause, leaf, waste, is_request)
        case Cause.OCCUPANCY:
            return 1.0
        case Cause.LATENCY:
            return 0.0 if _BARRIERS in leaf.name else 1 - waste.of(cause, leaf.resource)
        case Cause.DIVERGENCE:
            lanes = 1.0 if waste.active_lanes is None else min(1.0, waste.active_lanes / LANES)
            return 1.0 if leaf.resource is Resource.DRAM else lanes
        case Cause.REGISTER_SPILLS:
            is_instruction = is_request or leaf.resource in (Resource.ALU, Resource.ISSUE, Resource.CONTROL)
            return 0.0 if is_instruction else 1 - waste.of(cause, leaf.resource)
        case _:
            return _kept_of_accesses(cause, leaf, waste, is_request)


def _kept_of_other_side(cause: Cause, leaf: Leaf, waste: Waste, is_request: bool) -> float:
    """Without bytes to move arithmetic stays, and of the issue slots those of other than load-store instructions;
    without arithmetic the memory units stay, except what counts instructions.
    """
    if cause is Cause.COMPUTE:
        return 1.0 if leaf.resource in MEMORY and not is_request else 0.0
    if leaf.resource is Resource.ISSUE:
        return 1 - waste.memory_instructions
    return 1.0 if leaf.resource in ARITHMETIC and not any(word in leaf.name for word in _HALF_OF_FMA) else 0.0


def _kept_of_accesses(cause: Cause, leaf: Leaf, waste: Waste, is_request: bool) -> float:
    """Coalescing and conflict-free layouts leave the number of requests as it is; combining atomics does not."""
    if is_request and cause is not Cause.ATOMICS:
        return 1.0
    if cause is Cause.UNCOALESCED and leaf.resource in (Resource.L1, Resource.L2):
        return _kept_when_coalesced(leaf, waste)
    return 1 - waste.of(cause, leaf.resource)


def _kept_when_coalesced(leaf: Leaf, waste: Waste) -> float:
    """What is left of an L1 or L2 unit's busy time: passes shrink to one per 128 bytes, tag look-ups to one per four
    sectors, and traffic of each direction by its own excess."""
    access = waste.access
    if access.excess_ratio is None:
        return 1.0 if leaf.resource is Resource.L2 else 0.0
    if leaf.resource is Resource.L1:
        return least_passes(access)
    kept = 1 - waste.of(Cause.UNCOALESCED, Resource.L2)
    if kept < 1 and access.used_of_stores is not None and access.used_of_stores < _SCATTERED:
        kept = min(kept, access.used_of_stores)  # scattered stores push out of L1 what loads would find there
    if "tag_requests" in leaf.name:
        return kept / SECTORS_OF_PASS
    used = {"xbar2lts": access.used_of_stores, "l1tex2xbar": access.used_of_stores, "lts2xbar": access.used_of_loads}
    direction = next((share for word, share in used.items() if word in leaf.name), 1.0)
    return 0.0 if direction is None else min(kept, direction)


def fused_bound(total_ns: float) -> float:
    """How many times as fast launches of this time together are at most as one: no kernel is shorter than one that does
    nothing."""
    return max(1.0, total_ns / (machines.KERNEL_FLOOR_US.high * NS_PER_US))
