"""The table of `timesink kernels`: one row per profiled launch, and what to know before believing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from timesink.masking import redacted
from timesink.measures.kernel_counters import KernelCounters, kernel_counters
from timesink.measures.kernel_limiter import KernelLimits, kernel_limits
from timesink.model.tables import KERNEL_PROFILES
from timesink.model.trace import Trace
from timesink.reporters.sheets import Cell, Column, Page, Sheet
from timesink.rules.kernel import bottleneck_of, explained
from timesink.units import share_text

_COLUMNS = (
    Column("id", "id", "1"),
    Column("kernel", "kernel", is_name=True),
    Column("time_ns", "time", "ns"),
    Column("limiter", "limiter", is_name=True),
    Column("limiter_ratio", "of its time", "ratio"),
    Column("roof", "nearest roof"),
    Column("roof_ratio", "of roof", "ratio"),
    Column("bound_speedup", "bound x", "1"),
)
_ACTIONS = (Column("limiter", "limiter"), Column("kernels", "launches", "1"), Column("action", "do"))


def kernels_page(trace: Trace) -> Page:
    """Every launch with its limiter, then what to do about each kind of limiter."""
    kernels, limits = kernel_counters(trace), kernel_limits(trace)
    rows = tuple(_row(kernel, one) for kernel, one in zip(kernels, limits, strict=True))
    known = [one for one in limits if one is not None]
    note = "bound x: the largest possible speedup if the limiter were gone, up to the next unit's ceiling"
    return Page(
        "profiled kernels",
        (
            Sheet("kernels", "kernels", _COLUMNS, rows, note),
            Sheet("actions", "what to do", _ACTIONS, _actions(known), "by limiter, longest total time first"),
        ),
        tuple(_notes(trace, kernels, limits)),
    )


def _row(kernel: KernelCounters, limits: KernelLimits | None) -> tuple[Cell, ...]:
    if limits is None:
        return (kernel.profile, kernel.function, kernel.duration_ns, "undecided", None, None, None, None)
    nearest = limits.roofline.nearest if limits.roofline is not None else None
    return (
        kernel.profile,
        kernel.function,
        kernel.duration_ns,
        bottleneck_of(limits).value,
        limits.shares[limits.limiter],
        None if nearest is None else nearest[0],
        None if nearest is None else nearest[1],
        round(limits.bounds[limits.limiter], 2),
    )


def _actions(known: Sequence[KernelLimits]) -> tuple[tuple[Cell, ...], ...]:
    """Each advice once, with the number of launches it is for, by their total time."""
    groups: dict[tuple[str, str], list[KernelLimits]] = {}
    for one in known:
        groups.setdefault((bottleneck_of(one).value, explained(one).advice), []).append(one)
    ordered = sorted(groups.items(), key=lambda item: (-sum(one.kernel.duration_ns or 0 for one in item[1]), item[0]))
    return tuple((limiter, len(group), advice) for (limiter, advice), group in ordered)


def _notes(trace: Trace, kernels: Sequence[KernelCounters], limits: Sequence[KernelLimits | None]) -> Iterator[str]:
    yield from (f"{note.kind}: {note.message}" + (f" ({note.count})" if note.count else "") for note in trace.notes)
    for kernel, one in zip(kernels, limits, strict=True):
        if one is None:
            why = f"{len(kernel.failed)} counters are NaN (failed passes)" if kernel.failed else "no unit's throughput"
            yield f"launch {kernel.profile}, {kernel.function}: undecided, {why}"
    yield from _session(trace)
    yield from _clocks(limits)
    identities = [one.stalls.identity for one in limits if one is not None and one.stalls and one.stalls.identity]
    if identities:
        yield f"stall reasons sum to {min(identities):.2f}-{max(identities):.2f} of the latency they should sum to"
    partial = sum(1 for one in limits if one is not None and not one.is_complete)
    if partial:
        yield f"{partial} launches without the list of units: another unit may be busier (use --set full)"


def _session(trace: Trace) -> Iterator[str]:
    profiles = trace[KERNEL_PROFILES].with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    names = ("gpu", "tool_version", "driver_version", "clock_control", "command")
    for row in profiles.select(names).unique(maintain_order=True).iter_rows(named=True):
        words = {"gpu": "", "tool_version": "ncu ", "driver_version": "driver ", "clock_control": "clock "}
        parts = [prefix + str(row[name]) for name, prefix in words.items() if row[name]]
        yield ", ".join(parts) + (f"; captured with: {redacted(row['command'])}" if row["command"] else "")


def _clocks(limits: Sequence[KernelLimits | None]) -> Iterator[str]:
    lines = [one.roofline for one in limits if one is not None and one.roofline is not None]
    clocks = [line.clock_hz for line in lines if line.clock_hz]
    boost = max((line.max_clock_hz for line in lines if line.max_clock_hz), default=None)
    if clocks and boost:
        yield (
            f"SM clock while profiled {min(clocks) / 1e9:.2f}-{max(clocks) / 1e9:.2f} GHz, boost {boost / 1e9:.2f} GHz "
            f"({share_text(max(clocks) / boost)} of it): shares are of the roofs at the profiled clock"
        )
    sources = sorted({line.source for line in lines})
    if sources:
        yield f"peaks from: {'; '.join(sources)}"
