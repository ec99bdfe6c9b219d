"""The kernels of a report one by one: what the time of each goes to, and why its warps wait."""

from __future__ import annotations

from collections.abc import Iterator

from timesink.measures.kernel_limiter import KernelLimits, kernel_limits
from timesink.measures.kernel_stalls import FULL, HIDDEN_BY_WARPS, NOT_HIDDEN, Stalls
from timesink.model.trace import Trace
from timesink.reporters.sheets import Column, Sheet
from timesink.units import time_text

SHOWN_KERNELS = 6
SHOWN_STALLS = 8

_CAUSES = (
    Column("cause", "cause"),
    Column("time_ratio", "share of the time", "ratio", has_bar=True),
    Column("bound_speedup", "bound x", "1"),
)
_STALLS = (
    Column("reason", "warps wait for", is_name=True),
    Column("wait_ratio", "share of the waiting", "ratio", has_bar=True),
    Column("more_warps", "more warps"),
)


def kernel_details(trace: Trace) -> Iterator[tuple[str, tuple[Sheet, ...]]]:
    """The longest launch of each of the longest kernels: causes of its time, reasons of its stalls."""
    known = [one for one in kernel_limits(trace) if one is not None]
    longest: dict[str, KernelLimits] = {}
    for one in sorted(known, key=lambda one: (-(one.kernel.duration_ns or 0), one.kernel.profile)):
        longest.setdefault(one.kernel.name, one)
    for one in list(longest.values())[:SHOWN_KERNELS]:
        length = "" if one.kernel.duration_ns is None else f", {time_text(one.kernel.duration_ns)}"
        title = f"{one.kernel.function} (id {one.kernel.profile}{length})"
        stalls = () if one.stalls is None else (_stalls(one.stalls, one.kernel.profile),)
        yield title, (_causes(one), *stalls)


def _causes(one: KernelLimits) -> Sheet:
    rows = tuple(
        (cause.value.replace("_", " "), one.shares[cause], round(one.bounds[cause], 2)) for cause in one.ranked
    )
    note = (
        f"busiest unit {one.top.name}, {100 * one.top.busy:.1f} % of its peak; shares sum to 1; "
        "bound x: the largest possible speedup if the cause were gone"
    )
    return Sheet(f"causes_{one.kernel.profile}", "What its time goes to", _CAUSES, rows, note)


def _stalls(stalls: Stalls, profile: int) -> Sheet:
    ranked = sorted(stalls.shares.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple((reason, share, _remedy(reason)) for reason, share in ranked[:SHOWN_STALLS])
    origin = "from samples" if stalls.is_sampled else "from counters"
    cycles = "" if stalls.cycles is None else f"; a warp issues once in {stalls.cycles:.1f} cycles"
    left = len(ranked) - len(rows)
    more = f"; {left} smaller ones are not shown" if left > 0 else ""
    return Sheet(f"stalls_{profile}", "Why its warps wait", _STALLS, rows, f"{origin}{cycles}{more}")


def _remedy(reason: str) -> str | None:
    """Whether more warps would hide that wait."""
    if reason in HIDDEN_BY_WARPS:
        return "hide it"
    if reason in FULL:
        return "lengthen the queue"
    return "do not help" if reason in NOT_HIDDEN else None
