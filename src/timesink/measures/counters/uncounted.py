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
from timesink.measures.counters import MEMORY, KernelCounters, Resource
from timesink.measures.counters.stalls import stalls_of
from timesink.measures.counters.waste import EXECUTING, OF_INSTRUCTIONS, Access, Cause, Waste, active_lanes, waste_of
from timesink.records import replace

MOST_NEEDED: Final = 4.0  # passes of a coalesced instruction, of 16 bytes a lane
_SHARED_SIZES: Final = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
_OF_LOCAL: Final = (
    "smsp__sass_inst_executed_op_local_ld.sum",
    "sass__inst_executed_local_loads",
    "smsp__inst_executed_op_local_ld.sum",
    "memory_l2_theoretical_sectors_local",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_ld.sum",
    "derived__local_spilling_requests",
)
_OF_ATOMICS: Final = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "lts__t_sectors_srcunit_tex_op_atom.sum",
    "lts__t_sectors_srcunit_tex_op_red.sum",
    "smsp__inst_executed_op_shared_atom.sum",
)
_IDLE: Final = 1 - 1 / LANES  # of a warp's lanes at most; of a sector's bytes, too
_WASTES: Final = (
    *(Cause.REGISTER_SPILLS, Cause.ATOMICS, Cause.BANK_CONFLICTS, Cause.UNCOALESCED, Cause.DIVERGENCE),
    Cause.LATENCY,
)
Shares = Mapping[Cause, Mapping[Resource, float]]
_BY_PASSES: Final = (Cause.UNCOALESCED, Cause.BANK_CONFLICTS, Cause.REGISTER_SPILLS)


def is_counted(kernel: KernelCounters, access: Access, cause: Cause) -> bool:
    """Whether the counters that show this kind of waste were collected; causes that are no waste always are."""
    match cause:
        case Cause.UNCOALESCED:
            shown = access.sectors is not None and access.ideal_sectors is not None
        case Cause.BANK_CONFLICTS:
            is_seen = access.shared_wavefronts is not None and access.ideal_shared_wavefronts is not None
            shown = is_seen or kernel.total(*_SHARED_SIZES) == 0
        case Cause.REGISTER_SPILLS | Cause.ATOMICS:
            shown = kernel.first(*(_OF_ATOMICS if cause is Cause.ATOMICS else _OF_LOCAL)) is not None
        case Cause.DIVERGENCE:
            shown = active_lanes(kernel) is not None
        case Cause.LATENCY:  # what runs along to barriers with every lane off
            shown = kernel.get(EXECUTING) is not None or not may_wait_at_barriers(kernel)
        case _:
            shown = True
    return shown


def may_wait_at_barriers(kernel: KernelCounters) -> bool:
    """Whether warps may wait for barriers most of all: they do, or nobody counted what they wait for."""
    stalls = stalls_of(kernel)
    return stalls is None or stalls.is_at_barriers


def possible_wastes(kernel: KernelCounters) -> Iterator[tuple[Waste, bool]]:
    """The waste of a launch at the ends of the interval that its counters leave: none but what is sure (True), then
    each kind that was not counted at its most. One where all is counted, or where even L1's passes are not."""
    sure = waste_of(kernel)
    passes = sure.access.wavefronts_per_request
    uncounted = [cause for cause in _WASTES if not is_counted(kernel, sure.access, cause)]
    if not uncounted or passes is None:
        yield sure, True
        return
    known = sum(sure.of(cause, Resource.L1) for cause in _BY_PASSES if cause not in uncounted)
    least, most = (max(0.0, 1 - needed / max(passes, 1.0) - known) for needed in (MOST_NEEDED, 1.0))
    without: Shares = {**sure.shares, **{cause: {} for cause in uncounted}}
    idle = 1 - (kernel.get(EXECUTING) or 1.0) / LANES
    open_passes = [cause for cause in uncounted if cause in (Cause.UNCOALESCED, Cause.BANK_CONFLICTS)]
    floors: list[Shares] = [{cause: {Resource.L1: least}} for cause in open_passes] if least else [{}]
    for floor in floors:
        yield replace(sure, shares={**without, **floor}), True
        for cause in uncounted:
            at_most = _at_most(cause, sure, passes, most, idle)
            beside = {} if cause in open_passes else floor
            atomic = 1.0 if cause is Cause.ATOMICS else sure.atomic_requests
            lanes = LANES * (1 - idle) if cause is Cause.DIVERGENCE else sure.active_lanes
            shares = {**without, **beside, cause: at_most}
            yield replace(sure, shares=shares, atomic_requests=atomic, active_lanes=lanes), False


def _at_most(cause: Cause, sure: Waste, passes: float, most: float, idle: float) -> Mapping[Resource, float]:
    """What a kind of waste that was not counted takes of each resource at most: `most` of L1's passes, of instructions
    the `idle` lanes, of traffic what is not known to be of other accesses."""
    of_others = {of: 1 - min(1.0, sure.of(Cause.UNCOALESCED, of) + sure.of(Cause.ATOMICS, of)) for of in MEMORY}
    by_passes = min(1.0, 1 / passes) if passes else 1.0
    match cause:
        case Cause.UNCOALESCED:
            return {**dict.fromkeys(MEMORY, _IDLE), Resource.L1: most}
        case Cause.BANK_CONFLICTS:
            return {Resource.L1: most}
        case Cause.REGISTER_SPILLS:
            instructions = sure.memory_instructions
            return {**of_others, Resource.L1: _of_local(passes), Resource.ISSUE: instructions}
        case Cause.ATOMICS:
            return {Resource.L2: of_others[Resource.L2]}
        case Cause.LATENCY:
            in_l1 = min(1.0, _IDLE / sure.memory_instructions) if sure.memory_instructions else 0.0
            return {**dict.fromkeys(OF_INSTRUCTIONS, idle), Resource.L1: in_l1}
        case _:
            return {**dict.fromkeys(OF_INSTRUCTIONS, idle), Resource.L1: idle * by_passes}


def _of_local(passes: float) -> float:
    """The largest share of passes that local memory may have: its instructions take one each, others 32 at most."""
    return min(1.0, (LANES - passes) / (LANES - 1)) / max(passes, 1.0) if passes < LANES else 0.0
