"""What is given of a launch to explain it: of a report what it measured; of a page everything that it allows.

A details page holds throughputs of whole levels, occupancy and ncu's own messages, but neither units nor all stalls.
Where every kernel that a page allows has the same limiter, the page decides it; where not, it is undecided.

ncu's rules say in words what no table of the page has. One that ran and is silent says something too: of 264 launches
they spoke of every one that had an excess sector, and of every reason that 30 % of a warp's cycles went to.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from timesink.knowledge.gpus import ISSUES_OF_CYCLE, LANES, SECTORS_OF_PASS
from timesink.measures.counters import ELAPSED, KernelCounters, Occupancy, occupancy_of, page_bounds
from timesink.measures.counters.bounds import (
    FAR_FROM_FULL,
    FOR_LOADS,
    MOSTLY,
    TRAFFIC,
    LoadWait,
    bound_of_any,
    load_wait,
)
from timesink.measures.counters.page_bounds import ACCESSES, OF_LOCAL, REQUESTS, ROUNDED, Told, told_in
from timesink.measures.counters.resources import (
    MEMORY,
    Leaf,
    Resource,
    counts_one_way,
    lacks_units,
    leaves,
    resource_of,
    throughput_of,
)
from timesink.measures.counters.roofline import KernelRoofline, roofline_of
from timesink.measures.counters.shares import UnitWork, work_of
from timesink.measures.counters.stalls import Stalls, stalls_of
from timesink.measures.counters.uncounted import possible_wastes
from timesink.measures.counters.waste import Access, Cause, Waste, requests_per_cycle, waste_of
from timesink.records import Record, replace

TOLD_FROM: Final = 0.3  # of a warp's cycles between two instructions: the rule on stalls names reasons from here on
# A reason that stands for its kind, and another of the kind, of waits that the messages do not name.
_KINDS_OF_WAITS: Final = (
    ("wait", "branch_resolving"),
    ("barrier", "sleeping"),
    ("math_pipe_throttle", "tex_throttle"),
    ("long_scoreboard", "drain"),
    ("short_scoreboard", "mio_throttle"),
    ("membar", "lg_throttle"),
)
DRAM_BUSY: Final = f"gpu__dram_throughput{ELAPSED}"
_LANES: Final = ("", "_pred_on")
_NAMELESS: Final = ("imc_miss", "no_instruction", "misc", "dispatch_stall")  # where the kind itself has no more room
_QUEUED: Final = LoadWait(1e6, 1.0)  # loads that do nothing but queue
_SM: Final = "sm__inst_executed"  # the schedulers
_PIPE: Final = "sm__inst_executed_pipe_"
_OF_LOADS: Final = (f"{_PIPE}lsu", f"{_PIPE}adu")  # the other executes barriers
_L2: Final = {
    "lts__t_sectors": ACCESSES,
    "lts__xbar2lts_cycles_active": REQUESTS,
    "lts__lts2xbar_cycles_active": REQUESTS,
}
_PER_CYCLE: Final = (("issued", "active"), ("executed", "elapsed"))


class Given(Record):
    """One launch as it may have run. `work` has units as `leaves` of a report; `queue`: its loads, if they queue;
    `dram_side`: the share of DRAM's roof where its bytes take longer than its operations, by the roofline.
    `is_counted`: it has nothing but what was counted."""

    work: UnitWork
    bound_of_any: float
    occupancy: Occupancy
    stalls: Stalls | None
    roofline: KernelRoofline | None
    queue: LoadWait | None
    dram_side: float | None
    is_counted: bool = False


def with_dram(kernel: KernelCounters) -> KernelCounters:
    """Where nothing but its bytes and its time was collected: with how busy they keep DRAM, if its peak is known."""
    roofline = None if leaves(kernel) else roofline_of(kernel)
    dram = roofline.memory_of("dram") if roofline is not None else None
    return kernel if dram is None else replace(kernel, values={**kernel.values, DRAM_BUSY: 100 * dram.share})


def given_of(kernel: KernelCounters) -> Iterator[Given]:
    """The launch as it was counted; of a page of levels every one that it allows; none where no unit was measured."""
    roofline, of_any = roofline_of(kernel), bound_of_any(kernel)
    if lacks_units(kernel):
        if leaves(kernel):
            yield from _allowed(kernel, roofline)
        return
    units, stalls = leaves(kernel), stalls_of(kernel)
    dram = roofline.memory_of("dram") if roofline is not None else None
    if dram is not None and not any(leaf.resource is Resource.DRAM for leaf in units):
        units = (*units, Leaf("dram__bytes", Resource.DRAM, dram.share, dram.share))
    if not units:
        return
    side = dram.share if dram is not None and roofline is not None and roofline.is_memory_side else None
    queue, occupancy = load_wait(kernel, units, stalls), occupancy_of(kernel)
    for box in possible_wastes(kernel):
        yield Given(work_of(units, box.told), of_any, occupancy, stalls, roofline, queue, side, True)


def _allowed(kernel: KernelCounters, roofline: KernelRoofline | None) -> Iterator[Given]:
    told = told_in(kernel.messages)
    kernel = replace(kernel, values={**told.counters, **kernel.values})
    occupancy, of_any = occupancy_of(kernel), bound_of_any(kernel)
    wastes, waits = list(_wastes(kernel, told)), list(_stalls(kernel, told))
    for units in _either_way(kernel, _units(kernel, told, occupancy)):
        dram = next((leaf.busy for leaf in units if leaf.resource is Resource.DRAM), 0.0)
        hidden = 0.0 if told.pipe is not None else _of_issue(units)
        sides = (dram,) if max(page_bounds.work_at_most(kernel, told), hidden) < dram else (None, dram)
        queued = [(stalls, queue) for stalls in waits for queue in _queues(units, stalls)]
        for waste in wastes:
            work = work_of(units, waste)
            told_apart = sides if work.top.resource in (Resource.ISSUE, Resource.CONTROL) else sides[:1]
            for (stalls, queue), side, places in product(queued, told_apart, _places(occupancy, kernel.blocks)):
                if queue is None or work.is_far_from_full:
                    yield Given(work, of_any, places, stalls, roofline, queue, side)


def _places(occupancy: Occupancy, blocks: int) -> tuple[Occupancy, ...]:
    """How full SMs may be where a page does not say: as few blocks allow, or without one whenever no unit works."""
    if occupancy.sm_idle is not None:
        return (occupancy,)
    least = max(0.0, 1 - blocks / occupancy.sm_count) if occupancy.sm_count else 0.0
    return replace(occupancy, sm_idle=least), replace(occupancy, sm_idle=1.0)


def _either_way(kernel: KernelCounters, every: Iterable[tuple[Leaf, ...]]) -> Iterator[tuple[Leaf, ...]]:
    """The units, and where one way of DRAM's traffic was not counted, also with a DRAM that is full by it."""
    for units in every:
        yield units
        if counts_one_way(kernel):
            yield tuple(replace(leaf, busy=1.0) if leaf.resource is Resource.DRAM else leaf for leaf in units)


def _units(kernel: KernelCounters, told: Told, occupancy: Occupancy) -> Iterator[tuple[Leaf, ...]]:
    """The levels with the unit that may be their busiest, and the pipe that is told of. The SM's is the schedulers, a
    pipe, or that of loads; what is busier than the levels is some unit of memory."""
    levels = leaves(kernel)
    sm = next((leaf.busy for leaf in levels if leaf.resource is Resource.ISSUE), 0.0)
    memory = [leaf for leaf in levels if leaf.resource in MEMORY]
    tells_sectors = any(name.startswith("memory_l2") for name in told.counters)
    l2_units = _of_l2(kernel, memory) if tells_sectors else (*_L2,)[:1]
    for name in _of_sm(kernel, told, occupancy, sm):
        of_sm = [Leaf(name, resource_of(name) or Resource.ISSUE, sm, sm)]
        if told.pipe is not None and (pipe := _PIPE + told.pipe[0]) != name and (of_pipe := resource_of(pipe)):
            of_sm.append(Leaf(pipe, of_pipe, told.pipe[1], told.pipe[1]))
        if name != _OF_LOADS[1] and told.may_wait_at_barriers and (pipes := kernel.share("sm__memory_throughput")):
            of_sm.append(Leaf(_OF_LOADS[1], Resource.L1, pipes, pipes))
        for l2 in l2_units:
            for hidden in _named(memory):
                named = (replace(leaf, name=l2) if leaf.resource is Resource.L2 else leaf for leaf in hidden)
                yield tuple(sorted((*named, *of_sm), key=lambda leaf: (-leaf.busy, leaf.name)))


def _of_issue(units: tuple[Leaf, ...]) -> float:
    """How busy issue slots are, and so a pipe without a message at most; 0 where another unit is the SM's busiest."""
    return max((leaf.busy for leaf in units if leaf.resource is Resource.ISSUE), default=0.0)


def _of_l2(kernel: KernelCounters, memory: list[Leaf]) -> tuple[str, ...]:
    """Counters that L2's busiest unit may have: those of the summary, of accesses or of requests, that is as large."""
    busy = next((leaf.busy for leaf in memory if leaf.resource is Resource.L2), None)
    found = [
        name for name, summary in _L2.items()
        if busy is not None and (of_all := kernel.share(summary)) is not None and abs(of_all - busy) < ROUNDED
    ]  # fmt: skip
    return tuple(found) or tuple(_L2)


def _named(memory: list[Leaf]) -> Iterator[list[Leaf]]:
    """The levels, what is hidden beyond them as part of L1 or of L2. A level that is cut off at what the summary of all
    says is so busy at most: where another is as busy by its own figure, it may be less. So may L2, whose own figure has
    units that the summary leaves out."""
    hidden = [leaf for leaf in memory if leaf.resource is Resource.HIDDEN]
    known = [leaf for leaf in memory if leaf.resource is not Resource.HIDDEN]
    yield from ([*known, replace(hidden[0], resource=of)] for of in (Resource.L1, Resource.L2) if hidden)
    if not hidden:
        yield known
        most = max((leaf.busy for leaf in known), default=0.0)
        if any(leaf.resource is Resource.DRAM and leaf.busy >= most - ROUNDED for leaf in known):
            yield [leaf for leaf in known if leaf.resource is Resource.DRAM or leaf.busy < most - ROUNDED]
        if any(leaf.resource is Resource.L2 and leaf.busy < most - ROUNDED for leaf in known):
            yield [leaf for leaf in known if leaf.resource is not Resource.L2]


def _of_sm(kernel: KernelCounters, told: Told, occupancy: Occupancy, sm: float) -> tuple[str, ...]:
    """Counters that the SM's busiest unit may have, by the figures that are as large as the SM's own."""
    issued, executed = (kernel.get(f"sm__inst_{done}.avg.per_cycle_{over}") for done, over in _PER_CYCLE)
    active = 1 - (occupancy.sm_idle or 0.0)
    pipes, l1 = kernel.share("sm__memory_throughput"), throughput_of(kernel, Resource.L1)
    slots = [rate / ISSUES_OF_CYCLE for rate in (issued and issued * active, executed) if rate is not None]
    found = [_SM] if any(abs(busy - sm) < ROUNDED for busy in slots) else []
    if told.pipe is not None and abs(told.pipe[1] - sm) < ROUNDED:
        found.append(_PIPE + told.pipe[0])
    # Each load or store passes through L1, so that a unit of loads is no busier than L1; and neither than all pipes.
    passes = l1 is None or l1 >= sm * requests_per_cycle(kernel) - ROUNDED
    of_memory = _OF_LOADS[:1] if page_bounds.counts_requests(kernel) else _OF_LOADS if passes else _OF_LOADS[1:]
    if pipes is not None and abs(pipes - sm) < ROUNDED:
        found += of_memory
    return tuple(found) or (_SM, f"{_PIPE}alu", *(of_memory if pipes is None else ()))


def _stalls(kernel: KernelCounters, told: Told) -> Iterator[Stalls | None]:
    """The reasons that the messages name, with what is left given to each kind of waits in turn. No reason that they do
    not name takes `TOLD_FROM` of a warp's cycles."""
    cycles = kernel.get("smsp__average_warp_latency_per_inst_issued.ratio")
    eligible = kernel.get("smsp__warps_eligible.avg.per_cycle_active")
    issued = kernel.get("smsp__issue_active.avg.per_cycle_active")
    if (found := stalls_of(kernel)) is not None:
        yield found
        return
    healthy = eligible / issued if eligible and issued else 0.0
    named = told.waits
    waiting = max(0.0 if cycles is None else cycles - healthy, sum(named.values()))
    for one, other in _KINDS_OF_WAITS:
        if not waiting:
            yield Stalls({one: 1.0}, None, None, is_sampled=False)
            continue
        rest = waiting - sum(named.values())
        most = TOLD_FROM * (cycles or waiting) if told.stalls else rest
        shares = dict(named)
        for reason in (one, other, *_NAMELESS):
            if reason not in named and (part := min(rest, most)) > 0:
                shares[reason], rest = part, rest - part
        yield Stalls({reason: part / waiting for reason, part in shares.items()}, cycles, None, is_sampled=False)


def _queues(units: tuple[Leaf, ...], stalls: Stalls | None) -> Iterable[LoadWait | None]:
    """Whether loads may queue though no unit is 60 % busy: in L2 or on the way to it; a DRAM that is not full has no
    queue."""
    busiest = max((leaf for leaf in units if leaf.resource in MEMORY), key=lambda leaf: leaf.busy, default=None)
    if busiest is None or busiest.resource is Resource.DRAM or not TRAFFIC <= busiest.busy < FAR_FROM_FULL:
        return (None,)
    return (None, _QUEUED) if stalls is not None and stalls.of(FOR_LOADS) >= MOSTLY else (None,)


_Shares = Mapping[Cause, Mapping[Resource, float]]


def _wastes(kernel: KernelCounters, told: Told) -> Iterator[Waste]:
    """No waste but what the page tells, then each kind at its most. Of DRAM's bytes it tells what is beyond need."""
    least = waste_of(kernel)
    excess, hits = least.access.excess_ratio or 0.0, kernel.share("l1tex__t_sector_hit_rate.pct")
    missed = 0.0 if hits is None else 1 - hits  # of the sectors: so many go on to L2
    wasted = {
        Resource.DRAM: least.of(Cause.UNCOALESCED, Resource.DRAM) if told.counters else 0.0,
        Resource.L2: max(0.0, 1 - (1 - excess) / missed) if missed > 0 and excess else 0.0,
        Resource.L1: page_bounds.excess_passes(kernel, least.access, told.names_local),
    }
    local = page_bounds.local_traffic_at_least(kernel, least.access)
    shares = {
        **least.shares,
        Cause.UNCOALESCED: wasted,
        Cause.BANK_CONFLICTS: {Resource.L1: page_bounds.repeated_passes(kernel, least.access)},
        Cause.REGISTER_SPILLS: {Resource.L2: local, Resource.DRAM: local},
        Cause.DIVERGENCE: _of_idle_lanes(kernel, told, least, page_bounds.requests_of_passes(kernel)[0]),
    }
    uses_shared = kernel.total("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic") != 0
    for ahead in (False, True) if uses_shared else (False,):
        yield replace(least, shares=shares, copies_ahead=ahead, memory_instructions=1.0)
        for most, atomic in _most(kernel, told, least, wasted):
            some = replace(least, shares={**shares, **most}, atomic_requests=atomic)
            yield replace(some, copies_ahead=ahead, memory_instructions=1.0)


def _most(
    kernel: KernelCounters, told: Told, least: Waste, wasted: Mapping[Resource, float]
) -> Iterator[tuple[_Shares, float]]:
    """Shares of each kind of waste at most, and of atomic requests; `wasted` by plain accesses, if none is atomic."""
    sees_source = told.has_spoken and kernel.get("smsp__inst_executed_op_branch.sum") is not None
    access = least.access
    if access.excess_ratio or not sees_source:
        passes = 1.0 if access.excess_ratio is None else page_bounds.passes_of(access.excess_ratio)
        in_l1, dram = page_bounds.excess_passes_at_most(kernel, access, passes), {}
        if access.excess_ratio is not None:
            dram = {Resource.DRAM: least.of(Cause.UNCOALESCED, Resource.DRAM)}
        yield {Cause.UNCOALESCED: {**dict.fromkeys(MEMORY, passes), Resource.L1: in_l1, **dram}}, 0.0
    conflicts = 0.0 if sees_source or not access.uses_shared else 1.0
    if access.shared_wavefronts and access.ideal_shared_wavefronts is not None:
        conflicts = 1 - access.ideal_shared_wavefronts / access.shared_wavefronts
    if conflicts:
        yield {Cause.BANK_CONFLICTS: {Resource.L1: conflicts}}, 0.0
    if kernel.get(OF_LOCAL) != 0 or told.names_local:
        traffic, instructions = (
            page_bounds.local_traffic(kernel, told.names_local),
            page_bounds.local_instructions(kernel),
        )
        yield {Cause.REGISTER_SPILLS: {**dict.fromkeys(MEMORY, traffic), Resource.ISSUE: instructions}}, 0.0
    if page_bounds.may_have_atomics(kernel):
        yield _atomics(kernel, told, access, wasted, conflicts)
    if least.of(Cause.DIVERGENCE, Resource.ISSUE):
        yield {Cause.DIVERGENCE: _of_idle_lanes(kernel, told, least, page_bounds.requests_of_passes(kernel)[1])}, 0.0
    lanes, executing = (kernel.get(f"smsp__thread_inst_executed{kind}_per_inst_executed.ratio") for kind in _LANES)
    if lanes and executing is not None and executing < lanes and told.may_wait_at_barriers:
        off = 1 - executing / lanes
        most_passes = LANES if access.excess_ratio or conflicts else SECTORS_OF_PASS
        in_l1 = min(1.0, off / (page_bounds.memory_instructions(kernel, most_passes) or off))
        yield {Cause.LATENCY: {**dict.fromkeys(Resource, off), Resource.L1: in_l1}}, 0.0


def _of_idle_lanes(kernel: KernelCounters, told: Told, least: Waste, in_l1: float) -> Mapping[Resource, float]:
    """What lanes waste that are off, with so much of L1. Where warps are told to wait at barriers, without those that
    predicates switch off."""
    of_instructions = least.shares[Cause.DIVERGENCE]
    lanes = kernel.get(f"smsp__thread_inst_executed{_LANES[0]}_per_inst_executed.ratio")
    idle = least.of(Cause.DIVERGENCE, Resource.ISSUE)
    if lanes is not None and told.stalls and told.may_wait_at_barriers:
        idle = 1 - lanes / LANES
        of_instructions = dict.fromkeys(of_instructions, idle)
    return {**of_instructions, Resource.L1: idle * in_l1}


def _atomics(
    kernel: KernelCounters, told: Told, access: Access, wasted: Mapping[Resource, float], conflicts: float
) -> tuple[_Shares, float]:
    """What atomics waste at most, and what plain accesses do then: conflicts that are told of loads and stores, and of
    what goes beyond need what atomics cannot touch. Where loads or stores are told to waste, that holds in L1 only."""
    sectors, stored = page_bounds.atomic_sectors(kernel)
    share = 1.0 if sectors is None else 2 * sectors / (2 * sectors + stored) if sectors else 0.0  # there and back
    repeated = (access.shared_wavefronts or 0.0) - (access.ideal_shared_wavefronts or 0.0)
    plain_conflicts = min(1.0, told.conflicts / repeated) if repeated else 0.0
    beyond = (access.sectors or 0.0) - (access.ideal_sectors or 0.0)
    plain = 0.0 if sectors is None or not beyond else max(0.0, 1 - sectors / beyond)
    is_told = any(name.endswith(".ratio") for name in told.counters)
    left = {of: part if is_told and of is not Resource.L1 else plain * part for of, part in wasted.items()}
    return {
        Cause.ATOMICS: {Resource.L1: conflicts * (1 - plain_conflicts), Resource.L2: share},
        Cause.BANK_CONFLICTS: {Resource.L1: conflicts * plain_conflicts},
        Cause.UNCOALESCED: left,
    }, share * _may_contend(kernel, told)


def _may_contend(kernel: KernelCounters, told: Told) -> bool:
    """Whether atomics may wait for each other: they keep L2, or some slices of it, busier than the rest, and who waits
    for them waits longer than an idle memory takes, even if every instruction were a load."""
    levels = leaves(kernel)
    l2 = next((leaf.busy for leaf in levels if leaf.resource is Resource.L2), 1.0)
    others = max((leaf.busy for leaf in levels if leaf.resource is not Resource.L2), default=0.0)
    is_even = told.has_spoken and kernel.get("lts__cycles_active.avg") is not None and not told.has_hot_slices
    return l2 > others + ROUNDED or not is_even or told.waits_too_long
