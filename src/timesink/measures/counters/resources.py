"""The units that a kernel keeps busy, by its counters: the leaves of the profiler's breakdown, and what a page lacks.

*Leaves* are the units of the profiler's speed-of-light breakdown. `sm__throughput` is the maximum over arithmetic pipes
*and* load-store, so it calls an L1-bound kernel compute-bound; the report lists what it is made of, and those
constituents are the leaves.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

from timesink.knowledge.metric_names import patterns, units_of
from timesink.measures.counters import ACTIVE, ELAPSED, KernelCounters, occupancy_of
from timesink.records import Record


class Resource(StrEnum):
    """The part of the GPU that a leaf belongs to."""

    DRAM = "dram"
    L2 = "l2"
    L1 = "l1"
    ISSUE = "issue"
    TENSOR = "tensor"
    FP64 = "fp64"
    FMA = "fma"
    ALU = "alu"
    XU = "xu"
    CONTROL = "control"
    HIDDEN = "hidden"


MEMORY = frozenset({Resource.DRAM, Resource.L2, Resource.L1, Resource.HIDDEN})
ARITHMETIC = frozenset({Resource.TENSOR, Resource.FP64, Resource.FMA, Resource.ALU, Resource.XU})

# The first pattern that matches decides.
_RESOURCES = tuple((pattern, Resource(key)) for key, pattern in patterns.RESOURCES.items())
_BARRIERS = "pipe_adu"
_SUM_OF_OTHERS = "sm__pipe_shared_cycles_active"  # the fp64 and tensor pipes together: both are leaves themselves
# Each is the share of the busiest unit of its list; a list ends where the other begins, but for what both hold.
SUMMARIES = ("sm__throughput", "gpu__compute_memory_throughput")
BREAKDOWNS = tuple(f"breakdown:{top}{ELAPSED}" for top in SUMMARIES)
OF_SM = ("sm__", "idc__")
_APART = 1.1  # times its busiest unit: 0.99 to 1.00 of it on 8.0 and 9.0, 1.93 to 2.00 times on 7.5
_EXACT = frozenset({(7, 0), (8, 0), (9, 0)})  # chips of which L1's listed units come near its own level
_LAST_ASKED = 16  # launches: what explains one asks for its units again and again
_ROUNDING = 0.0002  # a page printed with two digits of percent


class Leaf(Record):
    """One unit: its counter's base name, its resource, and how busy it was on average and at its busiest instance.

    Shares are of the unit's peak over the kernel's elapsed time. `hottest` is that of the busiest instance (one of
    the L2 slices, one of the SMs), equal to `busy` where the report does not say.
    """

    name: str
    resource: Resource
    busy: float
    hottest: float

    @property
    def is_of_barriers(self) -> bool:
        """Whether it is the unit that executes barriers, and not known to serve others: fewer of them, less of it."""
        return _BARRIERS in self.name and self.resource is Resource.L1


@lru_cache(maxsize=_LAST_ASKED)
def leaves(kernel: KernelCounters) -> tuple[Leaf, ...]:
    """The leaves that were measured, busiest first; ties by name. Where a page leaves them out, its throughputs. L1's
    own level is a floor of its units: where none comes near it, their stated peak is not this chip's."""
    found = [*_throughputs(kernel)] if lacks_units(kernel) else [*_leaves(kernel)]
    found += [] if lacks_units(kernel) else _level_of_l1(kernel, found)
    by_name = {leaf.name: leaf for leaf in found}
    return tuple(sorted(by_name.values(), key=lambda leaf: (-leaf.busy, leaf.name)))


def is_complete(kernel: KernelCounters) -> bool:
    """Whether its busiest unit is among the leaves: the report lists them, or they reach the profiler's summaries."""
    return all(name in kernel.texts for name in BREAKDOWNS) or _reaches_summaries(kernel) is True


@lru_cache(maxsize=_LAST_ASKED)
def lacks_units(kernel: KernelCounters) -> bool:
    """Whether a page holds throughputs of whole levels, but not of the unit that is busiest in them."""
    if any(name in kernel.texts for name in BREAKDOWNS):
        return False
    reaches = _reaches_summaries(kernel)
    if reaches is not None:
        return not reaches
    levels = (throughput_of(kernel, level) or 0.0 for level in _OF_LEVEL)
    return max(levels) > max((leaf.busy for leaf in _leaves(kernel)), default=-1.0) + _ROUNDING


# What the speed-of-light section, or a choice of metrics, says of a level of memory.
_OF_LEVEL = {
    Resource.DRAM: ("gpu__dram_throughput", "dram__throughput"),
    Resource.L2: ("lts__throughput",),
    Resource.L1: ("l1tex__throughput",),
}
OF_L1 = _OF_LEVEL[Resource.L1][0]


def throughput_of(kernel: KernelCounters, level: Resource) -> float | None:
    """How busy the level's busiest unit is by the profiler's own percentage of its peak; None where it gives none."""
    busy = kernel.first(*(name + part for name in _OF_LEVEL[level] for part in (ELAPSED, ACTIVE)))
    if busy is None and level is Resource.DRAM:
        busy = kernel.total(*_ONE_WAY)
    return None if busy is None else min(1.0, busy / 100)


_ONE_WAY = tuple(f"dram__bytes_{way}.sum.pct_of_peak_sustained_elapsed" for way in ("read", "write"))


def counts_one_way(kernel: KernelCounters) -> bool:
    """Whether of DRAM's traffic only reads or only writes were counted: it is at least so busy."""
    has_level = any(name + part in kernel.values for name in _OF_LEVEL[Resource.DRAM] for part in (ACTIVE, ELAPSED))
    return not has_level and sum(name in kernel.values for name in _ONE_WAY) == 1


def _level_of_l1(kernel: KernelCounters, listed: list[Leaf]) -> Iterator[Leaf]:
    """L1 as busy as the profiler says, over the whole time, where that is a tenth more than its busiest listed unit,
    and more than any other unit.

    Compute capability 7.5 moves 64 bytes a cycle, and so a pass takes two: its pipe is never more than half busy.
    (L2's level has no such say: on Hopper it counts fills from DRAM too, up to twice what the listed units do.)
    """
    level, idle = throughput_of(kernel, Resource.L1), occupancy_of(kernel).sm_idle
    of_l1 = max((leaf.busy for leaf in listed if leaf.resource is Resource.L1), default=None)
    if level is None or of_l1 is None or kernel.compute_capability in _EXACT:
        return
    is_elapsed = OF_L1 + ELAPSED in kernel.values
    busy = level if is_elapsed else level * (1 - (idle or 0.0))
    if busy > max(_APART * of_l1, *(leaf.busy for leaf in listed)):
        yield Leaf(OF_L1, Resource.L1, busy, busy)


def _beyond_summary(kernel: KernelCounters, level: float, memory: float | None) -> float | None:
    """How busy L1 is over the whole time where that is a tenth more than the summary of all memory units, as on chips
    whose pipe of L1 is half as wide as counted; None elsewhere."""
    idle = occupancy_of(kernel).sm_idle
    if memory is None or idle is None or kernel.compute_capability in _EXACT:
        return None
    busy = level if OF_L1 + ELAPSED in kernel.values else level * (1 - idle)
    return busy if busy > _APART * memory else None


def _throughputs(kernel: KernelCounters) -> Iterator[Leaf]:
    """Levels of memory, and the SM, as busy as their busiest unit. That of L1 counts the time in which an SM was active
    only; so it is at most what the summary of all memory units says, but where that lacks what fills L1. What that says
    beyond them has no name."""
    sm, memory = (kernel.share(name) for name in SUMMARIES)
    levels = {level: busy for level in _OF_LEVEL if (busy := throughput_of(kernel, level)) is not None}
    for level, busy in levels.items():
        over = _beyond_summary(kernel, busy, memory) if level is Resource.L1 else None
        least = over or (busy if memory is None else min(busy, memory))
        yield Leaf(_OF_LEVEL[level][0], level, least, least)
    if memory is not None and memory > max(levels.values(), default=0.0) + _ROUNDING:
        yield Leaf(SUMMARIES[1], Resource.HIDDEN, memory, memory)
    if sm is not None:
        yield Leaf(SUMMARIES[0], Resource.ISSUE, sm, sm)


def _reaches_summaries(kernel: KernelCounters) -> bool | None:
    """Whether on either side the busiest leaf is as busy as the summary says; None where no summary was collected."""
    summaries = [kernel.share(name) for name in SUMMARIES]
    if all(summary is None for summary in summaries):
        return None
    busiest: dict[bool, float] = {}
    for name in units_of(kernel.compute_capability):
        side = name.startswith(OF_SM)
        busiest[side] = max(busiest.get(side, -1.0), -1.0 if (busy := kernel.share(name)) is None else busy)
    return all(
        summary is None or busiest[side] >= summary - _ROUNDING
        for side, summary in zip((True, False), summaries, strict=True)
    )


def _leaves(kernel: KernelCounters) -> Iterator[Leaf]:
    """The units of the report's own list, or of its chip's where a page carries none."""
    listed = [name for top in BREAKDOWNS for name in kernel.texts.get(top, "").split(",") if name]
    for name in [name.removesuffix(ELAPSED) for name in listed] or units_of(kernel.compute_capability):
        busy, resource = kernel.share(name), _resource_in(kernel, name)
        if busy is not None and resource is not None and name != _SUM_OF_OTHERS:
            hottest = kernel.get(f"{name}.max.pct_of_peak_sustained_elapsed")
            yield Leaf(name, resource, busy, busy if hottest is None else max(busy, hottest / 100))


OF_WAITS = "issue_stalled"  # in the names of all counts of what warps wait for
_BEYOND_SM = (Resource.DRAM, Resource.L2)
_LIMITS_ALONE = 0.75  # of its peak: so busy a unit limits a kernel, whatever memory does
_HALVED = 2.0  # on others its level is at most so many times as busy as the busiest of them


def missing_units(kernel: KernelCounters) -> Iterator[Leaf]:
    """Units of the report's list, or of its chip, that were not measured, each as busy as it may be: as the summary of
    its side says, or always. Without its own level, L1 as busy as that may be on its chip. Where neither list nor
    summary says that there are others, memory that nobody looked at."""
    if not states_units(kernel):
        yield from _unmeasured_memory(kernel)
        return
    listed = [name for top in BREAKDOWNS for name in kernel.texts.get(top, "").split(",") if name]
    most = {name.startswith(OF_SM): kernel.share(name) for name in SUMMARIES}
    for name in [name.removesuffix(ELAPSED) for name in listed] or units_of(kernel.compute_capability):
        resource = _resource_in(kernel, name)
        if resource is not None and name != _SUM_OF_OTHERS and kernel.share(name) is None:
            summary = most[name.startswith(OF_SM)]
            busy = 1.0 if summary is None else summary
            yield Leaf(name, resource, busy, busy)
    of_l1 = max((leaf.busy for leaf in leaves(kernel) if leaf.resource is Resource.L1), default=0.0)
    if throughput_of(kernel, Resource.L1) is None and kernel.compute_capability not in _EXACT:
        yield Leaf(OF_L1, Resource.L1, min(1.0, _HALVED * of_l1), 1.0)


def _unmeasured_memory(kernel: KernelCounters) -> Iterator[Leaf]:
    """DRAM, busy all the time, where neither it nor L2 was measured, nor what warps wait for, and no unit is full."""
    is_measured = any(leaf.resource in _BEYOND_SM or leaf.busy >= _LIMITS_ALONE for leaf in leaves(kernel))
    if not is_measured and not any(OF_WAITS in name for name in kernel.values):
        yield Leaf(_OF_LEVEL[Resource.DRAM][0], Resource.DRAM, 1.0, 1.0)


def states_units(kernel: KernelCounters) -> bool:
    """Whether a launch says what its units are, or how busy the busiest is: then it is known which are missing."""
    return any(name in kernel.texts for name in BREAKDOWNS) or any(kernel.share(name) is not None for name in SUMMARIES)


def _resource_in(kernel: KernelCounters, leaf: str) -> Resource | None:
    """The resource of a leaf in this launch: what executes barriers also loads constants and branches."""
    return Resource.CONTROL if _BARRIERS in leaf and waits_at_barriers(kernel) is False else resource_of(leaf)


def waits_at_barriers(kernel: KernelCounters) -> bool | None:
    """Whether warps ever wait at a barrier; None where that was not counted."""
    waited = kernel.get("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio")
    return None if waited is None else waited > 0


def resource_of(leaf: str) -> Resource | None:
    """The resource a leaf belongs to; None for a unit timesink does not know."""
    return next((resource for pattern, resource in _RESOURCES if pattern.search(leaf)), None)
