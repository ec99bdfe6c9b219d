"""Profiled launches found again in a timeline: the same function with the same grid and block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from timesink.measures.kernel_counters import KernelCounters, kernel_counters
from timesink.measures.per_step import largest_per_step_ns
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.kernel_spelling import function_name, plain_name
from timesink.model.names import mapped
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

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
    matches, known = {}, dict[tuple[object, ...], KernelMatch | None]()
    for kernel in kernel_counters(trace):
        key = (kernel.function, plain_name(kernel.name), kernel.grid, kernel.block)
        if key not in known:
            known[key] = _match(trace, named, kernel)
        match = known[key]
        if match is not None:
            matches[kernel.rank, kernel.profile] = match
    return matches


def _each(names: pl.Series, function: Callable[[str], str]) -> pl.Series:
    return pl.Series([function(name) for name in names.to_list()], dtype=pl.String)


def _match(trace: Trace, named: pl.DataFrame, kernel: KernelCounters) -> KernelMatch | None:
    shaped = pl.col("function") == function_name(kernel.function)
    for column, size in zip(_SIZES, (*kernel.grid, *kernel.block), strict=True):
        shaped &= pl.col(column).is_null() | (pl.col(column) == size)
    found = named.filter(shaped)
    same = found.filter(pl.col("plain") == plain_name(kernel.name))
    rows = same if same.height else found
    if not rows.height:
        return None
    parts = {
        (int(key[0]), int(key[1])): Intervals.of(part)
        for key, part in rows.group_by("rank", "device", maintain_order=True)
    }
    intervals = dict(sorted(parts.items()))
    return KernelMatch(intervals, rows.height, largest_per_step_ns(trace, intervals), bool(same.height))
