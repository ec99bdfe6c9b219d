"""How a kernel's time is shared out: busy time of its busiest unit to waste and to work, the rest to what it waits for.

`UnitWork` is what units and waste say whatever warps wait for: of a page that leaves waits open it is worked out once.
"""

from collections.abc import Mapping, Sequence

from timesink.measures.counters import Occupancy
from timesink.measures.counters.bounds import (
    FAR_FROM_FULL,
    FOR_LOADS,
    MOSTLY,
    TAGS,
    LoadWait,
    bound_of_fewer_waits,
    bound_without,
    is_between_barriers,
    kept_when_coalesced,
    used,
)
from timesink.measures.counters.resources import ARITHMETIC, MEMORY, Leaf, Resource
from timesink.measures.counters.roofline import KernelRoofline
from timesink.measures.counters.stalls import FULL, HIDDEN_BY_WARPS, QUEUES, Stalls
from timesink.measures.counters.waste import Cause, Waste
from timesink.records import Record, field

# In this order they take their part of the busy time; of latency that is what runs along to barriers without work.
BUSY_WASTES = (
    *(Cause.REGISTER_SPILLS, Cause.ATOMICS, Cause.BANK_CONFLICTS, Cause.UNCOALESCED, Cause.DIVERGENCE),
    Cause.LATENCY,
)
LOAD_STALLS = frozenset({"long_scoreboard", "lg_throttle", "drain", "membar"})
FENCES = frozenset({"membar", "drain"})
SHARED_STALLS = frozenset({"short_scoreboard", "mio_throttle"})
HIDDEN_BUT_LOADS = HIDDEN_BY_WARPS - FOR_LOADS
NO_QUEUE = 0.1  # of the waiting


class UnitWork(Record, eq=False):
    """Units with their waste: the busiest of them, what its busy time goes to, what is left of that for work.

    `ceilings` are bounds without a cause, `fewer` those of fewer waits by what warps wait for, as they become known.
    """

    units: tuple[Leaf, ...]
    waste: Waste
    top: Leaf
    wasted: Mapping[Cause, float]
    left: float
    ceilings: dict[Cause, float] = field(default_factory=dict)
    fewer: list[tuple[Stalls | None, KernelRoofline | None, float]] = field(default_factory=list)

    @property
    def is_far_from_full(self) -> bool:
        """Whether its busiest unit is: only then do loads queue elsewhere."""
        return used(self.top) < FAR_FROM_FULL

    def bound_without(self, cause: Cause) -> float:
        """The largest speedup without the cause."""
        if cause not in self.ceilings:
            self.ceilings[cause] = bound_without(cause, self.units, self.waste)
        return self.ceilings[cause]

    def bound_of_fewer_waits(self, stalls: Stalls | None, roofline: KernelRoofline | None) -> float:
        """The largest speedup where a fix waits for fewer barriers or loads."""
        for of_stalls, of_roofline, bound in self.fewer:
            if of_stalls is stalls and of_roofline is roofline:
                return bound
        bound = bound_of_fewer_waits(self.units, self.waste, self.top, stalls, roofline)
        self.fewer.append((stalls, roofline, bound))
        return bound


def work_of(units: tuple[Leaf, ...], waste: Waste) -> UnitWork:
    """These units, of which there is one at least, with their waste."""
    top, even = _top(units, waste)
    wasted, left = _share_out_busy(top, even, waste)
    return UnitWork(units, waste, top, wasted, left)


def shares_of(
    work: UnitWork, occupancy: Occupancy, stalls: Stalls | None, queue: LoadWait | None, dram_side: float | None
) -> dict[Cause, float]:
    """Every cause's share of the time, where warps wait so, loads queue so, and DRAM has that part of the roofline."""
    shares, top = dict(work.wasted), work.top
    is_waiting = (queue is None and is_under_waits(top, stalls)) or is_between_barriers(top, work.units, stalls)
    shares[Cause.LATENCY if is_waiting else work_side(top, work.units, dram_side)] += work.left
    _share_out_idle(shares, 1 - used(top), work.waste, occupancy, stalls, queue)
    return shares


def _top(units: tuple[Leaf, ...], waste: Waste) -> tuple[Leaf, float]:
    """The busiest leaf, and how busy it is where its work is even.

    Atomics on few words keep one slice of L2 busy while the average is low: then that slice. To ask whether a copy has
    arrived keeps the unit of barriers busy; where another unit is full, that one.
    """
    visible = [leaf for leaf in units if leaf.resource is not Resource.HIDDEN] or list(units)
    full = [leaf for leaf in visible if not leaf.is_of_barriers and used(leaf) >= FAR_FROM_FULL]
    top = max(full if waste.copies_ahead and full else visible, key=used)
    hot = [
        leaf for leaf in visible if leaf.resource is Resource.L2 and leaf.hottest * waste.atomic_requests > used(top)
    ]
    if not hot:
        return top, top.busy
    hottest = max(hot, key=lambda leaf: leaf.hottest)
    return Leaf(hottest.name, Resource.L2, hottest.hottest, hottest.hottest), hottest.busy


def _share_out_busy(top: Leaf, even: float, waste: Waste) -> tuple[Mapping[Cause, float], float]:
    """Give each kind of waste its part of the busy time; what is left is necessary work. What one slice of L2 does
    beyond the others is the atomics'."""
    shares = dict.fromkeys(Cause, 0.0)
    left = busy = used(top)
    for cause in BUSY_WASTES:
        wasted = waste.of(cause, top.resource)
        if cause is Cause.ATOMICS and even < top.busy:
            wasted = 1 - (1 - wasted) * even / top.busy
        if cause is Cause.UNCOALESCED and top.resource is Resource.L2 and wasted and TAGS not in top.name:
            wasted = max(wasted, 1 - kept_when_coalesced(top, waste))  # of the direction that is busy
        part = min(left, busy * wasted)
        shares[cause] += part
        left -= part
    return shares, left


def work_side(top: Leaf, units: Sequence[Leaf], dram_side: float | None) -> Cause:
    """Necessary work of the busiest unit. What executes barriers works for warps that wait for each other."""
    if top.is_of_barriers:
        return Cause.LATENCY
    if top.resource in MEMORY:
        return Cause.MEMORY
    return issued_for(top, units, dram_side) if top.resource in (Resource.ISSUE, Resource.CONTROL) else Cause.COMPUTE


def issued_for(top: Leaf, units: Sequence[Leaf], dram_side: float | None) -> Cause:
    """What issue slots serve: DRAM, if the roofline has it half as busy and no arithmetic is nearer to its peak."""
    pipes = (used(leaf) for leaf in units if leaf.resource in ARITHMETIC)
    return Cause.COMPUTE if dram_side is None or dram_side < max([top.busy / 2, *pipes]) else Cause.MEMORY


def is_under_waits(top: Leaf, stalls: Stalls | None) -> bool:
    """Whether warps wait for loads and not for the busiest unit: one of the SM, far from full, whose queue is empty."""
    if top.resource is not Resource.L1 or stalls is None or top.busy >= FAR_FROM_FULL:
        return False
    return stalls.of(QUEUES) < NO_QUEUE and stalls.of(LOAD_STALLS) >= MOSTLY


def _share_out_idle(
    shares: dict[Cause, float],
    idle: float,
    waste: Waste,
    occupancy: Occupancy,
    stalls: Stalls | None,
    queue: LoadWait | None,
) -> None:
    """Give the time in which even the busiest unit waits to what it waits for; queues of loads are work of memory."""
    without_blocks = min(idle, occupancy.sm_idle or 0.0)
    shares[Cause.OCCUPANCY] += without_blocks
    left = waiting = idle - without_blocks
    for cause, ratio in waiting_for_waste(waste, stalls).items():
        part = min(left, waiting * ratio)
        shares[cause] += part
        left -= part
    if queue is not None and stalls is not None:
        part = left * stalls.of(FOR_LOADS) * queue.queued
        shares[Cause.MEMORY] += part
        left -= part
    hidden = HIDDEN_BUT_LOADS if waste.copies_ahead else HIDDEN_BY_WARPS
    hideable = 1.0 if stalls is None else stalls.of(hidden)
    room = 0.0 if occupancy.achieved is None else max(0.0, 1 - occupancy.achieved)
    part = left * hideable * room
    shares[Cause.OCCUPANCY] += part
    shares[Cause.LATENCY] += left - part


def atomic_waits(waste: Waste) -> float:
    """The share of waits for global memory that atomics lengthen: as many of its requests they are, or of what L2 does
    for all, where lanes of one request take turns at a word."""
    requests = waste.atomic_requests
    return max(requests, waste.of(Cause.ATOMICS, Resource.L2)) if requests else 0.0


def waiting_for_waste(waste: Waste, stalls: Stalls | None) -> dict[Cause, float]:
    """Shares of the waiting time that a kind of waste lengthens. A fence waits for what its warp
    wrote, and so does a warp's end: of atomics the share that they are of all writes."""
    if stalls is None:
        return {}
    loads, shared = stalls.of(LOAD_STALLS), stalls.of(SHARED_STALLS)
    fences = stalls.of(FENCES) * max(0.0, waste.atomic_writes - waste.atomic_requests)
    return {
        Cause.REGISTER_SPILLS: loads * waste.of(Cause.REGISTER_SPILLS, Resource.L1),
        Cause.ATOMICS: loads * atomic_waits(waste) + fences + shared * waste.of(Cause.ATOMICS, Resource.L1),
        Cause.BANK_CONFLICTS: shared * waste.of(Cause.BANK_CONFLICTS, Resource.L1),
        Cause.UNCOALESCED: loads * waste.of(Cause.UNCOALESCED, Resource.L1),
        Cause.DIVERGENCE: (1 - stalls.of(FULL)) * waste.idle_lanes,
    }
