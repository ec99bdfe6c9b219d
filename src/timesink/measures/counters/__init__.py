"""Counters of single kernels from a kernel profiler, one view per kernel, and its occupancy.

Of busy units `resources` tells, of waiting warps `stalls`. A counter was measured, failed (its pass did), or was not
asked for. Counter names are those of Nsight Compute. *Occupancy* is how full a kernel keeps the GPU with warps, and
what keeps it from more.
"""

import math
from collections.abc import Mapping
from math import ceil
from typing import Any

import polars as pl

from timesink.knowledge.metric_names import INVOCATIONS
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

    @property
    def launches(self) -> int:
        """How many launches it stands for: of a summary all, whose figures are their means."""
        return int(self.values.get(INVOCATIONS, 1))

    @property
    def total_ns(self) -> float | None:
        """The time of all launches that it stands for."""
        return None if self.duration_ns is None else self.duration_ns * self.launches

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
    if profiles.is_empty():
        return ()
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
