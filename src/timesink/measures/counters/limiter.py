"""What a profiled kernel's time goes to, by cause, and how much faster it could be without each.

The busiest unit is busy for a share `u` of the time: that share is waste of a known cause or necessary work. For the
rest even the busiest unit waits: for blocks, for warps, for each other. Every nanosecond gets exactly one cause, so
the shares of a kernel add up to 1, which the profiler's own estimates do not.

An example: the busiest unit, L1, is busy for 0.8 of the time, a quarter of that with bank conflicts; SMs have no block
for 0.1 of the time, and the stalls of the other 0.1 are waits that more warps would hide, at an occupancy of 0.6:

    bank conflicts 0.8 x 0.25 = 0.2   memory 0.8 - 0.2 = 0.6   occupancy 0.1 + 0.1 x (1 - 0.6) = 0.14   latency 0.06
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite

from timesink.knowledge.metric_names import NOT_KNOWN, meant_by
from timesink.measures.counters import KernelCounters, Occupancy, kernel_counters
from timesink.measures.counters.bounds import (
    FAR_FROM_FULL,
    FOR_CODE,
    FOR_LOADS,
    MOSTLY,
    PRODUCT_WORK,
    TRAFFIC,
    LoadWait,
    bound_in_tf32,
    bound_without,
    full_from,
    is_fp32_product,
    may_be_product,
    most_in_tf32,
    tells_load_wait,
    used,
)
from timesink.measures.counters.page_bounds import OF_LOCAL, told_in
from timesink.measures.counters.pages import DRAM_BUSY, Given, given_of, with_dram
from timesink.measures.counters.ranges import Ends, Possible, possible
from timesink.measures.counters.resources import (
    Leaf,
    Resource,
    counts_one_way,
    is_complete,
    lacks_units,
    leaves,
    missing_units,
    states_units,
)
from timesink.measures.counters.roofline import KernelRoofline, counts_operations
from timesink.measures.counters.shares import NO_QUEUE, issued_for, shares_of
from timesink.measures.counters.stalls import QUEUES, Stalls, tells_reasons
from timesink.measures.counters.uncounted import MOST_NEEDED, possible_wastes
from timesink.measures.counters.waste import Cause, Waste
from timesink.model.trace import Trace, remembered
from timesink.records import Record, field, replace
from timesink.units import share_text, times_text

_ASKED = 256  # launches of a page: rules and views ask in turns why each is undecided
_UNIT_ROOFS = {
    Resource.DRAM: "DRAM",
    Resource.L2: "L2",
    Resource.L1: "L1",
    Resource.TENSOR: "tensor pipe",
    Resource.FP64: "fp64 pipe",
    Resource.FMA: "fma pipe",
    Resource.ISSUE: "issue slots",
    Resource.ALU: "integer pipe",
    Resource.XU: "XU pipe",
    Resource.CONTROL: "control pipes",
    Resource.HIDDEN: "memory",
}
_FULL = "--set full"
_NAMED = 4  # causes: more than that are no answer
_MOST_TOLD = 100  # times as fast
_OF_FORMAT = 0.25  # of how busy the pipe is: the operations of a format that are not fused reach half of its peak
_OF_TRAFFIC = frozenset({Cause.MEMORY, Cause.UNCOALESCED})
_TELLS = f"to decide, profile with {_FULL} or export the raw page"


class KernelLimits(Record, eq=False):
    """One profiled kernel, explained.

    `shares` maps every cause to its share of the kernel's time; they sum to 1. `limiter` is what binds it. `bounds`
    holds for each the largest possible speedup if that cause were gone and nothing else changed, limited by the next
    unit. `has_levels_only`: its page says how busy DRAM is, but neither what else is nor what warps wait for.
    `smallest` and `largest` are the shares that causes may have, where what was counted leaves that open; `others` may
    then limit it as well, and `lead` is what all that was counted says.
    `queued_loads` is the wait of its loads, where they queue for memory though no unit is 60 % busy.
    """

    kernel: KernelCounters
    leaves: tuple[Leaf, ...]
    is_complete: bool
    has_levels_only: bool
    shares: Mapping[Cause, float]
    bounds: Mapping[Cause, float]
    roofline: KernelRoofline | None
    occupancy: Occupancy
    stalls: Stalls | None
    waste: Waste
    top: Leaf
    queued_loads: LoadWait | None
    smallest: Mapping[Cause, float] = field(default_factory=dict)
    largest: Mapping[Cause, float] = field(default_factory=dict)
    others: tuple[Cause, ...] = ()
    lead: Cause | None = None

    @property
    def limiter(self) -> Cause:
        """The first of `ranked`: what to think of first."""
        return self.ranked[0]

    @property
    def is_half_busy(self) -> bool:
        """Whether its busiest unit is below 60 % of its peak and warps do not queue for it: then it is bound by what it
        waits for or wastes, not by that unit's work ("Kernel Profiling Guide", speed of light). Below 75 % where warps
        wait for instructions most."""
        has_queue = self.top.resource is Resource.L1 and self.stalls is not None and self.stalls.of(QUEUES) >= NO_QUEUE
        queues = has_queue or self.queued_loads is not None
        for_code = 0.0 if self.stalls is None else self.stalls.of(FOR_CODE)
        return used(self.top) < full_from(for_code) and not queues and not is_fp32_product(self.kernel)

    @property
    def roof(self) -> tuple[str, float]:
        """The roof that every page names, and the share of it that is reached: of necessary work that of the busiest
        unit; else the nearest. It is never farther than the busiest unit is from its peak."""
        unit = self._roof_of_top
        nearest = self.roofline.nearest if self.roofline is not None else None
        return unit if nearest is None or self.limiter in PRODUCT_WORK else max(unit, nearest, key=lambda roof: roof[1])

    @property
    def _roof_of_top(self) -> tuple[str, float]:
        resource, line = self.top.resource, self.roofline
        roofs = [] if line is None else [(roof.level.upper(), roof.share) for roof in line.memory]
        own = [roof for roof in roofs if roof[0] == _UNIT_ROOFS[resource]]
        if line is not None and resource in (Resource.TENSOR, Resource.FMA, Resource.FP64):
            is_tensor = resource is Resource.TENSOR
            own = [(roof.label, roof.share) for roof in line.compute if (roof.path != "cuda") is is_tensor]
        counted = [roof for roof in own if roof[1] >= _OF_FORMAT * self.top.busy]  # integers have no format
        name, share = max(counted, key=lambda roof: roof[1], default=(_UNIT_ROOFS[resource], 0.0))
        return name, max(share, self.top.busy)

    @property
    def is_roof_least(self) -> bool:
        """Whether it may be nearer to its roof: of DRAM's traffic one way was counted only."""
        return self.top.resource is Resource.DRAM and counts_one_way(self.kernel)

    @property
    def roof_text(self) -> str:
        """Where it is, in words: at 81 % of its DRAM roof."""
        name, share = self.roof
        return f"{'at least ' if self.is_roof_least else ''}at {share_text(share)} of its {name} roof"

    @property
    def roof_speedup(self) -> float | None:
        """How many times as fast it is at its roof, with the same bytes and operations; None where nothing is busy."""
        return max(1 / self.roof[1], 1.0) if self.roof[1] else None

    @property
    def bound(self) -> float | None:
        """How many times as fast it is at most without its limiter; None where no other unit is known to limit it."""
        return self.told_bound(self.limiter)

    def told_bound(self, cause: Cause) -> float | None:
        """The same without a cause. Where counters are missing, a unit that is busy for less than 1 % of the time is
        no limit: another may be."""
        bound, is_open = self.bounds[cause], self.others or not self.is_complete
        return None if not isfinite(bound) or (is_open and bound > _MOST_TOLD) else bound

    def least_share(self, cause: Cause) -> float:
        """The part of the time that surely is the cause's."""
        return self.smallest.get(cause, self.shares[cause])

    def most_share(self, cause: Cause) -> float:
        """The largest part of the time that may be the cause's: `shares` has what surely is, `bounds` the speedup
        without it, 1 / (1 - this). The same as its share where no other unit was measured."""
        bound, share = self.bounds[cause], max(self.shares[cause], self.largest.get(cause, 0.0))
        return max(share, 1 - 1 / bound) if isfinite(bound) else share

    @property
    def doubt(self) -> str:
        """What else may limit it, as counters are missing: a sentence behind another; '' where nothing may."""
        if not self.others:
            return ""
        return f". Counters are missing: {_one_of(self.others, 'other causes')} may limit it instead ({_FULL} decides)"

    @property
    def bound_of_hidden_waits(self) -> float:
        """The largest speedup while it does what it does now: its waits are hidden, none of them is saved."""
        return bound_without(Cause.LATENCY, self.leaves, self.waste)

    @property
    def ranked(self) -> tuple[Cause, ...]:
        """Causes that have a share, first that whose removal saves most: its share, but no more than its bound allows.
        Necessary work counts by its share; that of a unit that is `is_half_busy` comes last."""
        order, last = list(Cause), PRODUCT_WORK if self.is_half_busy else ()
        saved = {
            cause: share if cause in PRODUCT_WORK else min(share, 1 - 1 / self.bounds[cause])
            for cause, share in self.shares.items()
            if share > 0 or cause is self.lead
        }
        first = self.lead
        return tuple(
            sorted(saved, key=lambda cause: (cause is not first, cause in last, -saved[cause], order.index(cause)))
        )


@remembered
def kernel_limits(trace: Trace) -> tuple[KernelLimits | None, ...]:
    """Every profiled launch in report order; None where its counters failed or tell too little."""
    return tuple(limits_of(kernel) for kernel in kernel_counters(trace))


def limits_of(kernel: KernelCounters) -> KernelLimits | None:
    """The explanation of one kernel, None where `why_unexplained` says so."""
    found = _decided(kernel)
    return found if isinstance(found, KernelLimits) else None


def why_unexplained(kernel: KernelCounters) -> str:
    """Why nothing can be said of a kernel's limiter; empty where it can."""
    found = _decided(kernel)
    return found if isinstance(found, str) else ""


@lru_cache(_ASKED)
def _decided(kernel: KernelCounters) -> KernelLimits | str:
    """The one explanation of all that its counters allow, with the least that its limiter surely takes and the most
    that could be won; or why there are several, or none."""
    if kernel.is_failed:
        failed = len(kernel.failed)
        return f"{failed} {'counter is' if failed == 1 else 'counters are'} NaN (failed passes)"
    kernel = with_dram(kernel)
    has_all, has_levels = is_complete(kernel), lacks_units(kernel)
    given = [*given_of(kernel)]
    allowed = [_explained(kernel, one, has_all, has_levels) for one in given]
    if not allowed:
        none = f"no unit's throughput was collected{_misspelt(kernel)}"
        return f"{none}: to decide, collect {DRAM_BUSY}, or profile with --set full"
    is_blind = not states_units(kernel) and any(missing_units(kernel))  # nobody measured what it may wait for
    wide = _of_levels(allowed) if has_levels else _by_ends(kernel, given[0], is_blind)
    if wide is None:
        return allowed[0]
    if has_levels:
        leads = _spoken_for(kernel, wide.limiters, allowed)
    else:
        leads = frozenset(one.limiter for one, of in zip(allowed, given, strict=True) if of.is_counted)
        leads -= {Cause.LATENCY} if is_blind else set()
    if len(wide.limiters) > 1 and len(leads) != 1:
        return _undecided(wide, leaves(kernel)[0], allowed[0].waste)
    lead = min(leads or wide.limiters)
    of_lead = [
        one for one, of in zip(allowed, given, strict=True) if one.limiter is lead and (of.is_counted or has_levels)
    ]
    first = min(of_lead, key=lambda one: one.shares[lead])
    others = tuple(cause for cause in Cause if cause in wide.limiters - {lead})
    known = {cause: max(wide.bounds[cause], of) for cause, of in first.bounds.items() if isfinite(of)}
    bounds = {**wide.bounds, **known}
    return replace(first, bounds=bounds, smallest=wide.smallest, largest=wide.largest, others=others, lead=lead)


def _of_levels(allowed: list[KernelLimits]) -> Possible | None:
    """All that a page of levels allows; None where that is one explanation."""
    return None if len(allowed) == 1 else Possible(
        frozenset(one.limiter for one in allowed),
        {cause: min(one.shares[cause] for one in allowed) for cause in Cause},
        {cause: max(one.shares[cause] for one in allowed) for cause in Cause},
        {cause: max(one.bounds[cause] for one in allowed) for cause in Cause},
    )  # fmt: skip


def _by_ends(kernel: KernelCounters, counted: Given, is_blind: bool) -> Possible | None:
    """All that the counters allow that were collected; None where no other would change anything."""
    if not states_units(kernel) and not is_blind and counted.work.waste.access.wavefronts_per_request is None:
        return None
    boxes, ends = [*possible_wastes(kernel)], ends_of(kernel, counted)
    is_open = len(boxes) > 1 or boxes[0].least is not boxes[0].most or ends.is_open
    return possible(ends, boxes) if is_open else None


def ends_of(kernel: KernelCounters, counted: Given) -> Ends:
    """What is known of the launch beside its waste."""
    work, roofline, stalls = counted.work, counted.roofline, counted.stalls
    missing = [*missing_units(kernel)]
    is_between = any(leaf.is_of_barriers for leaf in missing) and stalls is not None and stalls.is_at_barriers
    has_waits = tells_reasons(kernel) and not is_between
    for_loads = stalls is not None and stalls.of(FOR_LOADS) >= MOSTLY
    side, top = counted.dram_side, work.top
    is_known = roofline is not None and roofline.is_memory_side is not None and counts_operations(kernel)
    sides = {issued_for(top, units, side) for units in (work.units, (*work.units, *missing))}
    busier = [leaf for leaf in missing if used(leaf) > used(top)]
    may_be = any(may_be_product(kernel, one, work.waste, roofline) for one in (top, *busier))
    if not is_known and (top.resource is Resource.L1 or busier or is_fp32_product(kernel)):
        in_tf32 = 1.0, most_in_tf32(kernel, roofline)
    else:
        counted_in_tf32 = bound_in_tf32(kernel, roofline) if may_be or is_fp32_product(kernel) else 1.0
        in_tf32 = counted_in_tf32, counted_in_tf32
    queue = counted.queue.queued if counted.queue is not None else 0.0
    return Ends(
        kernel=kernel,
        work=work,
        stalls=stalls,
        queued=(queue, queue) if tells_load_wait(kernel, work.units, stalls) else (0.0, 1.0),
        sides=frozenset(sides if is_known and not busier else {Cause.MEMORY, Cause.COMPUTE}),
        bound_of_any=counted.bound_of_any,
        waits=(stalls, roofline) if stalls is not None and has_waits and (is_known or not for_loads) else None,
        in_tf32=in_tf32,
    )


def _undecided(wide: Possible, top: Leaf, waste: Waste) -> str:
    unit = "SMs are" if top.resource is Resource.ISSUE else f"{_UNIT_ROOFS[top.resource]} is"
    busy = f"its {unit} {share_text(top.busy)} busy{_by_passes(top, waste)}"
    return f"it may be limited by {_one_of([cause for cause in Cause if cause in wide.limiters])} ({busy}); {_TELLS}"


def noun_of(cause: str) -> str:
    """What a cause is called as the subject of a sentence: latency, uncoalesced accesses."""
    noun = cause.removesuffix("_bound_kernel").replace("_", " ")
    return f"{noun} accesses" if noun == Cause.UNCOALESCED else noun


def either(causes: Iterable[Cause]) -> str:
    """These causes in words, of which one is meant: A, B or C."""
    *first, last = map(noun_of, causes)
    return f"{', '.join(first)} or {last}" if first else last


def _one_of(causes: Sequence[Cause], noun: str = "causes") -> str:
    return either(causes) if len(causes) <= _NAMED else f"one of {len(causes)} {noun}"


def _by_passes(top: Leaf, waste: Waste) -> str:
    """Of a busy L1 how many passes its instructions take, which is what was counted of its waste."""
    passes = waste.access.wavefronts_per_request
    if top.resource is not Resource.L1 or not passes or not top.busy:
        return ""
    as_many, few = 1 / top.busy, max(1.0, passes / MOST_NEEDED) / top.busy
    fewer = f", {times_text(few)} with {MOST_NEEDED:.0f}" if few > as_many else ""
    same = f"at most {times_text(as_many)} as fast with as many{fewer}"
    return f" by {passes:.1f} passes a load-store instruction: {same}"


def _misspelt(kernel: KernelCounters) -> str:
    """Which names of metrics were asked for that ncu does not have, and what is meant by them."""
    asked = (name for name, text in kernel.texts.items() if text == NOT_KNOWN)
    named = [f"ncu has no {name}: {meant} is meant" for name in asked if (meant := meant_by(name))]
    return f" ({'; '.join(named)})" if named else ""


def _spoken_for(kernel: KernelCounters, limiters: frozenset[Cause], allowed: list[KernelLimits]) -> frozenset[Cause]:
    """What the figures of a page of levels speak for, where others are possible only as nobody counted them.

    Local memory that ncu names speaks for itself. Where nothing is busy, no load waits longer than an idle memory
    takes: atomics do. Those leave L2 idle, or some of its slices: where it or DRAM is busy, nothing shows them. (Those
    of shared memory pass L1 as its conflicts do.) Local memory that no figure of the page counts is no more than
    possible, either.
    """
    told, at_peak = told_in(kernel.messages), [one.top.resource for one in allowed if used(one.top) >= FAR_FROM_FULL]
    if kernel.get(OF_LOCAL) or told.names_local:
        return limiters & {Cause.REGISTER_SPILLS}
    if told.waits_too_long and all(leaf.busy < TRAFFIC for leaf in leaves(kernel)):
        return limiters & {Cause.ATOMICS}
    if len(at_peak) < len(allowed):
        return frozenset()
    if not kernel.messages and set(at_peak) == {Resource.DRAM}:
        return limiters & {Cause.MEMORY}
    without = limiters - {Cause.ATOMICS, *(() if OF_LOCAL in kernel.values else (Cause.REGISTER_SPILLS,))}
    return without if without <= _OF_TRAFFIC else frozenset()


def _explained(kernel: KernelCounters, given: Given, has_all: bool, has_levels: bool) -> KernelLimits:
    """The kernel as these units, wastes and waits explain it."""
    work, stalls, roofline, occupancy = given.work, given.stalls, given.roofline, given.occupancy
    top, waste, of_any = work.top, work.waste, given.bound_of_any
    queue = given.queue if given.queue is not None and work.is_far_from_full and given.queue.queued else None
    shares = shares_of(work, occupancy, stalls, queue, given.dram_side)
    bounds = {cause: work.bound_without(cause) if share > 0 else 1.0 for cause, share in shares.items()}
    if shares[Cause.OCCUPANCY] > 0:
        bounds[Cause.OCCUPANCY] = min(bounds[Cause.OCCUPANCY], of_any)
    if shares[Cause.LATENCY] > 0:
        fewer = work.bound_of_fewer_waits(stalls, roofline)
        bounds[Cause.LATENCY] = max(bounds[Cause.LATENCY], min(fewer, of_any))
    may_be = may_be_product(kernel, top, waste, roofline)
    if is_fp32_product(kernel) or (has_levels if may_be is None else may_be):
        in_tf32 = most_in_tf32(kernel, roofline) if has_levels else bound_in_tf32(kernel, roofline)
        bounds |= {cause: max(bounds[cause], in_tf32) for cause in PRODUCT_WORK if shares[cause] > 0}
    return KernelLimits(
        kernel, work.units, has_all, has_levels, shares, bounds, roofline, occupancy, stalls, waste, top, queue
    )
