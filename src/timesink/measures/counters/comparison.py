"""Two reports of a kernel profiler, kernel by kernel, and profiled launches found again in a timeline.

Of two reports: which counters changed, and whether their times may be compared at all. In a timeline, a profiled launch
is the same function with the same grid and block.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import pairwise
from typing import Final

import polars as pl

from timesink.errors import unknown
from timesink.knowledge import ncu_texts
from timesink.knowledge.kernel_symbols import function_name, plain_name
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.roofline import roofline_of
from timesink.measures.steps.per_step import largest_per_step_ns
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.names import of_each
from timesink.model.tables import DEVICE_OPS, KERNEL_PROFILES
from timesink.model.trace import Trace, remembered
from timesink.records import Record

# Counts that depend on the program and its input only, not on clock or temperature.
EXACT = {
    "instructions": ("smsp__inst_executed.sum", "inst_executed"),
    "thread instructions": ("thread_inst_executed", "smsp__thread_inst_executed.sum"),
    "global sectors": ("memory_l2_theoretical_sectors_global",),
    "shared passes": ("memory_l1_wavefronts_shared",),
    "registers per thread": ("launch__registers_per_thread",),
    "shared memory per block": ("launch__shared_mem_per_block",),
}
_SETTINGS = ("gpu", "clock_control", "driver_version")


class Match(StrEnum):
    """How a launch and its counterpart were found to be one, or who said so."""

    CHOSEN = "as you said"
    SAME = "name and grid"
    OTHER_GRID = "name"
    OTHER_NAME = "place in the order"

    @property
    def is_proposal(self) -> bool:
        """Whether the name does not say so."""
        return self is Match.OTHER_NAME


class KernelPair(Record):
    """A launch of the earlier report and its counterpart in the later one; `match` says what they have in common.

    `counts` maps the name of each exact count that differs to (before, after).
    """

    before: KernelCounters
    after: KernelCounters
    counts: Mapping[str, tuple[float, float]]
    match: Match = Match.SAME

    @property
    def time_ratio(self) -> float | None:
        """Time after over time before; None where either is missing."""
        if self.before.duration_ns is None or self.after.duration_ns is None:
            return None
        return self.after.duration_ns / self.before.duration_ns


class Regrouping(Record):
    """Launches of the earlier report in whose place the later one has another number: fused ones, or ones split."""

    before: tuple[KernelCounters, ...]
    after: tuple[KernelCounters, ...]

    @property
    def is_fusion(self) -> bool:
        """Whether there are fewer of them now."""
        return len(self.after) < len(self.before)


class Comparison(Record):
    """Pairs in the order of the earlier report, proposals of fused and split launches, launches without a counterpart,
    and `obstacles`: what differs between the two captures so that their times say nothing (empty: times may be
    compared).
    """

    pairs: tuple[KernelPair, ...]
    regrouped: tuple[Regrouping, ...]
    only_before: tuple[KernelCounters, ...]
    only_after: tuple[KernelCounters, ...]
    obstacles: tuple[str, ...]


def compare_reports(before: Trace, after: Trace, chosen: Sequence[tuple[str, str]] = ()) -> Comparison:
    """The launches of two reports, matched.

    `chosen` comes first: launches of the first name or number are those of the second, in order. The n-th launch of a
    name and grid is that of the same name and grid; of what is left, the n-th of a name is that of the same name.
    Between two pairs that follow each other, what is left of both reports is proposed as the same work: as many on
    either side as renamed (of several those with the same grid or close names), several and one as fused or split.
    """
    earlier, later = list(kernel_counters(before)), list(kernel_counters(after))
    found: dict[int, tuple[int, Match]] = {}
    for name, other in chosen:
        both = zip(_places(earlier, name), _places(later, other), strict=False)
        taken = {to for to, _ in found.values()}
        found |= {at: (to, Match.CHOSEN) for at, to in both if at not in found and to not in taken}
    for match, key in ((Match.SAME, _name_and_grid), (Match.OTHER_GRID, _name)):
        taken = {at for at, _ in found.values()}
        places = _numbered(later, key, taken)
        for number, at in _numbered(earlier, key, set(found)).items():
            if number in places:
                found[at] = (places[number], match)
    regrouped = []
    for old, new in _gaps(len(earlier), len(later), {at: to for at, (to, _) in found.items()}):
        if len(old) == len(new):
            found |= {
                at: (to, Match.OTHER_NAME)
                for at, to in zip(old, new, strict=True)
                if len(old) == 1 or _is_alike(earlier[at], later[to])
            }
        elif len(old) != len(new) and old and new and 1 in (len(old), len(new)):
            group = Regrouping(tuple(earlier[at] for at in old), tuple(later[at] for at in new))
            regrouped += [] if _are_alternatives(group) else [group]
    pairs = [
        KernelPair(earlier[at], later[to], _changed_counts(earlier[at], later[to]), match)
        for at, (to, match) in sorted(found.items())
    ]
    seen = [*(pair.before for pair in pairs), *(one for group in regrouped for one in group.before)]
    seen_after = [*(pair.after for pair in pairs), *(one for group in regrouped for one in group.after)]
    return Comparison(
        tuple(pairs),
        tuple(regrouped),
        tuple(kernel for kernel in earlier if kernel not in seen),
        tuple(kernel for kernel in later if kernel not in seen_after),
        tuple(_obstacles(before, after)),
    )


def _places(kernels: Sequence[KernelCounters], named: str) -> list[int]:
    """Where the launches of this function are, or the one of this number. `UsageError` where there is none."""
    places = [at for at, kernel in enumerate(kernels) if named in (str(kernel.profile), kernel.function, kernel.name)]
    if not places:
        raise unknown("launch", named, sorted({kernel.function for kernel in kernels}))
    return places


def _name(kernel: KernelCounters) -> tuple[object, ...]:
    return (plain_name(kernel.name),)


def _name_and_grid(kernel: KernelCounters) -> tuple[object, ...]:
    return (*_name(kernel), kernel.grid, kernel.block)


_ALIKE = 0.6  # difflib: "as a rule of thumb, a ratio over 0.6 means close matches"


def _is_alike(one: KernelCounters, other: KernelCounters) -> bool:
    """Whether a launch may be the other renamed: the same grid and block, or names that are close."""
    is_close = SequenceMatcher(None, one.function, other.function).ratio() > _ALIKE
    return is_close or (one.grid, one.block) == (other.grid, other.block)


def _are_alternatives(group: Regrouping) -> bool:
    """Whether each launch of one side does as many operations as the one of the other: then they are versions of it, as
    the rungs of a ladder are, and no parts."""
    parts, whole = (group.before, group.after[0]) if group.is_fusion else (group.after, group.before[0])
    operations = [0.0 if line is None else line.flops or 0.0 for line in map(roofline_of, (*parts, whole))]
    return operations[-1] > 0 and min(operations[:-1]) > _SAME_WORK * operations[-1]


_SAME_WORK: Final = 0.9  # operations are counted: what differs by more is other work


def _numbered(
    kernels: Sequence[KernelCounters], key: Callable[[KernelCounters], tuple[object, ...]], taken: set[int]
) -> dict[tuple[object, ...], int]:
    """The places of launches that are not taken, by key and number among those of that key."""
    seen: Counter[tuple[object, ...]] = Counter()
    numbered = {}
    for at, kernel in enumerate(kernels):
        if at not in taken:
            one = key(kernel)
            numbered[*one, seen[one]] = at
            seen[one] += 1
    return numbered


def _gaps(before: int, after: int, pairs: Mapping[int, int]) -> Iterator[tuple[list[int], list[int]]]:
    """What is left of both reports between pairs that follow each other in both, each launch once; nothing where their
    order differs."""
    anchors = [(-1, -1), *sorted(pairs.items()), (before, after)]
    taken = set(pairs.values())
    for (old, new), (next_old, next_new) in pairwise(anchors):
        left = [at for at in range(new + 1, next_new) if at not in taken]
        taken.update(left)
        yield list(range(old + 1, next_old)), left


def _changed_counts(before: KernelCounters, after: KernelCounters) -> dict[str, tuple[float, float]]:
    changed = {}
    for label, names in EXACT.items():
        old, new = before.first(*names), after.first(*names)
        if old is not None and new is not None and old != new:
            changed[label] = (old, new)
    return changed


def _obstacles(before: Trace, after: Trace) -> Iterator[str]:
    for name in _SETTINGS:
        old, new = _values(before, name), _values(after, name)
        if old != new:
            yield f"{name.replace('_', ' ')} differs: {' and '.join(old)} before, {' and '.join(new)} after"
    old, new = _caches(before), _caches(after)
    if old != new:
        yield f"cache control differs: {' and '.join(old)} before, {' and '.join(new)} after"


def _values(trace: Trace, name: str) -> list[str]:
    column = trace[KERNEL_PROFILES][name].cast(pl.String)
    return sorted({value or "not recorded" for value in column.to_list()})


def _caches(trace: Trace) -> list[str]:
    """Cache control of the capture; a profiler flushes unless told not to."""
    commands = [value for value in _values(trace, "command") if value != "not recorded"]
    modes = {match.group(1) if (match := ncu_texts.CACHE_CONTROL.search(line)) else "all" for line in commands}
    return sorted(modes) or ["not recorded"]


_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class KernelMatch(Record, eq=False):
    """The device ops that run a profiled kernel: their time per device, how many, and their busy time per steady step.

    `rows` are theirs in `device_ops`, `mean_ns` is the mean of their times. `is_exact` says that whole names agree,
    template arguments included; else only function, grid and block do.
    """

    intervals: Mapping[Device, Intervals]
    count: int
    step_ns: float
    is_exact: bool
    rows: pl.Series
    mean_ns: float


@remembered
def kernel_matches(trace: Trace) -> dict[tuple[int, int], KernelMatch]:
    """By (rank, profile): where the timeline runs each profiled launch. Empty without a timeline.

    Ranks are not compared: a report is of one process, the timeline may be of a whole job.
    """
    if DEVICE_OPS not in trace or not trace[DEVICE_OPS].height:
        return {}
    ops = trace[DEVICE_OPS].with_row_index("row").filter(pl.col("kind").cast(pl.String) == "kernel")
    functions, plain = (of_each(ops["name"], function, pl.String) for function in (function_name, plain_name))
    named = ops.with_columns(functions.alias("function"), plain.alias("plain"))
    matches, by_launch = {}, dict[tuple[object, ...], KernelMatch | None]()
    for kernel in kernel_counters(trace):
        key = (kernel.function, plain_name(kernel.name), kernel.grid, kernel.block)
        if key not in by_launch:
            by_launch[key] = _match(trace, named, kernel)
        if (match := by_launch[key]) is not None:
            matches[kernel.rank, kernel.profile] = match
    return matches


def _match(trace: Trace, named: pl.DataFrame, kernel: KernelCounters) -> KernelMatch | None:
    shaped = pl.col("function") == function_name(kernel.function)
    for column, size in zip(_SIZES, (*kernel.grid, *kernel.block), strict=True):
        shaped &= pl.col(column).is_null() | (pl.col(column) == size)
    of_function = named.filter(shaped)
    same_name = of_function.filter(pl.col("plain") == plain_name(kernel.name))
    rows = same_name if same_name.height else of_function
    if not rows.height:
        return None
    intervals = intervals_by(rows, "rank", "device")
    mean_ns = float((rows["end_ns"] - rows["start_ns"]).sum()) / rows.height
    return KernelMatch(
        intervals, rows.height, largest_per_step_ns(trace, intervals), bool(same_name.height), rows["row"], mean_ns
    )
