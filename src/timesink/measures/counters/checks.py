"""Checks of the field: one figure of a kernel's sheet against a customary limit. They are no verdict.

Beside a check that holds stands what the verdict adds, so that nobody takes the check for one.
"""

from collections.abc import Mapping
from typing import Final

from timesink.errors import unknown
from timesink.measures.counters.causes import WAITING, limiter_name, limiter_words
from timesink.measures.counters.resources import Resource
from timesink.measures.counters.sheet import KernelSheet
from timesink.measures.counters.waste import Cause
from timesink.records import Record
from timesink.units import share_text


class Check(Record):
    """A named comparison of the field. `figures` are taken together: the largest of them counts where `above`, else
    too (a share that none of them passes). `passed` says what it means that the comparison holds."""

    name: str
    figures: tuple[str, ...]
    above: bool
    limit: float
    unit: str
    passed: str
    why: str
    source: str


_SOL: Final = "ncu's SOLBottleneck"
_GUIDES: Final = "profiling guides"
_CUDA: Final = "CUDA guide"
CHECKS: Final = (
    Check(
        "sm_high",
        ("sm_pct",),
        True,
        80,
        "%",
        "the SMs' busiest unit, load-store among them, is well used",
        "little is left on the busiest unit of the SMs",
        _SOL,
    ),
    Check(
        "memory_high",
        ("memory_pct",),
        True,
        80,
        "%",
        "the busiest memory unit is well used",
        "little is left on the busiest memory unit",
        _SOL,
    ),
    Check(
        "both_low",
        ("sm_pct", "memory_pct"),
        False,
        60,
        "%",
        "on average no unit is near its peak",
        "no unit is a bottleneck by itself",
        _SOL,
    ),
    Check(
        "stalled",
        ("sm_pct", "memory_pct"),
        False,
        30,
        "%",
        "on average every unit waits most of the time",
        "most of the time every unit waits",
        _GUIDES,
    ),
    Check("dram_low", ("dram_pct",), False, 70, "%", "DRAM is not the roof", "a streaming kernel passes it", _GUIDES),
    Check(
        "tensor_low",
        ("tensor_pct",),
        False,
        60,
        "%",
        "the tensor cores are not the roof",
        "large matmuls pass it",
        _GUIDES,
    ),
    Check(
        "occupancy_low",
        ("achieved_occupancy_pct",),
        False,
        50,
        "%",
        "few warps are there to hide waits",
        "fewer warps hide less latency",
        _GUIDES,
    ),
    Check(
        "registers",
        ("registers",),
        True,
        128,
        "registers",
        "registers leave an SM few warps",
        "more leave an SM fewer than 16 warps of its 65,536",
        _CUDA,
    ),
    Check(
        "spills",
        ("spill_bytes",),
        True,
        0,
        "bytes",
        "registers or arrays live in local memory",
        "local memory is spilled registers or arrays",
        _CUDA,
    ),
)


class CheckResult(Record):
    """A check on one kernel: the figure (None: not recorded), the limit, whether it is passed, what that means."""

    check: Check
    value: float | None
    limit: float
    holds: bool | None
    says: str


def check_limits(overrides: Mapping[str, float]) -> dict[str, float]:
    """The limit of every check, those overridden by name. `UsageError` for a name that no check has."""
    limits = {check.name: check.limit for check in CHECKS}
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
    top, share = limits.top, share_text(limits.least_share(limits.limiter))
    word = limiter_words(limiter_name(limits))
    if check.name in ("both_low", "stalled"):
        mean = max(leaf.busy for leaf in limits.leaves)
        return f", but {top.name} at one of its instances ({share_text(top.busy)})" if top.busy > mean else ""
    is_waste = limits.limiter not in (*WAITING, Cause.MEMORY, Cause.COMPUTE)
    if check.name in ("sm_high", "memory_high") and is_waste:
        return f"; {word} take {share} of the time"
    if check.name in ("occupancy_low", "registers") and limits.limiter is not Cause.OCCUPANCY:
        return f"; not what limits this kernel ({word}, {share})"
    return ""
