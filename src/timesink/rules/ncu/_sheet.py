"""The verdict of a kernel's sheet in words and figures: limiter, roof and bound, the way to them, and named checks.

A check compares one figure with a limit of the field and says what that means beside the verdict; it is no verdict.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.errors import unknown
from timesink.knowledge import table_rows
from timesink.measures.counters import ARITHMETIC, MEMORY, Resource
from timesink.measures.counters.limiter import KernelLimits, why_unexplained
from timesink.measures.counters.machine_roofs import LeastBytes
from timesink.measures.counters.roofline import ProductParts, product_parts
from timesink.measures.counters.sheet import FIGURES, KernelSheet, Value, kernel_sheets
from timesink.measures.counters.waste import Cause
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.rules.ncu._family import bottleneck_of
from timesink.units import bytes_text, share_text

SHEETS_DOC: Final = "Derived: one row per profiled launch: its limiter, roof and bound, and every figure of its sheet."
VERDICT: Final = ("limiter", "limiter_pct", "limiter_most_pct", "roof", "roof_pct", "roof_speedup", "bound_speedup")
"""Keys of `verdict_of`, the columns before a sheet's figures."""
_WAITING: Final = (Cause.OCCUPANCY, Cause.LATENCY)
_LEAST_SHOWN: Final = 0.005  # half a percent: shares are shown with three digits


def verdict_of(limits: KernelLimits | None) -> dict[str, Value]:
    """Limiter, its percentage of the time, surely and at most, the nearest roof, the percentage of it, how many times
    as fast the kernel is there, and at most without the limiter. Every value None where nothing is known."""
    if limits is None:
        return dict.fromkeys(VERDICT)
    return {
        "limiter": bottleneck_of(limits).value,
        "limiter_pct": 100 * limits.shares[limits.limiter],
        "limiter_most_pct": 100 * limits.most_share(limits.limiter),
        "roof": limits.roof[0],
        "roof_pct": 100 * limits.roof[1],
        "roof_speedup": limits.roof_speedup,
        "bound_speedup": limits.bound,
    }


def sheet_frame(trace: Trace) -> pl.DataFrame:
    """One row per launch: rank, profile, kernel, its verdict, its figures; what is not recorded is null."""
    texts = {"limiter", "roof", *(figure.key for figure in FIGURES if figure.is_text)}
    keys = (*VERDICT, *(figure.key for figure in FIGURES))
    schema = {"rank": pl.Int32(), "profile": pl.Int32(), "kernel": pl.String()}
    types = {**schema, **{key: pl.String() if key in texts else pl.Float64() for key in keys}}
    rows = [
        {"rank": sheet.kernel.rank, "profile": sheet.kernel.profile, "kernel": sheet.kernel.name}
        | verdict_of(sheet.limits)
        | dict(sheet.figures)
        for sheet in kernel_sheets(trace)
    ]
    return pl.DataFrame(rows, schema=types)


class Check(Record):
    """A named comparison of the field. `figures` are taken together: the largest of them counts where `above`, else
    too (a share that none of them passes). `passed` says what it means that the comparison holds."""

    name: str
    figures: tuple[str, ...]
    above: bool
    limit: Limit
    passed: str


def _checks() -> Iterator[Check]:
    """The rows of `_sheet.txt`: passed where the largest of the figures is over the limit, or under it."""
    for row in table_rows(__file__):
        way, number, unit = row["limit"].split(" ", 2)
        limit = Limit(int(number), unit, row["why"], row["source"])
        yield Check(row["check"], tuple(row["figures"].split()), way == "over", limit, row["passed means"])


CHECKS: Final = tuple(_checks())


class CheckResult(Record):
    """A check on one kernel: the figure (None: not recorded), the limit, whether it is passed, what that means."""

    check: Check
    value: float | None
    limit: float
    holds: bool | None
    says: str


def check_limits(overrides: Mapping[str, float]) -> dict[str, float]:
    """The limit of every check, those overridden by name. `UsageError` for a name that no check has."""
    limits = {check.name: check.limit.default for check in CHECKS}
    for name in overrides:
        if name not in limits:
            raise unknown("check", name, list(limits))
    return {**limits, **overrides}


def checks_of(sheet: KernelSheet, limits: Mapping[str, float]) -> tuple[CheckResult, ...]:
    """Every check whose figures the report holds."""
    return tuple(_result(check, sheet, limits[check.name]) for check in CHECKS if _value(check, sheet) is not None)


def _value(check: Check, sheet: KernelSheet) -> float | None:
    if check.name == "tensor_low" and sheet.figures["tensor_flop_per_s"] is None and not _uses_tensor_pipe(sheet):
        return None
    values = [sheet.figures[key] for key in check.figures]
    numbers = [value for value in values if isinstance(value, float)]
    return max(numbers) if len(numbers) == len(values) else None


def _uses_tensor_pipe(sheet: KernelSheet) -> bool:
    """Whether it is the busiest unit: without counts of its work, a little time on it may be other instructions."""
    return sheet.limits is not None and sheet.limits.top.resource is Resource.TENSOR


def _result(check: Check, sheet: KernelSheet, limit: float) -> CheckResult:
    value = _value(check, sheet)
    assert value is not None
    holds = value > limit if check.above else value < limit
    return CheckResult(check, value, limit, holds, f"{check.passed}{_beside(check, sheet)}" if holds else "")


def _beside(check: Check, sheet: KernelSheet) -> str:
    """What the verdict adds to a check that holds, so that nobody takes the check for one."""
    limits = sheet.limits
    if limits is None:
        return ""
    top, share = limits.top, share_text(limits.shares[limits.limiter])
    word = limiter_words(bottleneck_of(limits).value)
    if check.name in ("both_low", "stalled"):
        mean = max(leaf.busy for leaf in limits.leaves)
        return f", but {top.name} at one of its instances ({share_text(top.busy)})" if top.busy > mean else ""
    is_waste = limits.limiter not in (*_WAITING, Cause.MEMORY, Cause.COMPUTE)
    if check.name in ("sm_high", "memory_high") and is_waste:
        return f"; {word} take {share} of the time"
    if check.name in ("occupancy_low", "registers") and limits.limiter is not Cause.OCCUPANCY:
        return f"; not what limits this kernel ({word}, {share})"
    return ""


def decision_path(sheet: KernelSheet, least: LeastBytes | None = None) -> Iterator[str]:
    """The way to the verdict, one sentence a step: the busiest unit, its side, its work or what waits, of a product its
    main loop beside its epilogue, the end; and what DRAM moved, beside the bytes that must be moved at least."""
    yield from _way(sheet)
    moved = sheet.figures["dram_bytes"]
    if least is not None and least.value is None:
        yield f"What it must move at least is not known: {least.why}."
    elif least is not None and least.value is not None and isinstance(moved, float):
        of = f" ({least.operator})" if least.operator else ""
        times = f"{moved / least.value:.2f} x the least of {bytes_text(least.value)}{of}"
        yield f"DRAM moved {bytes_text(moved)}, {times}{_EXTRA if moved > least.value else _HELD}."


def _product(parts: ProductParts) -> str:
    longer = max(parts.main_loop, parts.epilogue)
    end = "the epilogue" if parts.epilogue > parts.main_loop else "the main loop"
    decides = f"{end} is the longer" if longer >= _FILLS else "neither fills a unit"
    return (
        f"Main loop or epilogue? Products keep tensor cores busy for {share_text(parts.tensor)} of the time, operands "
        f"L2 for {share_text(parts.operands)}; writing {bytes_text(parts.written_bytes)} keeps L2 busy for "
        f"{share_text(parts.writes)}, fp32 arithmetic and special functions theirs for {share_text(parts.arithmetic)}: "
        f"{decides}."
    )


_FILLS: Final = 0.3  # of the time: what keeps every unit less busy than that is decided by waits
_EXTRA: Final = ": reading and writing each byte once would save the rest"
_HELD: Final = ": caches held the rest"


def _way(sheet: KernelSheet) -> Iterator[str]:
    limits = sheet.limits
    if limits is None:
        yield f"No verdict: {why_unexplained(sheet.kernel)}."
        return
    top = limits.top
    yield f"The busiest unit is {top.name} ({top.resource.value}): {share_text(top.busy)} of its peak."
    side = "memory" if top.resource in MEMORY else "compute" if top.resource in ARITHMETIC else "instruction issue"
    if limits.limiter in _WAITING:
        little = (
            "Below 60 % of its peak it does not decide" if limits.is_half_busy else f"Less than waiting goes to {side}"
        )
        yield f"{little}: what the warps wait for does."
        yield from _waiting(sheet, limits)
    else:
        yield f"Its side is {side}: the time goes to work there, or to waste of it."
        if (queue := limits.queued_loads) is not None:
            yield f"A load waits {queue.waited:.0f} cycles, in an idle memory {queue.idle:.0f}: loads queue for memory."
        if side == "instruction issue" and limits.roofline is not None and limits.roofline.is_memory_side is not None:
            nearer = "bytes, left of" if limits.roofline.is_memory_side else "operations, right of"
            idle = ", though DRAM is less than half as busy: by instructions" if _is_left_of_idle(limits) else ""
            yield f"Issue slots serve both sides; by the roofline it is bound by its {nearer} the ridge of DRAM{idle}."
        yield from (_compute(sheet) if side == "compute" else _memory(sheet, limits))
    product = product_parts(sheet.kernel)
    if product is not None:
        yield _product(product)
    parts = [cause for cause in limits.ranked if limits.shares[cause] >= _LEAST_SHOWN or cause is limits.limiter]
    yield f"Of the time: {', '.join(_part(limits, cause) for cause in parts)}. The limiter is the first."


def _is_left_of_idle(limits: KernelLimits) -> bool:
    line = limits.roofline
    return line is not None and line.is_memory_side is True and limits.shares[Cause.COMPUTE] > 0


def _part(limits: KernelLimits, cause: Cause) -> str:
    return f"{limiter_words(cause.value)} {share_text(limits.shares[cause])}"


def _memory(sheet: KernelSheet, limits: KernelLimits) -> Iterator[str]:
    excess, conflicts = sheet.figures["excess_sectors_pct"], sheet.figures["bank_conflicts"]
    if isinstance(excess, float):
        yield f"Coalesced? {share_text(excess / 100)} of the sectors of global accesses are beyond need."
    hits = [(level, sheet.figures[f"{level.lower()}_hit_pct"]) for level in ("L1", "L2")]
    told = [f"{level} {share_text(rate / 100)}" for level, rate in hits if isinstance(rate, float)]
    if told:
        yield f"Hit rates: {', '.join(told)}."
    wasted = [cause for cause in limits.ranked if cause in (Cause.BANK_CONFLICTS, Cause.REGISTER_SPILLS, Cause.ATOMICS)]
    if wasted:
        yield f"Waste in the accesses: {', '.join(_part(limits, cause) for cause in wasted)} of the time."
    elif conflicts is not None:
        yield "No bank conflicts, spills or atomics take time."


def _compute(sheet: KernelSheet) -> Iterator[str]:
    name, share = sheet.figures["tensor_format"], sheet.figures["tensor_pct"]
    if isinstance(name, str) and isinstance(share, float):
        yield f"Tensor cores: {name}, {share_text(share / 100)} of the peak."
    lanes = sheet.figures["active_threads"]
    if isinstance(lanes, float):
        yield f"Divergence? {lanes:.1f} of 32 threads of a warp are active."


def _waiting(sheet: KernelSheet, limits: KernelLimits) -> Iterator[str]:
    idle, achieved = limits.occupancy.sm_idle, limits.occupancy.achieved
    if idle is not None:
        yield f"Enough blocks? SMs have none for {share_text(idle)} of the time."
    if achieved is not None:
        by = sheet.figures["occupancy_limit"]
        yield f"Enough warps? {share_text(achieved)} of an SM's warps are there{f', limited by {by}' if by else ''}."
    if limits.stalls is not None and limits.stalls.top is not None:
        reason, share = limits.stalls.top
        yield f"They wait for {reason.replace('_', ' ')}: {share_text(share)} of the waiting."


def limiter_words(value: Value) -> str:
    """A limiter as people read it."""
    known = {name.value for name in Bottleneck}
    return str(value).replace("_", " ").removesuffix(" kernel") if value in known else str(value or "undecided")
