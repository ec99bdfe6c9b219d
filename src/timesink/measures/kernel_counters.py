"""Counters of profiled kernels, one view per kernel: what was measured, what failed, what was not asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from timesink.model.tables import DEVICES, KERNEL_METRICS, KERNEL_PROFILES
from timesink.model.trace import Trace

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

    @property
    def threads_per_block(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)


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
    """Numbers, texts and failed names of every launch; its rows lie together in a report."""
    ids = metrics.select("rank", "profile")
    if not metrics.select((pl.col("rank").cast(pl.Int64) * 2**32 + pl.col("profile")).is_sorted()).item():
        metrics = metrics.sort("rank", "profile", maintain_order=True)
        ids = metrics.select("rank", "profile")
    names, texts = metrics["metric"].cast(pl.String).to_list(), metrics["text"].cast(pl.String).to_list()
    values = metrics["value"].to_list()
    grouped, start = {}, 0
    for rank, profile, length in ids.group_by("rank", "profile", maintain_order=True).len().iter_rows():
        end = start + length
        grouped[rank, profile] = _group(names[start:end], values[start:end], texts[start:end])
        start = end
    return grouped


def _group(names: list[str], values: list[float | None], texts: list[str | None]) -> _Grouped:
    numbers = dict(zip(names, values, strict=True))
    finite = {name: value for name, value in numbers.items() if value is not None and value == value}  # noqa: PLR0124
    failed = frozenset(name for name, value in numbers.items() if value is not None and name not in finite)
    words = {name: text for name, text in zip(names, texts, strict=True) if text is not None}
    return finite, words, failed


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
