"""Rules about single kernels, from a kernel profiler's counters. Kernels too small to profile alone are one finding."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from timesink.diagnosis.rule import rule_texts
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Where
from timesink.knowledge.kernel_names import short_name
from timesink.measures.counters.bounds import fused_bound
from timesink.measures.counters.comparison import KernelMatch
from timesink.measures.counters.limiter import KernelLimits
from timesink.measures.counters.waste import Cause
from timesink.records import replace
from timesink.units import NS_PER_MS, NS_PER_US, share_text, time_text

WAITING: Final = (Cause.OCCUPANCY, Cause.LATENCY)
_ALONE_US: Final = rule_texts("occupancy").limits["alone_us"].default
_NO_BLOCKS: Final = 0.9  # of the SMs' time
_FEW_SMS: Final = 2  # times as long
FUSE: Final = "Fuse it with its neighbors, or replay a CUDA graph; alone it is too small to matter."


def is_tiny(limits: KernelLimits, alone_us: float = _ALONE_US) -> bool:
    """Whether it waits, and is too short for anything done to it alone to matter; twice as long where nearly all SMs
    have no block: what is there to do fits a few of them."""
    most_us = alone_us * (_FEW_SMS if (limits.occupancy.sm_idle or 0.0) >= _NO_BLOCKS else 1)
    return limits.limiter in WAITING and (limits.kernel.duration_ns or inf) < most_us * NS_PER_US


def together(tiny: list[KernelLimits], alone_us: float, matches: Mapping[tuple[int, int], KernelMatch]) -> Finding:
    """The one finding about kernels that are too small to profile alone."""
    longest = max(tiny, key=lambda limits: (limits.kernel.duration_ns or 0.0, -limits.kernel.profile))
    total_ns = sum(limits.kernel.duration_ns or 0.0 for limits in tiny)
    waiting = sum((limits.kernel.duration_ns or 0.0) * sum(limits.shares[c] for c in WAITING) for limits in tiny)
    kernels = len({limits.kernel.name for limits in tiny})
    what = (
        f"{kernels} kernels ({len(tiny)} launches, {time_text(total_ns)}) are"
        if kernels > 1
        else f"kernel {short_name(longest.kernel.name)} ({time_text(total_ns)}) is"
    )
    less_us = alone_us * (_FEW_SMS if (longest.kernel.duration_ns or 0.0) >= alone_us * NS_PER_US else 1)
    evidence = Evidence(
        "longest launch too small to profile alone",
        Quantity((longest.kernel.duration_ns or 0.0) / NS_PER_US, "us"),
        f"of {len(tiny)} launches that wait for launch, blocks or loads",
        limit=Quantity(less_us, "us"),
        table="kernel_profiles",
        rows=tuple(limits.kernel.profile for limits in tiny),
    )
    finding = Finding(
        message=f"{what} too small to profile alone: a launch takes less than {less_us:g} us, "
        f"{share_text(waiting / total_ns)} of it waiting; fuse {'them' if kernels > 1 else 'it'}",
        bottleneck=Bottleneck.OCCUPANCY,
        where=Where(kernel=longest.kernel.name),
        evidence=(evidence,),
        advice=FUSE,
        verify="Capture a timeline again: fewer launches, and less time in them.",
        stated=Quantity.ms(waiting, 0.0, total_ns * (1 - 1 / fused_bound(total_ns))),
    )
    found = {id(match): match for one in tiny if (match := matches.get((one.kernel.rank, one.kernel.profile)))}
    return _in_steps(finding, list(found.values()), waiting / total_ns) if found else finding


def _in_steps(finding: Finding, matches: list[KernelMatch], ratio: float) -> Finding:
    """The finding about several kernels with the time that a timeline gives them; `ratio` of it could be saved."""
    intervals = dict(matches[0].intervals)
    for match in matches[1:]:
        for device, some in match.intervals.items():
            intervals[device] = intervals[device] | some if device in intervals else some
    step_ms = sum(match.step_ns for match in matches) / NS_PER_MS
    return replace(
        finding,
        message=f"{finding.message}; in the timeline they take {time_text(step_ms * NS_PER_MS)} of a step",
        claim=Claim(intervals),
        stated=Quantity(step_ms * ratio, "ms", low=0.0, high=step_ms),
    )
