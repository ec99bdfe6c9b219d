"""Rules about single kernels, from a kernel profiler's counters. What they share: how launches become one finding.

A kernel's time is divided among causes (`measures.counters.limiter`); each rule owns one cause and speaks where
its share passes the limit. Shares of a kernel add up to its time, so findings about one kernel add up too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module

from timesink.diagnosis.rule import Facts
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Evidence,
    Finding,
    Found,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.measures.counters.comparison import KernelMatch, kernel_matches
from timesink.measures.counters.counters import KernelCounters, kernel_counters
from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.measures.counters.waste import Cause
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, HOST_OPS, RANGES
from timesink.units import NS_PER_MS, share_text, time_text

CAPTURE = "ncu --set full --import-source off --clock-control none -o report PROGRAM"
READS = (DEVICES, DEVICE_OPS, RANGES, HOST_OPS, API_CALLS)
SHARE = "share of the kernel's time"
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Words:
    """What a rule says of one kernel: the end of its sentence, its facts, its advice."""

    because: str
    evidence: tuple[Evidence, ...]
    advice: str
    bottleneck: Bottleneck | None = None


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one kernel with the same grid and block; `longest` is the one that is described."""

    longest: KernelLimits
    profiles: tuple[int, ...]
    total_ns: float
    gain_ns: float
    most_ns: float


def judged(
    facts: Facts, cause: Cause, describe: Callable[[KernelLimits], Words], limit: float | None = None
) -> Verdict:
    """Found per kernel that this cause limits, or takes a share of above the limit; largest gain first."""
    limits = facts(kernel_limits)
    known = [one for one in limits if one is not None]
    matches = facts(kernel_matches)
    found = tuple(
        _placed(_finding(launches, cause, limit, describe(launches.longest)), launches, matches)
        for launches in _grouped(known, cause)
        if _speaks(launches.longest, cause, limit)
    )
    if found:
        return Found(found)
    silent = [counters for counters, one in zip(facts(kernel_counters), limits, strict=True) if one is None]
    return Undecided(_silence(silent), CAPTURE) if silent else Clear(_largest(known, cause, limit))


def _speaks(limits: KernelLimits, cause: Cause, limit: float | None) -> bool:
    return limits.limiter is cause or (limit is not None and limits.shares[cause] > limit)


def _against(limits: KernelLimits, cause: Cause, limit: float | None) -> float:
    """What a share is compared with: the rule's limit, or for a rule without one the largest share of another cause."""
    return limit if limit is not None else max(share for other, share in limits.shares.items() if other is not cause)


def explained(limits: KernelLimits) -> Words:
    """What the rule that owns a kernel's limiter says of it."""
    words: Words = import_module(f"timesink.rules.ncu.{_OWNERS[limits.limiter]}").words(limits)
    return words


_OWNERS = {
    Cause.UNCOALESCED: "uncoalesced",
    Cause.BANK_CONFLICTS: "bank_conflicts",
    Cause.REGISTER_SPILLS: "register_spills",
    Cause.DIVERGENCE: "divergence",
    Cause.ATOMICS: "atomics",
    Cause.OCCUPANCY: "occupancy",
    Cause.LATENCY: "latency_bound_kernel",
    Cause.MEMORY: "memory_bound_kernel",
    Cause.COMPUTE: "compute_bound_kernel",
}


def bottleneck_of(limits: KernelLimits) -> Bottleneck:
    """The name of a kernel's limiter in a diagnosis."""
    return explained(limits).bottleneck or Bottleneck(limits.limiter.value)


def fact(label: str, value: float, unit: str, how: str, limits: KernelLimits) -> Evidence:
    """One counter behind a finding, with the launch it belongs to."""
    return Evidence(label, Quantity(value, unit), how, table="kernel_profiles", rows=(limits.kernel.profile,))


def gain_ns(limits: KernelLimits, cause: Cause) -> float:
    """Time of the launch that the cause takes, at most what the next ceiling leaves."""
    return min((limits.kernel.duration_ns or 0.0) * limits.shares[cause], most_ns(limits, cause))


def most_ns(limits: KernelLimits, cause: Cause) -> float:
    """Time of the launch that could be saved if the cause were gone: down to the next ceiling."""
    return (limits.kernel.duration_ns or 0.0) * (1 - 1 / limits.bounds[cause])


def _grouped(known: list[KernelLimits], cause: Cause) -> list[Launches]:
    groups: dict[tuple[object, ...], list[KernelLimits]] = {}
    for one in known:
        groups.setdefault((one.kernel.name, one.kernel.grid, one.kernel.block), []).append(one)
    merged = [
        Launches(
            max(group, key=lambda one: (gain_ns(one, cause), one.shares[cause], -one.kernel.profile)),
            tuple(one.kernel.profile for one in group),
            sum(one.kernel.duration_ns or 0.0 for one in group),
            sum(gain_ns(one, cause) for one in group),
            sum(most_ns(one, cause) for one in group),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda launches: (-launches.gain_ns, launches.profiles))


def _finding(launches: Launches, cause: Cause, limit: float | None, words: Words) -> Finding:
    limits = launches.longest
    against = _against(limits, cause, limit)
    compared = f"next cause {share_text(against)}" if limit is None else f"limit {share_text(against)}"
    share, bound = limits.shares[cause], limits.bounds[cause]
    count = len(launches.profiles)
    times = f"{count} launches, {time_text(launches.total_ns)}" if count > 1 else time_text(launches.total_ns)
    message = (
        f"kernel {limits.kernel.function} ({times}) spends {share_text(share)} of its time {words.because} "
        f"({compared}); without it the kernel runs at most {bound:.2f} x as fast"
    )
    own = Evidence(
        SHARE,
        Quantity(share, "ratio"),
        f"counters of the longest launch; its busiest unit is {limits.top.name}, {share_text(limits.top.busy)} of peak",
        limit=Quantity(against, "ratio"),
        table="kernel_profiles",
        rows=launches.profiles,
    )
    return Finding(
        message=message,
        bottleneck=words.bottleneck or Bottleneck(cause.value),
        where=Where(kernel=limits.kernel.name),
        evidence=(own, *words.evidence),
        advice=words.advice,
        verify=(
            "Profile the kernel again with the same clock and cache settings: its time falls by at most the stated "
            "part. The milliseconds are of the profiled launches; a timeline says what they are of a step."
        ),
        recoverable=Quantity(launches.gain_ns / NS_PER_MS, "ms", low=0.0, high=launches.most_ns / NS_PER_MS),
    )


def _placed(finding: Finding, launches: Launches, matches: Mapping[tuple[int, int], KernelMatch]) -> Finding:
    """With a timeline beside the report: the gain in milliseconds of a step instead of the profiled launches'."""
    match = matches.get((launches.longest.kernel.rank, launches.longest.kernel.profile))
    if match is None or not launches.total_ns:
        return finding
    per_ns = match.step_ns / launches.total_ns
    value, high = launches.gain_ns * per_ns / NS_PER_MS, launches.most_ns * per_ns / NS_PER_MS
    loosely = "" if match.is_exact else " of the same function, grid and block"
    message = (
        f"{finding.message}; the timeline has {match.count} launches{loosely}, {time_text(match.step_ns)} of a step: "
        f"the step gains at most {time_text(high * NS_PER_MS)}"
    )
    return replace(
        finding,
        message=message,
        claim=Claim(match.intervals),
        recoverable=Quantity(value, "ms", low=0.0, high=high),
        verify="Profile the kernel again with the same clock and cache settings, then time unprofiled steps.",
    )


def _largest(known: list[KernelLimits], cause: Cause, limit: float | None) -> tuple[Evidence, ...]:
    worst = max(known, key=lambda one: (one.shares[cause], -one.kernel.profile), default=None)
    if worst is None:
        return ()
    how = f"largest of {len(known)} launches: {worst.kernel.function}"
    return (
        Evidence(
            SHARE,
            Quantity(worst.shares[cause], "ratio"),
            how,
            limit=Quantity(_against(worst, cause, limit), "ratio"),
            table="kernel_profiles",
            rows=(worst.kernel.profile,),
        ),
    )


def _silence(silent: list[KernelCounters]) -> str:
    failed = [kernel for kernel in silent if kernel.failed]
    named = ", ".join(f"{kernel.function} (launch {kernel.profile})" for kernel in (failed or silent)[:_NAMES_SHOWN])
    more = len(silent) - _NAMES_SHOWN
    tail = f" and {more} more" if more > 0 else ""
    if failed:
        return f"the passes that measure {named}{tail} failed: its counters are NaN"
    return f"no throughput of any unit was collected for {named}{tail}"
