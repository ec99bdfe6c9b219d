"""Every verdict that the counters of a launch allow, by intervals: what was not collected may be anything.

The shares of a kernel's time are sums and products of a few quantities: how busy its busiest unit is, what part of that
is waste, how long SMs have no block, what warps wait for. Each is known, or lies between two ends. A cause may limit
the kernel if its share at most is no less than that of any other at least. So leaving a counter out only widens the
verdict, and the wide one contains the full one.

An example: L1 is busy for 0.8 of the time, and nobody counted which of its passes are bank conflicts:

    bank conflicts 0 to 0.8   memory 0 to 0.8: either may limit it, unless something surely takes more than 0.8
"""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

from timesink.knowledge.gpus import HOPPER
from timesink.measures.counters import ELAPSED, KernelCounters, occupancy_of
from timesink.measures.counters.bounds import (
    FAR_FROM_FULL,
    FOR_CODE,
    FOR_LOADS,
    MOSTLY,
    PRODUCT_WORK,
    TAGS,
    bound_of_any_waits,
    bound_of_fewer_waits,
    bound_without,
    full_from,
    is_fp32_product,
    kept_when_coalesced,
    used,
)
from timesink.measures.counters.resources import MEMORY, OF_L1, Leaf, Resource, missing_units, waits_at_barriers
from timesink.measures.counters.roofline import KernelRoofline
from timesink.measures.counters.shares import (
    BUSY_WASTES,
    FENCES,
    HIDDEN_BUT_LOADS,
    LOAD_STALLS,
    NO_QUEUE,
    SHARED_STALLS,
    UnitWork,
    atomic_waits,
)
from timesink.measures.counters.stalls import FULL, HIDDEN_BY_WARPS, QUEUES, Stalls, tells_reasons
from timesink.measures.counters.uncounted import Box
from timesink.measures.counters.waste import COPIES, Cause, Waste
from timesink.records import Record, replace

Range = tuple[float, float]
ANY: Final[Range] = (0.0, 1.0)
_SAMPLED: Final = 0.15  # of the waiting: nine launches of ten have no reason farther from what was counted
_EVEN: Final = 1e-9  # of the time: shares as large as each other
_UNFILLED: Final = 0.02  # of the places: what is there on average may be that much more than theory, as it is counted


class Possible(Record):
    """What may limit a launch, each cause's share at least and at most, and the largest speedup without it."""

    limiters: frozenset[Cause]
    smallest: Mapping[Cause, float]
    largest: Mapping[Cause, float]
    bounds: Mapping[Cause, float]


class Ends(Record):
    """What is known of a launch beside its waste. `queued` is the share of loads' waits that is a queue; `sides` what
    its work may be where issue slots do it; `waits` what fewer waits would leave, None where that was not counted."""

    kernel: KernelCounters
    work: UnitWork
    stalls: Stalls | None
    queued: Range
    sides: frozenset[Cause]
    bound_of_any: float
    waits: tuple[Stalls, KernelRoofline | None] | None
    in_tf32: Range

    @property
    def units(self) -> tuple[Leaf, ...]:
        """Units as busy as they are over the whole time; of L1's level a page may say how busy it is beside its SM."""
        if occupancy_of(self.kernel).sm_idle is not None or OF_L1 + ELAPSED in self.kernel.values:
            return self.work.units
        return tuple(leaf for leaf in self.work.units if leaf.name != OF_L1) or self.work.units

    @property
    def missing(self) -> list[Leaf]:
        """Units that were not measured and may be busier than all that were, each as busy as it may be."""
        unsure = (leaf for leaf in self.work.units if leaf not in self.units)
        busiest = max(used(leaf) for leaf in self.units)
        return [leaf for leaf in (*unsure, *missing_units(self.kernel)) if used(leaf) > busiest]

    @property
    def copies_ahead(self) -> tuple[bool, ...]:
        """Whether asynchronous copies bring what it reads: both where nobody counted them."""
        is_new = (self.kernel.compute_capability or (0, 0)) >= HOPPER
        counted = COPIES if is_new else COPIES[:1]
        return (self.work.waste.copies_ahead,) if all(name in self.kernel.values for name in counted) else (False, True)

    def of(self, reasons: frozenset[str]) -> Range:
        """The share of the waiting that these reasons are."""
        if self.stalls is None or not tells_reasons(self.kernel):
            return ANY
        share, beside = self.stalls.of(reasons), _SAMPLED if self.stalls.is_sampled else 0.0
        return max(0.0, share - beside), min(1.0, share + beside)

    @property
    def without_blocks(self) -> Range:
        """The share of the time in which an SM has no block; a grid of fewer blocks than SMs leaves some without."""
        occupancy = occupancy_of(self.kernel)
        if occupancy.sm_idle is not None:
            return occupancy.sm_idle, occupancy.sm_idle
        return max(0.0, 1 - self.kernel.blocks / (occupancy.sm_count or inf)) if occupancy.sm_count else 0.0, 1.0

    @property
    def empty_places(self) -> Range:
        """The share of an SM's places for warps that are empty; no more are there than the launch allows."""
        occupancy = occupancy_of(self.kernel)
        if occupancy.achieved is not None:
            return max(0.0, 1 - occupancy.achieved), max(0.0, 1 - occupancy.achieved)
        return max(0.0, 1 - (occupancy.theoretical or 1.0) - _UNFILLED), 1.0

    def served_by(self, leaf: Leaf) -> tuple[Leaf, ...]:
        """What that unit may work for: barriers, or constants and branches, where nobody counted who waits at those."""
        is_known = not leaf.is_of_barriers or waits_at_barriers(self.kernel) is not None
        return (leaf,) if is_known else (leaf, replace(leaf, resource=Resource.CONTROL))

    @property
    def is_open(self) -> bool:
        """Whether anything but its waste was not collected."""
        ends = (self.of(FULL), self.without_blocks, self.empty_places, self.queued, self.in_tf32)
        is_unknown = any(low < high for low, high in ends)
        is_unknown = is_unknown or len(self.served_by(self.work.top)) > 1
        return is_unknown or bool(self.missing) or len(self.copies_ahead) > 1


class _Top(Record):
    """A unit that may be the busiest, how busy it is, and where one of its slices is, how busy all are on average."""

    leaf: Leaf
    low: float
    high: float
    even: float | None = None


def possible(ends: Ends, boxes: list[Box]) -> Possible:
    """All that these ends and wastes allow."""
    limiters: set[Cause] = set()
    smallest, largest, bounds = dict.fromkeys(Cause, 1.0), dict.fromkeys(Cause, 0.0), dict.fromkeys(Cause, 1.0)
    for box in boxes:
        ceilings = {cause: _ceilings(ends, box, cause) for cause in Cause}
        for top in _tops(ends, box):
            shares = _shares(ends, box, top)
            limiters |= _limiters(ends, top, shares, ceilings)
            for cause, (low, high) in shares.items():
                smallest[cause], largest[cause] = min(smallest[cause], low), max(largest[cause], high)
                bounds[cause] = max(bounds[cause], ceilings[cause][1] if high > 0 else 1.0)
    return Possible(frozenset(limiters), smallest, largest, bounds)


def _tops(ends: Ends, box: Box) -> Iterator[_Top]:
    visible = [leaf for leaf in ends.units if leaf.resource is not Resource.HIDDEN] or list(ends.units)
    full = [leaf for leaf in visible if not leaf.is_of_barriers and used(leaf) >= FAR_FROM_FULL]
    plain = max(visible, key=used)
    tops = {max(full, key=used) if ahead and full else plain for ahead in ends.copies_ahead}
    least, most = (max(one.atomic_requests for one in some) for some in ((box.least,), (box.least, box.most)))
    is_surely_hot = False
    for leaf in (leaf for leaf in (*visible, *missing_units(ends.kernel)) if leaf.resource is Resource.L2):
        is_known = f"{leaf.name}.max.pct_of_peak_sustained_elapsed" in ends.kernel.values
        hottest = leaf.hottest if is_known or used(plain) >= FAR_FROM_FULL else 1.0
        if hottest * most > used(plain):
            yield _Top(leaf, max(leaf.hottest if is_known else 0.0, used(plain)), hottest, leaf.busy)
            is_surely_hot |= leaf.hottest * least > used(plain)
    if not is_surely_hot:
        yield from (_Top(one, used(one), used(one)) for leaf in tops for one in ends.served_by(leaf))
    yield from (_Top(one, used(plain), used(leaf)) for leaf in ends.missing for one in ends.served_by(leaf))


def _shares(ends: Ends, box: Box, top: _Top) -> dict[Cause, Range]:
    """Every cause's share of the time, between its ends."""
    resource = top.leaf.resource
    parts, left = _split({cause: _wasted(box, top, cause) for cause in BUSY_WASTES})
    if resource is Resource.L1:
        left = min(left[0], 1 - box.repeated), min(left[1], 1 - box.repeated)
    shares = {cause: _times((top.low, top.high), parts.get(cause, (0.0, 0.0))) for cause in Cause}
    works = _works(ends, top)
    work = _times((top.low, top.high), left)
    for cause in works:
        shares[cause] = _plus(shares[cause], work if len(works) == 1 else (0.0, work[1]))
    idle, blocks = (1 - top.high, 1 - top.low), ends.without_blocks
    shares[Cause.OCCUPANCY] = _plus(shares[Cause.OCCUPANCY], (min(idle[0], blocks[0]), min(idle[1], blocks[1])))
    waiting = max(0.0, idle[0] - blocks[1]), max(0.0, idle[1] - blocks[0])
    parts, left = _split(_lengthened(ends, box))
    queue = _times(ends.of(FOR_LOADS), ends.queued) if top.low < FAR_FROM_FULL else (0.0, 0.0)
    parts[Cause.MEMORY] = _times(left, queue)
    left = _times(left, (1 - queue[1], 1 - queue[0]))
    hidden = [ends.of(HIDDEN_BUT_LOADS if ahead else HIDDEN_BY_WARPS) for ahead in ends.copies_ahead]
    more = _times((min(low for low, _ in hidden), max(high for _, high in hidden)), ends.empty_places)
    parts[Cause.OCCUPANCY] = _times(left, more)
    parts[Cause.LATENCY] = _times(left, (1 - more[1], 1 - more[0]))
    for cause, part in parts.items():
        shares[cause] = _plus(shares[cause], _times(waiting, part))
    return shares


_APART: Final = {Cause.REGISTER_SPILLS, Cause.ATOMICS, Cause.BANK_CONFLICTS, Cause.UNCOALESCED}  # no pass is of two


def _split(parts: Mapping[Cause, Range]) -> tuple[dict[Cause, Range], Range]:
    """Parts of one whole that take theirs in turn, and what is left of it. Accesses of different kinds share nothing;
    lanes that are off may be those of any."""
    low = high = 0.0  # taken at least, at most
    taken: dict[Cause, Range] = {}
    for cause, (least, most) in parts.items():
        room = 1 - (low if cause in _APART else high)
        taken[cause] = min(least, max(0.0, room)), min(most, max(0.0, 1 - low))
        low, high = min(1.0, low + taken[cause][0]), min(1.0, high + most)
    return taken, (1 - high, 1 - low)


def _wasted(box: Box, top: _Top, cause: Cause) -> Range:
    tells_ways = None not in (box.least.access.used_of_loads, box.least.access.used_of_stores)
    least, most = _wasted_of(box.least, top, cause, top.low), _wasted_of(box.most, top, cause, top.high)
    if cause is Cause.UNCOALESCED and not tells_ways:  # whether loads or stores, which way is full
        least = box.least.of(cause, top.leaf.resource)
    return min(least, most), max(least, most)


def _wasted_of(waste: Waste, top: _Top, cause: Cause, busy: float) -> float:
    """The part of the unit's busy time that this cause wastes, as `shares` has it."""
    wasted, leaf = waste.of(cause, top.leaf.resource), top.leaf
    if cause is Cause.ATOMICS and top.even is not None and busy > top.even:
        return 1 - (1 - wasted) * top.even / busy
    if cause is Cause.UNCOALESCED and leaf.resource is Resource.L2 and wasted and TAGS not in leaf.name:
        return max(wasted, 1 - kept_when_coalesced(leaf, waste))
    return wasted


def _works(ends: Ends, top: _Top) -> frozenset[Cause]:
    """What the necessary work of that unit may be called."""
    resource = top.leaf.resource
    if top.leaf.is_of_barriers:
        return frozenset({Cause.LATENCY})
    if resource in MEMORY:
        return _works_of_l1(ends, top) if resource is Resource.L1 else frozenset({Cause.MEMORY})
    if resource not in (Resource.ISSUE, Resource.CONTROL):
        return frozenset({Cause.COMPUTE})
    at_barriers = max((used(leaf) for leaf in (*ends.units, *ends.missing) if leaf.is_of_barriers), default=0.0)
    if at_barriers >= FAR_FROM_FULL and (ends.of(FULL) == ANY or ends.stalls is None or ends.stalls.is_at_barriers):
        return ends.sides | {Cause.LATENCY}
    return ends.sides


def _works_of_l1(ends: Ends, top: _Top) -> frozenset[Cause]:
    """Of L1 far from full it may be that warps wait for loads and not for it: its queue is empty."""
    full, loads = ends.of(QUEUES), ends.of(LOAD_STALLS)
    if top.low >= FAR_FROM_FULL or full[0] >= NO_QUEUE or loads[1] < MOSTLY or ends.queued[0] > 0:
        return frozenset({Cause.MEMORY})
    is_sure = top.high < FAR_FROM_FULL and full[1] < NO_QUEUE and loads[0] >= MOSTLY and ends.queued[1] == 0
    return frozenset({Cause.LATENCY} if is_sure else {Cause.LATENCY, Cause.MEMORY})


def _lengthened(ends: Ends, box: Box) -> dict[Cause, Range]:
    """Shares of the waiting time that a kind of waste lengthens, as `shares` has them."""
    loads, shared, fences, full = (ends.of(reasons) for reasons in (LOAD_STALLS, SHARED_STALLS, FENCES, FULL))

    def of_l1(cause: Cause) -> Range:
        return box.least.of(cause, Resource.L1), box.most.of(cause, Resource.L1)

    least, most = box.least, box.most
    writes = max(0.0, least.atomic_writes - most.atomic_requests), max(0.0, most.atomic_writes - least.atomic_requests)
    atomics = _plus(_times(loads, (atomic_waits(least), atomic_waits(most))), _times(fences, writes))
    return {
        Cause.REGISTER_SPILLS: _times(loads, of_l1(Cause.REGISTER_SPILLS)),
        Cause.ATOMICS: _plus(atomics, _times(shared, of_l1(Cause.ATOMICS))),
        Cause.BANK_CONFLICTS: _times(shared, of_l1(Cause.BANK_CONFLICTS)),
        Cause.UNCOALESCED: _times(loads, of_l1(Cause.UNCOALESCED)),
        Cause.DIVERGENCE: _times((1 - full[1], 1 - full[0]), (least.idle_lanes, most.idle_lanes)),
    }


def _ceilings(ends: Ends, box: Box, cause: Cause) -> Range:
    """The largest speedup without the cause, between its ends: as `limiter` has it."""
    units, of_any = ends.units, ends.bound_of_any
    least = bound_without(cause, (*units, *ends.missing), box.least)
    most = bound_without(cause, units, box.most)
    if cause is Cause.OCCUPANCY:
        least, most = min(least, of_any), min(most, of_any)
    if cause is Cause.LATENCY:
        told = ends.waits and bound_of_fewer_waits(units, box.most, ends.work.top, *ends.waits)
        fewer = bound_of_any_waits(units, box.most) if told is None else told
        most = max(bound_without(cause, units, box.told), min(max(most, fewer), of_any))
    return min(least, most), max(most, ends.in_tf32[1]) if cause in PRODUCT_WORK else most


def _limiters(ends: Ends, top: _Top, shares: Mapping[Cause, Range], ceilings: Mapping[Cause, Range]) -> set[Cause]:
    """Causes that may save most: necessary work by its share; last, where its unit may be half busy only."""
    saved = {
        cause: share
        if cause in PRODUCT_WORK
        else (min(share[0], 1 - 1 / ceilings[cause][0]), min(share[1], 1 - 1 / ceilings[cause][1]))
        for cause, share in shares.items()
    }
    may_queue = top.leaf.resource is Resource.L1 and ends.of(QUEUES)[1] >= NO_QUEUE
    queues = top.leaf.resource is Resource.L1 and ends.of(QUEUES)[0] >= NO_QUEUE
    surely, maybe = (full_from(for_code) for for_code in ends.of(FOR_CODE))
    may_be_half = top.low < maybe and not queues and ends.queued[0] == 0 and not is_fp32_product(ends.kernel)
    is_half = may_be_half and top.high < surely and not may_queue and ends.queued[1] == 0
    found: set[Cause] = set()
    if not is_half:
        found |= _largest(saved)
    if may_be_half:
        others = {cause: ends for cause, ends in saved.items() if cause not in PRODUCT_WORK}
        found |= _largest(others)
        if all(shares[cause][0] <= 0 for cause in others):
            found |= _largest({cause: saved[cause] for cause in PRODUCT_WORK})
    return found


def _largest(saved: Mapping[Cause, Range]) -> set[Cause]:
    floor = max(low for low, _ in saved.values())
    return {cause for cause, (_, high) in saved.items() if high > 0 and high >= floor - _EVEN}


def _times(one: Range, other: Range) -> Range:
    return one[0] * other[0], one[1] * other[1]


def _plus(one: Range, other: Range) -> Range:
    return min(1.0, one[0] + other[0]), min(1.0, one[1] + other[1])
