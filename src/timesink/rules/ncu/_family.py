"""What the rules on single kernels share: how the launches of a kernel profiler's report become findings.

A kernel's time is divided among causes (`measures.counters.limiter`). Each rule owns one cause and speaks where the
cause limits the kernel, or where its share of the time passes the rule's limit. The shares of a kernel add up to its
time, so findings about one kernel add up too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Final

from timesink.diagnosis.registry import rule_modules
from timesink.diagnosis.rule import Limits, Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Evidence,
    Finding,
    Found,
    Limit,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.knowledge.kernel_names import library_of, short_name
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.measures.counters.comparison import KernelMatch, kernel_matches
from timesink.measures.counters.counters import KernelCounters, kernel_counters
from timesink.measures.counters.limiter import KernelLimits, kernel_limits, why_unexplained
from timesink.measures.counters.waste import Cause
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, HOST_OPS, KERNEL_METRICS, KERNEL_PROFILES, RANGES
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text

_CAPTURE: Final = "ncu --set full --import-source off --clock-control none -o report PROGRAM"
WASTE_RATIO: Final = Limit(
    default=0.2,
    unit="ratio",
    why="below a fifth of the kernel's time another cause is larger or the kernel is near its roof",
    source="34 kernels of known limiter (benchmarks/kernels)",
)
ALLOW_TF32: Final = (
    'Allow TF32: torch.set_float32_matmul_precision("high"); or run the products in bf16 under autocast: the tensor '
    "cores do them at many times the rate."
)
_SHARE: Final = "share of the kernel's time"
_NAMES_SHOWN: Final = 3  # as many as fit in a sentence


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a rule says of one kernel: the end of its sentence, its evidence, its advice."""

    because: str
    evidence: tuple[Evidence, ...]
    advice: str
    bottleneck: Bottleneck | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CausePattern:
    """A rule that owns one cause of a kernel's time. `explain` says what that means for one launch."""

    cause: Cause
    explain: Callable[[KernelLimits], Explanation]


_PATTERNS: Final[dict[Cause, CausePattern]] = {}


def cause_rule(
    code: str,
    cause: Cause,
    explain: Callable[..., Explanation],
    references: tuple[str, ...],
    limits: Mapping[str, Limit] | None = None,
) -> Rule:
    """The rule of the module of `explain`, which owns the cause. Its limit `time_ratio`, where it has one, is a share
    of the kernel's time; `explain` takes any other limit by name."""
    _PATTERNS[cause] = CausePattern(cause, explain)

    def check(trace: Trace, limits: Limits) -> Verdict:
        """Found for each kernel that this cause limits, or in which its share of the time passes the limit."""
        others = {name: limits[name] for name in declared if name != "time_ratio"}
        share = limits["time_ratio"] if "time_ratio" in declared else None
        return cause_verdict(CausePattern(cause, partial(explain, **others)), trace, share)

    declared, check.__module__ = limits or {}, explain.__module__
    return Rule(
        code,
        check,
        limits=declared,
        references=references,
        needs=(KERNEL_PROFILES, KERNEL_METRICS),
        reads=(DEVICES, DEVICE_OPS, RANGES, HOST_OPS, API_CALLS),
        capture=_CAPTURE,
    )


@dataclass(frozen=True, slots=True)
class LaunchGroup:
    """Launches of one kernel with the same grid and block; `longest` is the one that is described."""

    longest: KernelLimits
    profiles: tuple[int, ...]
    total_ns: float
    gain_ns: float
    most_ns: float


def cause_verdict(pattern: CausePattern, trace: Trace, limit: float | None = None) -> Verdict:
    """Found for each kernel that the cause limits, or in which its share of the time passes `limit`; largest gain
    first. Undecided where nothing is found and counters are missing for some kernel."""
    cause, all_limits = pattern.cause, kernel_limits(trace)
    measured = [limits for limits in all_limits if limits is not None]
    findings = tuple(
        _on_timeline(_finding(group, pattern, limit), group, kernel_matches(trace))
        for group in _groups(measured, cause)
        if group.longest.limiter is cause or (limit is not None and group.longest.shares[cause] > limit)
    )
    if findings:
        return Found(findings)
    kernels = zip(kernel_counters(trace), all_limits, strict=True)
    unmeasured = [counters for counters, limits in kernels if limits is None]
    if unmeasured:
        return Undecided(_why_unmeasured(unmeasured), _CAPTURE)
    return Clear(_largest_share(measured, cause, limit))


def explain_limiter(limits: KernelLimits) -> Explanation:
    """What the rule that owns a kernel's limiter says of it."""
    rule_modules("ncu")  # each declares the cause that it owns
    return _PATTERNS[limits.limiter].explain(limits)


def bottleneck_of(limits: KernelLimits) -> Bottleneck:
    """The name of a kernel's limiter in a diagnosis."""
    return explain_limiter(limits).bottleneck or Bottleneck(limits.limiter.value)


def is_fp32_product(limits: KernelLimits) -> bool:
    """Whether the kernel is a library's matrix product in fp32, which tensor cores would take in TF32."""
    decoded = decode(limits.kernel.name)
    return decoded.family is KernelFamily.GEMM and decoded.math == "fp32" and library_of(limits.kernel.name) != ""


def counter_evidence(label: str, value: float, unit: str, how: str, limits: KernelLimits) -> Evidence:
    """One counter behind a finding, with the launch it belongs to."""
    return Evidence(label, Quantity(value, unit), how, table="kernel_profiles", rows=(limits.kernel.profile,))


def gain_ns(limits: KernelLimits, cause: Cause) -> float:
    """Time of the launch that the cause takes, at most what the next ceiling leaves."""
    return min((limits.kernel.duration_ns or 0.0) * limits.shares[cause], most_ns(limits, cause))


def most_ns(limits: KernelLimits, cause: Cause) -> float:
    """Time of the launch that could be saved if the cause were gone: down to the next ceiling."""
    return (limits.kernel.duration_ns or 0.0) * (1 - 1 / limits.bounds[cause])


def _compared_with(limits: KernelLimits, cause: Cause, limit: float | None) -> float:
    """What a share is compared with: the rule's limit, or for a rule without one the largest share of another cause."""
    return limit if limit is not None else max(share for other, share in limits.shares.items() if other is not cause)


def _groups(measured: list[KernelLimits], cause: Cause) -> list[LaunchGroup]:
    """Launches by kernel, grid and block, the group with the largest gain first."""
    groups: dict[tuple[object, ...], list[KernelLimits]] = {}
    for limits in measured:
        groups.setdefault((limits.kernel.name, limits.kernel.grid, limits.kernel.block), []).append(limits)
    merged = [
        LaunchGroup(
            max(group, key=lambda launch: (gain_ns(launch, cause), launch.shares[cause], -launch.kernel.profile)),
            tuple(launch.kernel.profile for launch in group),
            sum(launch.kernel.duration_ns or 0.0 for launch in group),
            sum(gain_ns(launch, cause) for launch in group),
            sum(most_ns(launch, cause) for launch in group),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda group: (-group.gain_ns, group.profiles))


def _finding(group: LaunchGroup, pattern: CausePattern, limit: float | None) -> Finding:
    limits, cause = group.longest, pattern.cause
    explanation = pattern.explain(limits)
    compared_with = _compared_with(limits, cause, limit)
    compared = f" (next cause {share_text(compared_with)})" if limit is None else ""
    count = len(group.profiles)
    times = f"{count} launches, {time_text(group.total_ns)}" if count > 1 else time_text(group.total_ns)
    evidence = Evidence(
        _SHARE,
        Quantity(limits.shares[cause], "ratio"),
        f"counters of the longest launch; its busiest unit is {limits.top.name}, {share_text(limits.top.busy)} of peak",
        limit=Quantity(compared_with, "ratio"),
        table="kernel_profiles",
        rows=group.profiles,
    )
    return Finding(
        message=f"kernel {short_name(limits.kernel.name)} ({times}) spends {share_text(limits.shares[cause])} "
        f"of its time {explanation.because}{compared}; {_without(limits.bounds[cause])}",
        bottleneck=explanation.bottleneck or Bottleneck(cause.value),
        where=Where(kernel=limits.kernel.name),
        evidence=(evidence, *explanation.evidence),
        advice=explanation.advice,
        verify="Profile the kernel again with the same clock and cache settings: its time falls by at most the stated "
        "part. The milliseconds are of the profiled launches; a timeline says what they are of a step.",
        stated=Quantity(group.gain_ns / NS_PER_MS, "ms", low=0.0, high=group.most_ns / NS_PER_MS),
    )


def _without(bound: float) -> str:
    """What the kernel would win if the cause were gone."""
    return (
        f"without it the kernel runs at most {bound:.2f} x as fast" if isfinite(bound) else "no other limit is measured"
    )


def _on_timeline(finding: Finding, group: LaunchGroup, matches: Mapping[tuple[int, int], KernelMatch]) -> Finding:
    """Where a timeline was read with the report: the gain in milliseconds of a step, not of the profiled launches."""
    match = matches.get((group.longest.kernel.rank, group.longest.kernel.profile))
    if match is None or not group.total_ns:
        return finding
    step_ratio = match.step_ns / group.total_ns
    value_ms, high_ms = group.gain_ns * step_ratio / NS_PER_MS, group.most_ns * step_ratio / NS_PER_MS
    loosely = "" if match.is_exact else " of the same function, grid and block"
    return replace(
        finding,
        message=f"{finding.message}; the timeline has {match.count} launches{loosely}, {time_text(match.step_ns)} of a "
        "step",
        claim=Claim(match.intervals),
        stated=Quantity(value_ms, "ms", low=0.0, high=high_ms),
        verify="Profile the kernel again with the same clock and cache settings, then time unprofiled steps.",
    )


def _largest_share(measured: list[KernelLimits], cause: Cause, limit: float | None) -> tuple[Evidence, ...]:
    worst = max(measured, key=lambda limits: (limits.shares[cause], -limits.kernel.profile), default=None)
    if worst is None:
        return ()
    how = f"largest of {len(measured)} launches: {worst.kernel.function}"
    evidence = counter_evidence(_SHARE, worst.shares[cause], "ratio", how, worst)
    return (replace(evidence, limit=Quantity(_compared_with(worst, cause, limit), "ratio")),)


def _why_unmeasured(kernels: list[KernelCounters]) -> str:
    """The reason of most importance: failed passes before what a page leaves out."""
    kernels = sorted(kernels, key=lambda kernel: not kernel.is_failed)
    shown = kernels[:_NAMES_SHOWN]
    names = ", ".join(f"{kernel.function} (launch {kernel.profile})" for kernel in shown)
    more = len(kernels) - _NAMES_SHOWN
    return f"{names}{f' and {more} more' if more > 0 else ''}: {why_unexplained(shown[0])}"
