"""Everything a report says of one kernel, figure by figure: the columns of the table `kernel_sheets`.

A figure that a counter holds is that counter, in the unit its key ends in, unrounded: rounded to the digits that the
profiler's details page prints, it is the page's. Percentages are 0 to 100, as there. A figure that the report does not
hold is None, never zero.
"""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite

import polars as pl

from timesink.knowledge import gpus
from timesink.knowledge.metric_names.sheet_figures import SHEET_COLUMNS, SHEET_FIGURES, VERDICT
from timesink.measures.counters import KernelCounters, Occupancy, kernel_counters, occupancy_of
from timesink.measures.counters.causes import limiter_name, told_most
from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.measures.counters.roofline import LEVELS, ComputeRoof, KernelRoofline, level_bytes, roofline_of
from timesink.measures.counters.stalls import Stalls, stalls_of
from timesink.measures.counters.waste import Access, access_of, active_lanes
from timesink.model.trace import Trace, remembered
from timesink.records import Record

Value = float | str | None


class LaunchFacts(Record, eq=False):
    """One launch as the figures read it, with what several of them share."""

    kernel: KernelCounters
    roofline: KernelRoofline | None
    occupancy: Occupancy
    stalls: Stalls | None
    access: Access


class Figure(Record):
    """One figure of the sheet. `key` names it and ends in its unit; `group` is the table that shows it; `counters` are
    the names it is read from as they stand, the first that was collected; without any, `of` works it out.
    """

    key: str
    group: str
    head: str
    unit: str
    counters: tuple[str, ...] = ()
    of: Callable[[LaunchFacts], Value] | None = None
    is_text: bool = False

    def value(self, facts: LaunchFacts) -> Value:
        """The figure of one launch; None where the report does not hold it."""
        if self.of is not None:
            found = self.of(facts)
            return None if isinstance(found, float) and not isfinite(found) else found
        return facts.kernel.first(*self.counters)


def _bytes(level: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: level_bytes(facts.kernel, level)


def _rate(level: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: _per_second(facts, level_bytes(facts.kernel, level))


def _per_second(facts: LaunchFacts, amount: float | None) -> Value:
    time_ns = facts.kernel.duration_ns
    return None if amount is None or not time_ns else amount / (time_ns / 1e9)


def _percent(share: float | None) -> Value:
    return None if share is None else 100 * share


def _intensity(level: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: None if facts.roofline is None else facts.roofline.intensity(level)


def _work(facts: LaunchFacts, path: str) -> ComputeRoof | None:
    """The roof of fp32, fp64 or fp16 on the ordinary cores, or the nearest of the tensor cores."""
    roofs = () if facts.roofline is None else facts.roofline.compute
    if path == "tensor":
        return max((roof for roof in roofs if roof.path != "cuda"), key=lambda roof: roof.share, default=None)
    return next((roof for roof in roofs if roof.path == "cuda" and roof.precision == path), None)


def _flop_rate(path: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: _per_second(facts, roof.flops if (roof := _work(facts, path)) else None)


def _flop_share(path: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: _percent(roof.share if (roof := _work(facts, path)) else None)


def _per_request(op: str) -> Callable[[LaunchFacts], Value]:
    base = f"_pipe_lsu_mem_global_op_{op}"

    def sectors(facts: LaunchFacts) -> Value:
        kernel = facts.kernel
        ratio = kernel.get(f"l1tex__average_t_sectors_per_request{base}.ratio")
        count, requests = kernel.get(f"l1tex__t_sectors{base}.sum"), kernel.get(f"l1tex__t_requests{base}.sum")
        return ratio if ratio is not None else count / requests if count is not None and requests else None

    return sectors


def _conflicts(facts: LaunchFacts) -> Value:
    access = facts.access
    if access.shared_wavefronts is None or access.ideal_shared_wavefronts is None:
        return None
    return max(0.0, access.shared_wavefronts - access.ideal_shared_wavefronts)


def _spilled(facts: LaunchFacts) -> Value:
    names = (f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st"))
    sectors = facts.kernel.total(*names)
    return None if sectors is None else sectors * gpus.SECTOR_BYTES


def _shape(sizes: tuple[int, int, int]) -> Value:
    return " × ".join(map(str, sizes)) if all(sizes) else None


def _atomics(facts: LaunchFacts) -> Value:
    return facts.kernel.total(*(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("atom", "red")))


def _stall(reason: str) -> Callable[[LaunchFacts], Value]:
    return lambda facts: None if facts.stalls is None else 100 * facts.stalls.shares.get(reason, 0.0)


_PATHS = ("fp64", "fp32", "fp16", "tensor")
_WORKED: Mapping[str, Callable[[LaunchFacts], Value]] = {
    **{f"{level}_bytes_per_s": _rate(level) for level in LEVELS},
    **{f"{level}_bytes": _bytes(level) for level in LEVELS},
    **{f"{level}_intensity": _intensity(level) for level in LEVELS},
    **{f"{path}_flop_per_s": _flop_rate(path) for path in _PATHS},
    **{f"{path}_pct": _flop_share(path) for path in _PATHS},
    "duration_ns": lambda facts: facts.kernel.duration_ns,
    "tensor_format": lambda facts: roof.label if (roof := _work(facts, "tensor")) else None,
    "load_sectors_per_request": _per_request("ld"),
    "store_sectors_per_request": _per_request("st"),
    "excess_sectors_pct": lambda facts: _percent(facts.access.excess_ratio),
    "bank_conflicts": _conflicts,
    "spill_bytes": _spilled,
    "active_threads": lambda facts: active_lanes(facts.kernel),
    "atomic_requests": _atomics,
    "occupancy_limit": lambda facts: " and ".join(facts.occupancy.limited_by) or None,
    "grid": lambda facts: _shape(facts.kernel.grid),
    "block": lambda facts: _shape(facts.kernel.block),
    "tail_pct": lambda facts: _percent(facts.occupancy.tail),
    "sm_idle_pct": lambda facts: _percent(facts.occupancy.sm_idle),
}


def _figures() -> Iterator[Figure]:
    for group, figures in SHEET_FIGURES.items():
        for key, head, unit, counters in figures:
            of = None if counters else _WORKED.get(key) or _stall(key.removeprefix("stall_").removesuffix("_pct"))
            yield Figure(key, group, head, unit.replace("text", ""), counters, of, is_text=unit == "text")


FIGURES = tuple(_figures())


class KernelSheet(Record, eq=False):
    """One launch: its counters, its explanation (None where it has none) and every figure by its key."""

    kernel: KernelCounters
    limits: KernelLimits | None
    figures: Mapping[str, Value]


@remembered
def kernel_sheets(trace: Trace) -> tuple[KernelSheet, ...]:
    """The sheet of every profiled launch, in report order."""
    return tuple(
        _sheet(kernel, limits) for kernel, limits in zip(kernel_counters(trace), kernel_limits(trace), strict=True)
    )


def _sheet(kernel: KernelCounters, limits: KernelLimits | None) -> KernelSheet:
    roofline = limits.roofline if limits else roofline_of(kernel)
    facts = LaunchFacts(kernel, roofline, occupancy_of(kernel), stalls_of(kernel), access_of(kernel))
    return KernelSheet(kernel, limits, {figure.key: figure.value(facts) for figure in FIGURES})


SHEETS_DOC = "Derived: one row per profiled launch: its limiter, roof and bound, and every figure of its sheet."


def told_speedup(limits: KernelLimits) -> float | None:
    """How many times as fast it is at most without its limiter, whose part of the time is told as `told_most`; None
    where no other unit is known to limit it."""
    most = told_most(limits, limits.limiter)
    return limits.bound if limits.bound is None or most >= 1 else min(limits.bound, 1 / (1 - most))


def verdict_of(limits: KernelLimits | None) -> dict[str, Value]:
    """Limiter, its percentage of the time, surely and at most, the nearest roof, the percentage of it, how many times
    as fast the kernel is there, and at most without the limiter. Every value None where nothing is known."""
    if limits is None:
        return dict.fromkeys(VERDICT)
    return {
        "limiter": limiter_name(limits),
        "limiter_pct": 100 * limits.least_share(limits.limiter),
        "limiter_most_pct": 100 * told_most(limits, limits.limiter),
        "roof": limits.roof[0],
        "roof_pct": 100 * limits.roof[1],
        "roof_speedup": limits.roof_speedup,
        "bound_speedup": told_speedup(limits),
    }


def sheet_frame(trace: Trace) -> pl.DataFrame:
    """One row per launch: rank, profile, kernel, its verdict, its figures; what is not recorded is null."""
    texts = {"limiter", "roof", *(figure.key for figure in FIGURES if figure.is_text)}
    keys = SHEET_COLUMNS
    schema = {"rank": pl.Int32(), "profile": pl.Int32(), "kernel": pl.String()}
    types = {**schema, **{key: pl.String() if key in texts else pl.Float64() for key in keys}}
    rows = [
        {"rank": sheet.kernel.rank, "profile": sheet.kernel.profile, "kernel": sheet.kernel.name}
        | verdict_of(sheet.limits)
        | dict(sheet.figures)
        for sheet in kernel_sheets(trace)
    ]
    return pl.DataFrame(rows, schema=types)
