"""Counters of single kernels from a kernel profiler, one view per kernel, and what they say directly: busy units,
occupancy; of waiting warps `stalls` tells.

A counter was measured, failed (its pass did), or was not asked for. Counter names are those of Nsight Compute.

*Leaves* are the units of the profiler's speed-of-light breakdown. `sm__throughput` is the maximum over arithmetic pipes
*and* load-store, so it calls an L1-bound kernel compute-bound; the report lists what it is made of, and those
constituents are the leaves. *Occupancy* is how full a kernel keeps the GPU with warps, and what keeps it from more.
"""

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from math import ceil
from typing import Any

import polars as pl

from timesink.knowledge.metric_names import patterns, units_of
from timesink.knowledge.programs import ProgramKind
from timesink.measures.timeline.known import program_kind
from timesink.model.tables import DEVICES, KERNEL_METRICS, KERNEL_PROFILES, KERNEL_RULES
from timesink.model.trace import Trace, remembered
from timesink.records import Record

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
ACTIVE = ".avg.pct_of_peak_sustained_active"


class KernelCounters(Record, eq=False):
    """One profiled launch and its counters; `profile` is its number in the report.

    `values` holds finite numbers only; a name in `failed` was asked for and its pass failed; any other name was not
    collected. `duration_ns` is the time while profiled, at the profiler's clock, None where it failed or is absent.
    `messages` are those of the profiler's own rules, `program` is what kind of program launched it.
    """

    rank: int
    profile: int
    name: str
    function: str
    gpu: str
    compute_capability: tuple[int, int] | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    duration_ns: float | None
    values: Mapping[str, float]
    texts: Mapping[str, str]
    failed: frozenset[str]
    messages: tuple[str, ...] = ()
    program: ProgramKind = ProgramKind.NATIVE

    def get(self, name: str) -> float | None:
        """The counter's value, None where it failed or was not collected."""
        return self.values.get(name)

    def first(self, *names: str) -> float | None:
        """The first of these counters that was collected: names differ between chips and versions."""
        return next((self.values[name] for name in names if name in self.values), None)

    def total(self, *names: str) -> float | None:
        """The sum of those of these counters that were collected, None where none was."""
        collected = [self.values[name] for name in names if name in self.values]
        return sum(collected) if collected else None

    def whole(self, *names: str) -> float | None:
        """The sum of these counters, None where one was not collected: then it is a part only."""
        return sum(self.values[name] for name in names) if self.values.keys() >= {*names} else None

    def share(self, name: str) -> float | None:
        """A percentage counter as a share of 1; `name` without its ``.avg.pct_of_peak_sustained_elapsed``."""
        value = self.first(name + ELAPSED, name)
        return None if value is None else value / 100

    @property
    def is_failed(self) -> bool:
        """Whether the launch itself could not be measured: the profiler has no time for it."""
        return self.duration_ns is None and bool(self.failed)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)


@remembered
def kernel_counters(trace: Trace) -> tuple[KernelCounters, ...]:
    """Every profiled launch with its counters, in report order."""
    profiles = trace.get(KERNEL_PROFILES)
    devices = {(row["rank"], row["device"]): row for row in trace.get(DEVICES).iter_rows(named=True)}
    grouped = _by_profile(trace.get(KERNEL_METRICS))
    messages: dict[tuple[int, int], list[str]] = {}
    for rank, profile, message in trace.get(KERNEL_RULES).select("rank", "profile", "message").iter_rows():
        messages.setdefault((rank, profile), []).append(message or "")
    program = program_kind(trace)
    return tuple(
        _one(
            row,
            devices.get((row["rank"], row["device"] or 0), {}),
            grouped.get((row["rank"], row["profile"]), _NOTHING),
            messages=tuple(messages.get((row["rank"], row["profile"]), ())),
            program=program,
        )
        for row in profiles.iter_rows(named=True)
    )


_Grouped = tuple[dict[str, float], dict[str, str], frozenset[str]]
_NOTHING: _Grouped = ({}, {}, frozenset())


def _by_profile(metrics: pl.DataFrame) -> dict[tuple[int, int], _Grouped]:
    """Numbers, texts and failed names of every launch."""
    keys = metrics.select("rank", "profile").unique(maintain_order=True).rows()
    numbers = _grouped(metrics.filter(pl.col("value").is_not_nan()), "value")
    texts = _grouped(metrics.filter(pl.col("text").is_not_null()), "text")
    failed = _grouped(metrics.filter(pl.col("value").is_nan()), "value")
    return {key: (numbers.get(key, {}), texts.get(key, {}), frozenset(failed.get(key, ()))) for key in keys}


def _grouped(rows: pl.DataFrame, column: str) -> dict[tuple[int, int], dict[str, Any]]:
    """Name to value of each launch. In a report the rows of a launch are adjacent; elsewhere they are sorted first."""
    runs = rows.select(pl.struct("rank", "profile").rle()).unnest("rank") if rows.height else None
    if runs is None:
        return {}
    if runs["value"].n_unique() < runs.height:
        return _grouped(rows.sort("rank", "profile", maintain_order=True), column)
    names = rows["metric"].cast(pl.String).to_list()
    cells = rows[column]
    values = cells.to_list() if cells.dtype == pl.Float64 else cells.cast(pl.String).to_list()
    grouped, start = {}, 0
    for length, key in runs.iter_rows():
        end = start + length
        grouped[key["rank"], key["profile"]] = dict(zip(names[start:end], values[start:end], strict=True))
        start = end
    return grouped


def _one(row: Mapping[str, object], device: Mapping[str, object], grouped: _Grouped, **more: Any) -> KernelCounters:
    values, texts, failed = grouped
    major, minor = row["compute_major"], row["compute_minor"]
    duration = row["duration_ns"]
    return KernelCounters(
        rank=int(str(row["rank"])),
        profile=int(str(row["profile"])),
        name=str(row["name"]),
        function=str(row["function"] or row["name"]),
        gpu=str(row["gpu"] or device.get("name") or ""),
        compute_capability=(int(str(major)), int(str(minor))) if major is not None and minor is not None else None,
        grid=_sizes(row, "grid"),
        block=_sizes(row, "block"),
        duration_ns=duration if isinstance(duration, float) and math.isfinite(duration) and duration > 0 else None,
        values=values,
        texts=texts,
        failed=failed,
        **more,
    )


def _sizes(row: Mapping[str, object], kind: str) -> tuple[int, int, int]:
    x, y, z = (int(str(row[f"{kind}_{axis}"] or 0)) for axis in "xyz")
    return x, y, z


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


_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "the block's size": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}


_FULL = 99.5  # percent: a page prints two digits


class Occupancy(Record):
    """Warps resident per SM as shares of the most an SM holds, and how the grid fills the GPU.

    `theoretical` is what registers, shared memory and block size allow; `limited_by` names all that allow the fewest
    blocks, none where an SM can be full. `achieved` is the mean while an SM was active. `sm_idle` is the mean share of
    the kernel's time in which an SM had no block: a grid too small, a last wave, blocks of unequal length, and the
    launch itself.
    `waves` is the number of times the grid fills the GPU. None: not collected.
    """

    theoretical: float | None
    achieved: float | None
    limited_by: tuple[str, ...]
    waves: float | None
    sm_count: float | None
    sm_idle: float | None

    @property
    def is_unequal(self) -> bool:
        """Whether more warp slots are empty than what the launch allows leaves: warps end before others of theirs."""
        if self.theoretical is None or self.achieved is None:
            return False
        return self.theoretical - self.achieved > 1 - self.theoretical

    @property
    def tail(self) -> float | None:
        """The share of whole waves that the last one leaves empty, were all blocks equally long."""
        return 1 - self.waves / ceil(self.waves) if self.waves else None


def occupancy_of(kernel: KernelCounters) -> Occupancy:
    """The occupancy of one kernel."""
    limits = {word: limit for word, name in _LIMITS.items() if (limit := kernel.get(name)) is not None}
    fewest = min(limits.values(), default=None)
    theoretical = kernel.get("sm__maximum_warps_per_active_cycle_pct")
    by_warps = limits.get("the block's size")
    is_full = by_warps == fewest if theoretical is None else theoretical >= _FULL
    achieved = kernel.get("sm__warps_active.avg.pct_of_peak_sustained_active")
    active = kernel.get("sm__cycles_active.avg")
    elapsed = kernel.first("sm__cycles_elapsed.max", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max")
    return Occupancy(
        theoretical=None if theoretical is None else theoretical / 100,
        achieved=None if achieved is None else achieved / 100,
        limited_by=() if is_full else tuple(word for word, limit in limits.items() if limit == fewest),
        waves=kernel.get("launch__waves_per_multiprocessor"),
        sm_count=kernel.first("launch__sm_count", "device__attribute_multiprocessor_count"),
        sm_idle=None if active is None or not elapsed else min(1.0, max(0.0, 1 - active / elapsed)),
    )
