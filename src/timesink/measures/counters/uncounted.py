"""What was not collected of a launch, as an interval: what is wasted surely, and what may be.

A basic set counts how busy units are, and neither the sectors of accesses nor the conflicts of shared memory. Two units
that it has bound both: passes of L1's data pipe over load-store instructions. One takes 1 to 4 passes without any waste
(4 to 16 bytes a lane), and 32 at most. So of 14 passes 10 are wasted at least and 13 at most, on scattered accesses or
on bank conflicts, nobody knows which.

A cause that was not counted is never clear.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from timesink.knowledge.gpus import LANES
from timesink.measures.counters import KernelCounters
from timesink.measures.counters.resources import MEMORY, Resource
from timesink.measures.counters.roofline import tells_bytes
from timesink.measures.counters.stalls import stalls_of, tells_reasons
from timesink.measures.counters.waste import (
    OF_INSTRUCTIONS,
    Cause,
    Waste,
    executing_lanes,
    waste_of,
)
from timesink.records import Record, replace

MOST_NEEDED: Final = 4.0  # passes of a coalesced instruction, of 16 bytes a lane
_SHARED_SIZES: Final = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
# Counted with the source of a kernel. What units count of passes and sectors leaves some out: those of TMA, idle lanes.
_OF_SOURCE: Final = (
    *("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"),
    *("memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"),
)
_INSTRUCTIONS: Final = ("sm__inst_executed_pipe_lsu", "sm__inst_executed")
_LOCAL: Final = (
    ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
    ("sass__inst_executed_local_loads", "sass__inst_executed_local_stores"),
)
_OF_LOCAL: Final = (
    *(f"l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld_lookup_miss", "st")),
)
_REQUESTS: Final = tuple(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st", "atom", "red"))
_OF_ATOMICS: Final = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("atom", "red"))
_OF_SHARED: Final = ("smsp__inst_executed_op_shared_atom.sum", "smsp__sass_inst_executed_op_shared.sum")
_FEW: Final = 0.01  # of the sectors: bytes that lanes share make more of them look like excess, and never less
_IDLE: Final = 1 - 1 / LANES  # of a warp's lanes at most; of a sector's bytes, too
_WASTES: Final = (
    *(Cause.REGISTER_SPILLS, Cause.ATOMICS, Cause.BANK_CONFLICTS, Cause.UNCOALESCED, Cause.DIVERGENCE),
    Cause.LATENCY,
)
_NOTHING: Final[Mapping[Resource, float]] = {}
Shares = Mapping[Cause, Mapping[Resource, float]]


class Box(Record):
    """Waste at least and at most; `told` is what was counted; of L1's passes `repeated` are beyond need, whatever they
    are."""

    least: Waste
    most: Waste
    told: Waste
    repeated: float = 0.0


def is_counted(kernel: KernelCounters, waste: Waste, cause: Cause) -> bool:
    """Whether all counters that show this kind of waste were collected; causes that are no waste always are."""
    access, no_shared = waste.access, kernel.whole(*_SHARED_SIZES) == 0
    tells_shared = no_shared or kernel.whole(*_OF_SOURCE[:2]) is not None
    match cause:
        case Cause.UNCOALESCED:
            is_none = access.excess_ratio is not None and access.excess_ratio < _FEW
            shown = kernel.whole(*_OF_SOURCE[2:]) is not None or is_none
            shown = shown and (not access.excess_ratio or (tells_shared and _tells_traffic(kernel, waste)))
        case Cause.BANK_CONFLICTS:
            shown = tells_shared and (no_shared or access.wavefronts is not None)
        case Cause.REGISTER_SPILLS:
            shown = _tells_local(kernel) and (not waste.local_instructions or _tells_traffic(kernel, waste))
        case Cause.ATOMICS:
            shared = kernel.get(_OF_SHARED[0]) == 0 or kernel.whole(*_OF_SHARED) is not None
            shown = shared and kernel.whole(*_REQUESTS) is not None
            shown = shown and (not waste.atomic_requests or _tells_traffic(kernel, waste))
        case Cause.DIVERGENCE:
            shown = waste.active_lanes is not None and executing_lanes(kernel) is not None and tells_reasons(kernel)
            shown = shown and (not waste.idle_lanes or access.wavefronts_per_request is not None)
        case Cause.LATENCY:  # what runs along to barriers with every lane off
            is_seen = executing_lanes(kernel) is not None and tells_reasons(kernel)
            shown = is_seen or not may_wait_at_barriers(kernel)
        case _:
            shown = True
    return shown


def _tells_local(kernel: KernelCounters) -> bool:
    is_seen = any(kernel.whole(*pair) is not None for pair in _LOCAL)
    return is_seen and kernel.first("smsp__inst_executed.sum", "inst_executed") is not None


def _tells_traffic(kernel: KernelCounters, waste: Waste) -> bool:
    """Whether it is known what L1, L2 and DRAM did for all accesses, and for those of local memory: each kind of waste
    is a part of that."""
    has_bytes = tells_bytes(kernel, "l2") and tells_bytes(kernel, "dram")
    is_local = not waste.local_instructions or kernel.whole(*_OF_LOCAL) is not None
    has_passes = waste.access.wavefronts is not None and kernel.whole(*_REQUESTS) is not None
    has_passes &= not waste.atomic_requests or kernel.whole(*_OF_ATOMICS) is not None
    return has_passes and has_bytes and _tells_local(kernel) and is_local


def may_wait_at_barriers(kernel: KernelCounters) -> bool:
    """Whether warps may wait for barriers most of all: they do, or nobody counted all that they wait for."""
    stalls = stalls_of(kernel)
    return stalls is None or stalls.is_at_barriers or not tells_reasons(kernel)


def possible_wastes(kernel: KernelCounters) -> Iterator[Box]:
    """The waste of a launch between the ends that its counters leave: one box where all is counted; two where L1's
    passes are more than needed, as conflicts or as scattered accesses, and nobody counted either."""
    sure = waste_of(kernel)
    uncounted = [cause for cause in _WASTES if not is_counted(kernel, sure, cause)]
    tells_instructions = all(kernel.share(name) is not None for name in _INSTRUCTIONS) or sure.memory_instructions == 1
    tells_ways = not sure.access.excess_ratio or None not in (sure.access.used_of_loads, sure.access.used_of_stores)
    if not uncounted and tells_instructions and tells_ways:
        yield Box(sure, sure, sure)
        return
    passes = sure.access.wavefronts_per_request
    known = [cause for cause in _BY_PASSES if cause not in uncounted]
    least, most = 0.0, 1.0
    if passes is not None:  # of local memory all passes are known, and not only those beyond need
        least = max(0.0, 1 - MOST_NEEDED / max(passes, 1.0) - sum(sure.of(cause, Resource.L1) for cause in known))
        most = max(
            0.0,
            1
            - 1 / max(passes, 1.0)
            - sum(sure.of(cause, Resource.L1) for cause in known if cause is not Cause.REGISTER_SPILLS),
        )
    idle = 1 - (executing_lanes(kernel) or 1.0) / LANES
    without: Shares = {**sure.shares, **dict.fromkeys(uncounted, _NOTHING)}
    at_most = {cause: _at_most(cause, sure, most, idle, uncounted) for cause in uncounted}
    if Cause.ATOMICS in uncounted and kernel.whole(*_SHARED_SIZES) == 0:
        at_most[Cause.ATOMICS] = {**at_most[Cause.ATOMICS], Resource.L1: 0.0}
    largest = replace(
        sure,
        shares={**sure.shares, **at_most},
        atomic_requests=1.0 if Cause.ATOMICS in uncounted else sure.atomic_requests,
        atomic_writes=1.0 if Cause.ATOMICS in uncounted else sure.atomic_writes,
        active_lanes=LANES * (1 - idle) if Cause.DIVERGENCE in uncounted else sure.active_lanes,
        memory_instructions=sure.memory_instructions if tells_instructions else 1.0,
        access=replace(sure.access, wavefronts=None) if uncounted else sure.access,
    )
    smallest = replace(sure, shares=without)
    open_passes = [cause for cause in uncounted if cause in (Cause.UNCOALESCED, Cause.BANK_CONFLICTS)]
    if not least or not open_passes or sure.atomic_requests:  # an atomic takes as many passes as it has words
        yield Box(smallest, largest, sure, least if open_passes and not sure.atomic_requests else 0.0)
        return
    for cause in _OF_ONE_PASS:
        at_most[cause] = {**largest.shares[cause], Resource.L1: min(1 - least, largest.of(cause, Resource.L1))}
    largest = replace(largest, shares={**sure.shares, **at_most})
    for cause in open_passes:
        halved = {**without, cause: {Resource.L1: least / len(open_passes)}}
        whole = {**sure.shares, cause: {**sure.shares[cause], Resource.L1: max(least, sure.of(cause, Resource.L1))}}
        yield Box(replace(sure, shares=halved), largest, replace(sure, shares=whole), least)


_OF_ONE_PASS: Final = (Cause.DIVERGENCE, Cause.LATENCY)  # waste of the pass that each instruction needs
_BY_PASSES: Final = (Cause.UNCOALESCED, Cause.BANK_CONFLICTS, Cause.ATOMICS, Cause.REGISTER_SPILLS)


def _at_most(cause: Cause, sure: Waste, most: float, idle: float, uncounted: list[Cause]) -> Mapping[Resource, float]:
    """What a kind of waste that was not counted takes of each resource at most: `most` of L1's passes, of instructions
    the `idle` lanes, of traffic what is not known to be of other accesses."""
    counted = [one for one in (Cause.UNCOALESCED, Cause.ATOMICS) if one not in uncounted]
    of_others = {of: max(0.0, 1 - sum(sure.of(one, of) for one in counted)) for of in MEMORY}
    match cause:
        case Cause.UNCOALESCED:
            return {**dict.fromkeys(MEMORY, _IDLE), Resource.L1: most}
        case Cause.BANK_CONFLICTS:
            return {Resource.L1: most}
        case Cause.REGISTER_SPILLS:
            return {**of_others, Resource.L1: 1.0, Resource.ISSUE: 1.0}
        case Cause.ATOMICS:
            return {Resource.L2: of_others[Resource.L2], Resource.L1: most}
        case _:
            return {**dict.fromkeys(OF_INSTRUCTIONS, idle), Resource.L1: idle if cause is Cause.DIVERGENCE else 1.0}
