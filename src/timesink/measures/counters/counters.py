"""Counters of profiled kernels, one view per kernel: what was measured, what failed, what was not asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from timesink.model.tables import DEVICES, KERNEL_METRICS, KERNEL_PROFILES
from timesink.model.trace import Trace, remembered

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"


@dataclass(frozen=True, slots=True, eq=False)
class KernelCounters:
    """One profiled launch and its counters; `profile` is its number in the report.

    `values` holds finite numbers only; a name in `failed` was asked for and its pass failed; any other name was not
    collected. `duration_ns` is the time while profiled, at the profiler's clock, None where it failed or is absent.
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
    clock_control: str | None
    values: Mapping[str, float]
    texts: Mapping[str, str]
    failed: frozenset[str]

    def get(self, name: str) -> float | None:
        """The counter's value, None where it failed or was not collected."""
        return self.values.get(name)

    def first(self, *names: str) -> float | None:
        """The first of these counters that was collected: names differ between chips and versions."""
        return next((self.values[name] for name in names if name in self.values), None)

    def total(self, *names: str) -> float | None:
        """The sum of those of these counters that were collected, None where none was."""
        found = [self.values[name] for name in names if name in self.values]
        return sum(found) if found else None

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
    return tuple(
        _one(
            row,
            devices.get((row["rank"], row["device"] or 0), {}),
            grouped.get((row["rank"], row["profile"]), _NOTHING),
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
    """Name to value of each launch. The rows of a launch lie together in a report; else they are put together first."""
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


def _one(row: Mapping[str, object], device: Mapping[str, object], grouped: _Grouped) -> KernelCounters:
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
        clock_control=None if row["clock_control"] is None else str(row["clock_control"]),
        values=values,
        texts=texts,
        failed=failed,
    )


def _sizes(row: Mapping[str, object], kind: str) -> tuple[int, int, int]:
    x, y, z = (int(str(row[f"{kind}_{axis}"] or 0)) for axis in "xyz")
    return x, y, z
