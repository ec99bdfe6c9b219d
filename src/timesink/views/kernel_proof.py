"""A profiled kernel in one screen: what limits it and by how much, three counters that show it, what to change, what
that wins at most, and what to collect to be surer."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from timesink.measures.counters import KernelCounters
from timesink.measures.counters.causes import (
    advised_bound,
    bound_in_fp32,
    limiter_name,
    limiter_words,
    most_ns,
    next_cause,
)
from timesink.measures.counters.limiter import KernelLimits, why_unexplained
from timesink.measures.counters.resources import MEMORY
from timesink.measures.counters.stalls import Stalls
from timesink.measures.counters.waste import Access, Cause
from timesink.rules.ncu.causes import said_of, spent_text
from timesink.units import share_text, time_text, times_text
from timesink.views import Sheet, sheet_of

_SHOWN: Final = 3  # counters: what limits it, what else was busy, what warps waited for
_LACKING: Final = "SourceCounters", "WarpStateStats", "MemoryWorkloadAnalysis_Tables"
_OF_LINES: Final = frozenset(Cause) - {Cause.MEMORY, Cause.COMPUTE, Cause.OCCUPANCY}


def proof_sheet(kernel: KernelCounters, limits: KernelLimits | None, title: str, action: str) -> Sheet:
    """One screen of a launch, as a table of questions and answers."""
    columns = "question [name], answer [text]"
    return sheet_of(f"in_short_{kernel.profile}", title, _answers(kernel, limits, action), columns)


def _answers(kernel: KernelCounters, limits: KernelLimits | None, action: str) -> Iterator[tuple[str, str]]:
    if limits is None:
        yield "what limits it", f"undecided: {why_unexplained(kernel)}"
        yield "to be surer", _to_collect(limits)
        return
    yield "what limits it", f"{limiter_words(limiter_name(limits))}: {said_of(limits)[0].strip()}{limits.doubt}"
    yield "by how much", f"{spent_text(limits, limits.limiter)} of its time"
    for label, value, counter in islice(_proofs(limits), _SHOWN):
        yield "what shows it", f"{label}: {value} ({counter})"
    yield "what to change", action
    yield "what that wins", _wins(limits)
    if (beside := next_cause(limits)) is not None:
        yield "what is next", f"{beside[0]}, {share_text(beside[1])} of its time"
    yield "to be surer", _to_collect(limits)


def _wins(limits: KernelLimits) -> str:
    """The most that the change wins; of necessary work what its roof leaves, which takes no fewer operations."""
    bound = (limits.limiter is Cause.COMPUTE and bound_in_fp32(limits)) or limits.bound
    if bound is None:
        return "not known: no other unit is busy by what was measured"
    bound = min(bound, advised_bound(limits, limits.limiter))
    saved = f", {time_text(most_ns(limits, limits.limiter))}" if limits.kernel.duration_ns else ""
    same = (
        f"; with the same work {times_text(limits.roof_speedup)}, at its {limits.roof[0]} roof"
        if limits.limiter in (Cause.MEMORY, Cause.COMPUTE) and limits.roof_speedup is not None
        else ""
    )
    return f"at most {times_text(bound)} as fast{saved}{same}"


def _to_collect(limits: KernelLimits | None) -> str:
    if limits is None or limits.others or limits.has_levels_only:
        sections = " ".join(f"--section {name}" for name in _LACKING)
        return f"ncu --set full; or beside what you have: ncu {sections}"
    if limits.limiter in _OF_LINES:
        return "which lines: ncu --set full --import-source on, then the Source page"
    return "nothing: every counter that this verdict needs was read"


def _proofs(limits: KernelLimits) -> Iterator[tuple[str, str, str]]:
    """Figures with their counters: those of the limiter first, then the busiest units, then what warps wait for."""
    yield from _of_cause(limits)
    top = limits.top
    yield f"busiest unit, {top.resource.value}", f"{share_text(top.busy)} of its peak", top.name
    is_of_memory = top.resource in MEMORY
    other = next((leaf for leaf in limits.leaves if (leaf.resource in MEMORY) is not is_of_memory), None)
    if other is not None:
        side = "other units" if is_of_memory else "memory"
        yield f"busiest of {side}, {other.resource.value}", f"{share_text(other.busy)} of its peak", other.name
    yield from _of_waits(limits.stalls)


def _stall(reason: str) -> str:
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active"


def _of_cause(limits: KernelLimits) -> Iterator[tuple[str, str, str]]:
    occupancy, waste = limits.occupancy, limits.waste
    match limits.limiter:
        case Cause.UNCOALESCED | Cause.BANK_CONFLICTS:
            yield from _of_accesses(limits.limiter, waste.access)
        case Cause.REGISTER_SPILLS:
            local = share_text(waste.local_instructions)
            yield "instructions of local memory", f"{local} of all", "smsp__sass_inst_executed_op_local"
        case Cause.DIVERGENCE if waste.active_lanes is not None:
            lanes = f"{waste.active_lanes:.1f} of 32"
            yield "active lanes of a warp", lanes, "smsp__thread_inst_executed_per_inst_executed"
        case Cause.ATOMICS:
            requests = f"{share_text(waste.atomic_requests)} of global requests"
            yield "atomics", requests, "l1tex__t_requests_pipe_lsu_mem_global_op_red, _atom"
        case Cause.OCCUPANCY:
            if occupancy.sm_idle is not None:
                yield "SMs without a block", f"{share_text(occupancy.sm_idle)} of the time", "sm__cycles_active"
            if occupancy.achieved is not None:
                most = "" if occupancy.theoretical is None else f", {share_text(occupancy.theoretical)} in theory"
                yield "warp slots filled", f"{share_text(occupancy.achieved)}{most}", "sm__warps_active"
        case Cause.LATENCY:
            yield from _of_waits(limits.stalls)
        case Cause.MEMORY if limits.queued_loads is not None:
            queue = limits.queued_loads
            waited = f"{queue.waited:.0f} cycles, {queue.idle:.0f} in an idle memory"
            yield "wait for a load", waited, _stall("long_scoreboard")


def _of_accesses(cause: Cause, access: Access) -> Iterator[tuple[str, str, str]]:
    """How many pieces accesses touch beside how many they need."""
    if cause is Cause.UNCOALESCED and access.sectors is not None and access.ideal_sectors is not None:
        touched = f"{access.sectors:,.0f}; side by side {access.ideal_sectors:,.0f}"
        yield "sectors of global accesses", touched, "memory_l2_theoretical_sectors_global"
    elif cause is Cause.BANK_CONFLICTS and access.shared_wavefronts and access.ideal_shared_wavefronts is not None:
        passes = f"{access.shared_wavefronts:,.0f}; without conflicts {access.ideal_shared_wavefronts:,.0f}"
        yield "passes of shared memory", passes, "memory_l1_wavefronts_shared"
    elif access.wavefronts_per_request is not None:
        passes = f"{access.wavefronts_per_request:.1f}; without waste 1 to 4"
        yield "passes of a load-store instruction", passes, "l1tex__data_pipe_lsu_wavefronts"


def _of_waits(stalls: Stalls | None) -> Iterator[tuple[str, str, str]]:
    if stalls is not None and stalls.top is not None:
        reason, share = stalls.top
        yield f"warps wait for {reason.replace('_', ' ')}", f"{share_text(share)} of the waiting", _stall(reason)
