"""How much faster a kernel could be at most without one cause: the next ceiling.

Its time cannot fall below what the remaining units still need. Of latency that is less than all units do: a fix may
wait for fewer barriers or loads, and what they pass through goes with them.

How long loads wait, beside how long they would in a memory that is idle: longer by half, and they queue.

Where several multiprocessors ask for the same lines, loads queue in L2 or on the way to it and no unit is busy: what is
read once is counted once. The wait shows it (Little's law: a warp's waiting cycles over its loads). It is too small
where several loads of a warp are on the way together, so a long one is sure.

    L1 hits  L2 hits  an idle memory's cycles          waited  ratio
       0.50     1.00  0.5 x 35 + 0.5 x 270 = 152.5      152.5      1
       0        0.90  0.8 x 270 + 0.2 x 700 = 356         712      2
       0        0.50  700 (64 bytes a miss: each)         700      1
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import DRAM_ACCESS_SECTORS, LANES, LOAD_CYCLES, SECTORS_OF_PASS, Precision, peaks
from timesink.knowledge.kernel_names import library_of
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.resources import ARITHMETIC, MEMORY, Leaf, Resource
from timesink.measures.counters.roofline import KernelRoofline
from timesink.measures.counters.stalls import Stalls
from timesink.measures.counters.waste import Cause, Waste, least_passes
from timesink.records import Record
from timesink.units import NS_PER_US

TAGS = "tag_requests"  # one for up to four sectors of a line
FOR_LOADS = frozenset({"long_scoreboard"})
MOSTLY, FAR_FROM_FULL = 0.5, 0.6  # of the waiting; of its peak
# Units that count requests, not the passes a request takes: coalescing and conflicts leave them as they are.
_REQUESTS = ("lsuin_requests", "inst_executed_pipe_lsu", "mio_inst", "inst_executed_pipe_adu")
# What tests, votes and loops around barriers go through: how much of it leaves with them is not known.
_GUARDS = (Resource.ISSUE, Resource.ALU, Resource.CONTROL)
_AT_BARRIERS = frozenset({"barrier"})
FOR_CODE = frozenset({"no_instruction", "no_instructions"})
_FULL_OF_CODE = 0.75  # of its peak: with most warps short of instructions none of them queues for the unit
# What stays with fewer loads: traffic with DRAM, and arithmetic that is not of integers or addresses.
_STAYS_WITHOUT_LOADS = (Resource.DRAM, Resource.TENSOR, Resource.FP64, Resource.XU)
PRODUCT_WORK = (Cause.COMPUTE, Cause.MEMORY)  # what other products than those of fp32 units do otherwise
_HALF_OF_FMA = ("fmaheavy", "fmalite")
_SCATTERED = 0.5  # of the bytes of each sector that a store touches


def is_fp32_product(kernel: KernelCounters) -> bool:
    """Whether the kernel is a library's product or convolution in fp32, which tensor cores would take in TF32."""
    decoded = decode(kernel.name)
    is_product = decoded.family in (KernelFamily.GEMM, KernelFamily.CONVOLUTION)
    return is_product and decoded.math == "fp32" and library_of(kernel.name) != ""


def may_be_product(kernel: KernelCounters, top: Leaf, waste: Waste, roofline: KernelRoofline | None) -> bool | None:
    """Whether it may be a product in fp32 of somebody's own, whose advice names tensor cores: L1 is busiest, half of
    the operations are fused multiply-adds, and for each byte of DRAM there are more than tensor cores could do. None
    where they were not counted."""
    if top.resource is not Resource.L1 or waste.is_product:
        return False
    sheet, intensity = peaks(kernel.gpu), roofline.intensity("dram") if roofline is not None else None
    ridge = None if sheet is None else sheet.ridge(Precision.TF32)
    if roofline is None or ridge is None or intensity is None:
        return None
    fused = [roof.fused_ratio or 0.0 for roof in roofline.compute if roof.label == Precision.FP32.value]
    return intensity > ridge and max(fused, default=0.0) >= MOSTLY


def bound_in_tf32(kernel: KernelCounters, roofline: KernelRoofline | None) -> float:
    """How many times as fast an fp32 product is on tensor cores at most: its operations at their peak and its traffic
    with DRAM stay (of a convolution they do not: it may have gone by way of transforms), its instructions and its way
    through the caches are other ones. 1 where that is not known."""
    sheet = peaks(kernel.gpu)
    rate = None if sheet is None else sheet.flops.get(Precision.TF32)
    if rate is None or roofline is None or not roofline.flops:
        return 1.0
    products = roofline.flops / rate / (roofline.duration_ns / 1e9)
    return 1 / max(products, _stays_in_tf32(kernel, roofline))


def most_in_tf32(kernel: KernelCounters, roofline: KernelRoofline | None) -> float:
    """The same where its operations were not counted: its traffic with DRAM stays."""
    stays = _stays_in_tf32(kernel, roofline)
    return 1 / stays if stays else float("inf")


def _stays_in_tf32(kernel: KernelCounters, roofline: KernelRoofline | None) -> float:
    if roofline is None or decode(kernel.name).family is KernelFamily.CONVOLUTION:
        return 0.0
    dram = roofline.memory_of("dram")
    return 0.0 if dram is None else dram.share


def full_from(for_code: float) -> float:
    """The share of its peak from which on a unit limits a kernel whose warps wait so much for instructions."""
    return _FULL_OF_CODE if for_code >= MOSTLY else FAR_FROM_FULL


def used(leaf: Leaf) -> float:
    """The share of what the unit reaches at most, 0 to 1."""
    return min(1.0, leaf.busy / (machines.DRAM_BUSY.value if leaf.resource is Resource.DRAM else 1.0))


def is_between_barriers(top: Leaf, units: tuple[Leaf, ...], stalls: Stalls | None) -> bool:
    """Whether issue slots go to tests and branches between barriers: warps wait for those most of all, the unit that
    executes them is full as well, and no arithmetic is busier."""
    if top.resource not in (Resource.ISSUE, Resource.CONTROL):
        return False
    barriers = max((used(leaf) for leaf in units if leaf.is_of_barriers), default=0.0)
    return barriers >= FAR_FROM_FULL and stalls is not None and stalls.is_at_barriers


def bound_without(cause: Cause, units: tuple[Leaf, ...], waste: Waste) -> float:
    """The largest speedup without the cause: 1 / (busy share of the busiest unit that is left), at least 1."""
    return _inverse(used(leaf) * _kept(cause, leaf, waste) for leaf in _visible(units))


def _visible(units: tuple[Leaf, ...]) -> Iterator[Leaf]:
    return (leaf for leaf in units if leaf.resource is not Resource.HIDDEN)


def _inverse(remaining: Iterable[float]) -> float:
    """The speedup that the busiest of what remains allows, at least 1; 1 where nothing was measured."""
    ceiling = max(remaining, default=1.0)
    return max(1.0, 1 / ceiling) if ceiling > 0 else float("inf")


def bound_of_fewer_waits(
    units: tuple[Leaf, ...], waste: Waste, top: Leaf, stalls: Stalls | None, roofline: KernelRoofline | None
) -> float:
    """The largest speedup where a fix waits for fewer barriers, loads or instructions, whichever warps wait for most; 1
    where for none.

    What goes along with barriers and loads is said in `rules/ncu/latency-bound-kernel.md`; counted operations and bytes
    of DRAM stay, and so do asynchronous copies. Code that fits its caches is not fetched from L2.
    """
    bound = 1.0
    waits_there = top.is_of_barriers or (stalls is not None and stalls.of(_AT_BARRIERS) >= MOSTLY)
    if waits_there or is_between_barriers(top, units, stalls):
        bound = _bound_of_fewer_barriers(units, waste)
    has_dram = any(leaf.resource is Resource.DRAM for leaf in units)
    if stalls is not None and stalls.of(FOR_LOADS) >= MOSTLY and has_dram and not waste.copies_ahead:
        is_counted = roofline is not None and roofline.counts_flops
        stays = (*_STAYS_WITHOUT_LOADS, *(() if is_counted else (Resource.FMA,)))
        work = [roof.share for roof in roofline.compute] if roofline is not None else []
        bound = max(bound, _inverse([*(used(leaf) for leaf in units if leaf.resource in stays), *work]))
    waits_for_code = stalls is not None and stalls.of(FOR_CODE) >= MOSTLY
    return max(bound, _bound_of_fewer_fetches(units)) if waits_for_code else bound


def bound_of_any_waits(units: tuple[Leaf, ...], waste: Waste) -> float:
    """The same where nobody counted what warps wait for: the larger of what fewer barriers and fewer loads leave."""
    if not any(leaf.resource is Resource.DRAM for leaf in units):
        return float("inf")
    of_loads = _inverse(used(leaf) for leaf in units if leaf.resource in _STAYS_WITHOUT_LOADS)
    return max(of_loads, _bound_of_fewer_barriers(units, waste), _bound_of_fewer_fetches(units))


def _bound_of_fewer_fetches(units: tuple[Leaf, ...]) -> float:
    return _inverse(used(leaf) for leaf in _visible(units) if leaf.resource is not Resource.L2)


def _bound_of_fewer_barriers(units: tuple[Leaf, ...], waste: Waste) -> float:
    return _inverse(used(leaf) * _kept_without_barriers(leaf, waste) for leaf in _visible(units))


CLOCKS: Final = tuple(f"{unit}__cycles_elapsed.avg.per_second" for unit in ("gpc", "sm", "smsp"))
_ASLEEP_HZ: Final = 3e8  # no GPU that works is slower; one that wakes up for a launch ran at 49.5 MHz
_AWAKE_HZ: Final = 1e9  # any GPU's boost clock, at least


def idle_clock_hz(kernel: KernelCounters) -> float | None:
    """The SM clock of a launch that was measured while the GPU slept; None where it was awake, or that is not known."""
    clock = kernel.first(*CLOCKS)
    return clock if clock and clock < _ASLEEP_HZ else None


def awake_ns(kernel: KernelCounters) -> float | None:
    """The launch's time; of one at an idle clock what its cycles take at 1 GHz, which is no less than at boost."""
    clock = idle_clock_hz(kernel)
    return kernel.duration_ns if clock is None or kernel.duration_ns is None else kernel.duration_ns * clock / _AWAKE_HZ


def bound_of_any(kernel: KernelCounters) -> float:
    """The largest speedup of any kernel of that time: none is shorter than one that does nothing."""
    least_ns = machines.KERNEL_FLOOR_US.high * NS_PER_US
    length = awake_ns(kernel)
    return float("inf") if length is None else max(1.0, length / least_ns)


def _kept_without_barriers(leaf: Leaf, waste: Waste) -> float:
    """The share of a unit's busy time that stays without barriers and what goes with them; of L1 passes for global
    memory alone."""
    if leaf.resource in _GUARDS:
        return 0.0
    kept = _kept(Cause.LATENCY, leaf, waste)
    if leaf.resource is not Resource.L1:
        return kept
    is_request = any(word in leaf.name for word in _REQUESTS)
    return 0.0 if is_request else min(kept, waste.global_share or 0.0)


def _kept(cause: Cause, leaf: Leaf, waste: Waste) -> float:
    """The share of a unit's busy time that stays when the cause is gone: an underestimate, so that the bound holds."""
    is_request = any(word in leaf.name for word in _REQUESTS)
    match cause:
        case Cause.MEMORY | Cause.COMPUTE:
            return _kept_of_other_side(cause, leaf, waste, is_request)
        case Cause.OCCUPANCY:  # whole warps do the same with fewer instructions, and then with more of them at work
            return 1.0 if leaf.resource is Resource.DRAM else waste.filled_lanes
        case Cause.LATENCY:
            return 0.0 if leaf.is_of_barriers else 1 - waste.of(cause, leaf.resource)
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
    without arithmetic the memory units stay, except what counts instructions or feeds it from shared memory.
    """
    if cause is Cause.COMPUTE:
        kept = waste.global_share or 0.0 if leaf.resource is Resource.L1 else 1.0
        return kept if leaf.resource in MEMORY and not is_request else 0.0
    if leaf.resource is Resource.ISSUE:
        return 1 - waste.memory_instructions
    return 1.0 if leaf.resource in ARITHMETIC and not any(word in leaf.name for word in _HALF_OF_FMA) else 0.0


def _kept_of_accesses(cause: Cause, leaf: Leaf, waste: Waste, is_request: bool) -> float:
    """Coalescing and conflict-free layouts leave the number of requests as it is. Combined atomics make none of their
    own: their part of the passes of L1 for global memory, of the way to L2, and of the loops around them goes. A
    product in fewer parts has the same products and operands, and less of all that begins and ends a part."""
    if cause is Cause.ATOMICS and waste.is_product:
        return {Resource.DRAM: 1.0, Resource.TENSOR: 1.0, Resource.L2: 1 - waste.of(cause, Resource.L2)}.get(
            leaf.resource, 0.0
        )
    if cause is Cause.ATOMICS and leaf.resource in (Resource.L1, Resource.L2, *_GUARDS):
        other = 1 - (waste.global_share or 0.0) if leaf.resource is Resource.L1 and waste.access.wavefronts else 0.0
        return 1 - max(waste.of(cause, leaf.resource), waste.atomic_requests * (1 - other))
    if is_request:
        return 1.0
    if cause is Cause.UNCOALESCED and leaf.resource in (Resource.L1, Resource.L2):
        return kept_when_coalesced(leaf, waste)
    return 1 - waste.of(cause, leaf.resource)


def kept_when_coalesced(leaf: Leaf, waste: Waste) -> float:
    """What is left of an L1 or L2 unit's busy time: passes shrink to one per 128 bytes, tag look-ups to one per four
    sectors, and traffic of each direction by its own excess."""
    access = waste.access
    if access.excess_ratio is None:
        return 1 - waste.of(Cause.UNCOALESCED, Resource.L2) if leaf.resource is Resource.L2 else 0.0
    if leaf.resource is Resource.L1:
        return least_passes(access)
    kept = 1 - waste.of(Cause.UNCOALESCED, Resource.L2)
    if kept < 1 and access.used_of_stores is not None and access.used_of_stores < _SCATTERED:
        kept = min(kept, access.used_of_stores)  # scattered stores push out of L1 what loads would find there
    if TAGS in leaf.name:
        return kept / SECTORS_OF_PASS
    used = {"xbar2lts": access.used_of_stores, "l1tex2xbar": access.used_of_stores, "lts2xbar": access.used_of_loads}
    direction = next((share for word, share in used.items() if word in leaf.name), 1.0)
    return 0.0 if direction is None else min(kept, direction)


def fused_bound(lengths_ns: Sequence[float], launches: Sequence[int] = ()) -> float:
    """How many times as fast launches are at most as one, which takes as long as the longest of them and as a kernel
    that does nothing: chains of 10 to 32 took 7 to 15 % of their time, never less than one launch. `launches` says how
    many there are of each length, one where it is empty."""
    counts = launches or [1] * len(lengths_ns)
    longest = max(lengths_ns) if sum(counts) > 1 else 0.0
    total = sum(length * count for length, count in zip(lengths_ns, counts, strict=True))
    return max(1.0, total / max(longest, machines.KERNEL_FLOOR_US.high * NS_PER_US))


_WAITS: Final = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
_LOADS: Final = "smsp__sass_inst_executed_op_global_ld.sum"
_ISSUED: Final = ("smsp__inst_issued.sum", "smsp__inst_executed.sum")
_HITS: Final = ("l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct")
# What shows as the same wait: loads of another kind, and what is no load.
_OTHERS: Final = (
    "smsp__sass_inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__sass_inst_executed_op_tma_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_requests_pipe_lsu_mem_dshared_op_ld.sum",
    "l1tex__t_requests_pipe_tex_mem_texture.sum",
    "l1tex__t_requests_pipe_tex_mem_surface_op_ld.sum",
)
_FEW: Final = 0.05  # of the loads: others than those of global memory
_QUEUED: Final = 1.5  # times an idle memory's wait; of loads that wait for each other it was 0.7 to 1.1
TRAFFIC: Final = 0.2  # of some memory unit's peak: with less, waits have another reason (first touches, page look-ups)


class LoadWait(Record):
    """Cycles that a warp waits for a load on average, and would wait if nothing else were on the way."""

    waited: float
    idle: float

    @property
    def queued(self) -> float:
        """The share of the wait that is spent in queues, 0 to 1; 0 where the wait may be an idle memory's."""
        return 1 - self.idle / self.waited if self.waited >= _QUEUED * self.idle else 0.0


def load_wait(kernel: KernelCounters, units: tuple[Leaf, ...], stalls: Stalls | None) -> LoadWait | None:
    """The wait of a kernel whose warps wait for loads of global memory most of all; None for others, and where counters
    are missing. `units` are its `leaves`."""
    issued, loads = kernel.first(*_ISSUED), kernel.get(_LOADS)
    waiting = kernel.get(_WAITS)
    if waiting is None or not issued or not loads or stalls is None:
        return None
    if stalls.of(FOR_LOADS) < MOSTLY or (kernel.total(*_OTHERS) or 0.0) > _FEW * loads:
        return None
    if max((leaf.busy for leaf in units if leaf.resource in MEMORY), default=0.0) < TRAFFIC:
        return None
    hits = [kernel.share(name) for name in _HITS]
    return None if None in hits else LoadWait(waiting * issued / loads, _idle_cycles(hits[0] or 0.0, hits[1] or 0.0))


def tells_load_wait(kernel: KernelCounters, units: tuple[Leaf, ...], stalls: Stalls | None) -> bool:
    """Whether the counters say if its loads queue: all were collected, or one that was says that they do not."""
    has = kernel.values.keys()
    is_counted = {_WAITS, _LOADS, *_HITS} <= has and bool({*_ISSUED} & has) and {*_OTHERS[:2], _OTHERS[3]} <= has
    if is_counted and stalls is not None and not stalls.is_sampled:
        return True
    return max((used(leaf) for leaf in units), default=0.0) >= FAR_FROM_FULL


def _idle_cycles(l1_hits: float, l2_hits: float) -> float:
    l1, l2, dram = LOAD_CYCLES
    missing = min(1.0, DRAM_ACCESS_SECTORS * max(0.0, 1 - l2_hits))
    return l1_hits * l1 + (1 - l1_hits) * ((1 - missing) * l2 + missing * dram)
