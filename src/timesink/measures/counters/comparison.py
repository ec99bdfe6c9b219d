"""Two reports of a kernel profiler, kernel by kernel, and profiled launches found again in a timeline.

Of two reports: which counters changed, and whether their times may be compared at all. In a timeline, a profiled launch
is the same function with the same grid and block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from timesink.knowledge import profiler_texts
from timesink.knowledge.kernels import function_name, plain_name
from timesink.measures.counters.counters import KernelCounters, kernel_counters
from timesink.measures.steps.per_step import largest_per_step_ns
from timesink.measures.timeline.device_timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.tables import DEVICE_OPS, KERNEL_PROFILES
from timesink.model.trace import Trace, remembered

# Counts that depend on the program and its input only, not on clock or temperature.
EXACT = {
    "instructions": ("smsp__inst_executed.sum", "inst_executed"),
    "thread instructions": ("thread_inst_executed", "smsp__thread_inst_executed.sum"),
    "global sectors": ("memory_l2_theoretical_sectors_global",),
    "shared passes": ("memory_l1_wavefronts_shared",),
    "registers per thread": ("launch__registers_per_thread",),
    "shared memory per block": ("launch__shared_mem_per_block",),
}
_CACHE = re.compile(profiler_texts.CACHE_CONTROL)
_SETTINGS = ("gpu", "clock_control", "driver_version")


@dataclass(frozen=True, slots=True)
class KernelPair:
    """A launch of the earlier report and its counterpart: the same function, in the same order among its launches.

    `counts` maps the name of each exact count that differs to (before, after).
    """

    before: KernelCounters
    after: KernelCounters
    counts: Mapping[str, tuple[float, float]]

    @property
    def time_ratio(self) -> float | None:
        """Time after over time before; None where either is missing."""
        if self.before.duration_ns is None or self.after.duration_ns is None:
            return None
        return self.after.duration_ns / self.before.duration_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pairs in the order of the earlier report, launches without a counterpart, and `obstacles`: what differs between
    the two captures so that their times say nothing (empty: times may be compared).
    """

    pairs: tuple[KernelPair, ...]
    only_before: tuple[KernelCounters, ...]
    only_after: tuple[KernelCounters, ...]
    obstacles: tuple[str, ...]


def compare_reports(before: Trace, after: Trace) -> Comparison:
    """The launches of two reports, matched: the n-th launch of a function with the n-th launch of the same function."""
    earlier, later = _numbered(before), _numbered(after)
    common = [(kernel, later[key]) for key, kernel in earlier.items() if key in later]
    return Comparison(
        tuple(KernelPair(old, new, _changed_counts(old, new)) for old, new in common),
        tuple(kernel for key, kernel in earlier.items() if key not in later),
        tuple(kernel for key, kernel in later.items() if key not in earlier),
        tuple(_obstacles(before, after)),
    )


def _numbered(trace: Trace) -> dict[tuple[str, int], KernelCounters]:
    """Launches by function and number among its launches."""
    seen: Counter[str] = Counter()
    numbered = {}
    for kernel in kernel_counters(trace):
        numbered[kernel.function, seen[kernel.function]] = kernel
        seen[kernel.function] += 1
    return numbered


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
    modes = {match.group(1) if (match := _CACHE.search(line)) else "all" for line in commands}
    return sorted(modes) or ["not recorded"]


_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


@dataclass(frozen=True, slots=True, eq=False)
class KernelMatch:
    """The device ops that run a profiled kernel: their time per device, how many, and their busy time per steady step.

    `is_exact` says that the whole names agree, template arguments included; else only function, grid and block do.
    """

    intervals: Mapping[Device, Intervals]
    count: int
    step_ns: float
    is_exact: bool


@remembered
def kernel_matches(trace: Trace) -> dict[tuple[int, int], KernelMatch]:
    """By (rank, profile): where the timeline runs each profiled launch. Empty without a timeline.

    Ranks are not compared: a report is of one process, the timeline may be of a whole job.
    """
    if DEVICE_OPS not in trace or not trace[DEVICE_OPS].height:
        return {}
    ops = trace[DEVICE_OPS].filter(pl.col("kind").cast(pl.String) == "kernel")
    functions = mapped(ops["name"], lambda names: _each(names, function_name), pl.String)
    plain = mapped(ops["name"], lambda names: _each(names, plain_name), pl.String)
    named = ops.with_columns(functions.alias("function"), plain.alias("plain"))
    matches, by_launch = {}, dict[tuple[object, ...], KernelMatch | None]()
    for kernel in kernel_counters(trace):
        key = (kernel.function, plain_name(kernel.name), kernel.grid, kernel.block)
        if key not in by_launch:
            by_launch[key] = _match(trace, named, kernel)
        if (match := by_launch[key]) is not None:
            matches[kernel.rank, kernel.profile] = match
    return matches


def _each(names: pl.Series, function: Callable[[str], str]) -> pl.Series:
    return pl.Series([function(name) for name in names.to_list()], dtype=pl.String)


def _match(trace: Trace, named: pl.DataFrame, kernel: KernelCounters) -> KernelMatch | None:
    shaped = pl.col("function") == function_name(kernel.function)
    for column, size in zip(_SIZES, (*kernel.grid, *kernel.block), strict=True):
        shaped &= pl.col(column).is_null() | (pl.col(column) == size)
    of_function = named.filter(shaped)
    same_name = of_function.filter(pl.col("plain") == plain_name(kernel.name))
    rows = same_name if same_name.height else of_function
    if not rows.height:
        return None
    by_device = {
        (int(key[0]), int(key[1])): Intervals.of(ops)
        for key, ops in rows.group_by("rank", "device", maintain_order=True)
    }
    intervals = dict(sorted(by_device.items()))
    return KernelMatch(intervals, rows.height, largest_per_step_ns(trace, intervals), bool(same_name.height))
