"""What the rules on single kernels share: how the launches of a kernel profiler's report become findings.

A kernel's time is divided among causes (`measures.counters.limiter`). Each rule owns one cause and speaks where the
cause limits the kernel, or where its share of the time passes the rule's limit. The shares of a kernel add up to its
time, so findings about one kernel add up too. Kernels too small to profile alone are one finding.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf, isfinite
from typing import Any, Final

from timesink.diagnosis.judge import fill_template
from timesink.diagnosis.registry import rule_modules
from timesink.diagnosis.rule import Limits, Rule, make_rule, rule_texts
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
from timesink.knowledge.kernel_names import short_name
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.bounds import PRODUCT_WORK, fused_bound, is_fp32_product
from timesink.measures.counters.comparison import KernelMatch, kernel_matches
from timesink.measures.counters.limiter import KernelLimits, kernel_limits, why_unexplained
from timesink.measures.counters.waste import Cause
from timesink.model.trace import Trace
from timesink.records import Record, replace
from timesink.units import NS_PER_MS, NS_PER_US, share_range_text, share_text, time_text, times_text

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


_CAPTURE: Final = "ncu --set full --import-source off --clock-control none -o report PROGRAM"
BEYOND_LEVELS: Final = "this page says how busy memory is, not whether its accesses waste it, nor what warps wait for"
_SHARE: Final = "share of the kernel's time"
_NAMES_SHOWN: Final = 3  # as many as fit in a sentence


class Explanation(Record):
    """What a rule says of one kernel: the end of its sentence, its evidence, its advice."""

    because: str
    evidence: tuple[Evidence, ...]
    advice: str
    bottleneck: Bottleneck | None = None


Explain = Callable[[KernelLimits], Explanation]
"""What a cause means for one launch."""
_OWNED: Final[dict[Cause, Explain]] = {}


def cause_rule(name: str, cause: Cause, figures: Callable[..., dict[str, Any]]) -> Rule:
    """The rule that owns a cause. Its limit `time_ratio`, where it has one, is a share of the kernel's time; `figures`,
    what its facts and texts say of one launch, takes any other limit by name: its `advice` is a text, or the variant
    whose advice it is."""

    def explain(kernel: KernelLimits, /, **others: float) -> Explanation:
        measured = figures(kernel, **others)
        told, advice = texts.told_to(kernel.kernel.program), measured.get("advice") or ""
        of_variant = told.variants.get(measured.get("variant", ""), {})
        said, known = {**told.said, **of_variant}, {**measured, **of_variant}
        counters = [
            (fill_template(fact.label, known), measured[fact.figure], fact.unit, fill_template(fact.how, known))
            for fact in texts.facts
            if measured.get(fact.figure) is not None
        ]
        return Explanation(
            fill_template(said["message"], known),
            counted(kernel, *counters, *measured.get("more", ())),
            told.variants[advice]["advice"]
            if advice in told.variants
            else advice or fill_template(said["advice"], known),
            measured.get("bottleneck"),
        )

    def check(trace: Trace, limits: Limits) -> Verdict:
        """Found for each kernel that this cause limits, or in which its share of the time passes the limit."""
        others = {name: limits[name] for name in declared if name not in ("time_ratio", "alone_us")}
        share = limits["time_ratio"] if "time_ratio" in declared else None
        alone_us = limits["alone_us"] if "alone_us" in declared else 0.0
        return cause_verdict(cause, partial(explain, **others), trace, share, alone_us)

    texts = rule_texts(name)
    declared = texts.limits
    asked = {limit: declared[limit].default for limit in declared if limit not in ("time_ratio", "alone_us")}
    _OWNED[cause] = partial(explain, **asked)
    return make_rule(name, check)


class LaunchGroup(Record):
    """Launches of one kernel with the same grid and block; `longest` is the one that is described."""

    longest: KernelLimits
    profiles: tuple[int, ...]
    total_ns: float
    gain_ns: float
    most_ns: float


def cause_verdict(
    cause: Cause, explain: Explain, trace: Trace, limit: float | None = None, alone_us: float = 0.0
) -> Verdict:
    """Found for each kernel that the cause limits, or in which its share of the time passes `limit`; largest gain
    first. Undecided where nothing is found and counters are missing for some kernel. Kernels that wait and are shorter
    than `alone_us` are one finding of occupancy together, and none of latency."""
    all_limits = kernel_limits(trace)
    every = [limits for limits in all_limits if limits is not None]
    tiny = [limits for limits in every if is_tiny(limits, alone_us)]
    measured = [limits for limits in every if not is_tiny(limits, alone_us)]
    findings = [
        _on_timeline(_finding(group, cause, explain, limit), group, kernel_matches(trace))
        for group in _groups(measured, cause)
        if group.longest.limiter is cause or (limit is not None and _share(group.longest, cause) > limit)
    ]
    if tiny and cause is Cause.OCCUPANCY:
        findings.append(together(tiny, alone_us, kernel_matches(trace)))
    if findings:
        return Found(tuple(findings))
    kernels = zip(kernel_counters(trace), all_limits, strict=True)
    unmeasured = [counters for counters, limits in kernels if limits is None or limits.has_levels_only]
    if unmeasured:
        return Undecided(_why_unmeasured(unmeasured), _CAPTURE)
    return Clear(_largest_share(measured, cause, limit))


def explain_limiter(limits: KernelLimits) -> Explanation:
    """What the rule that owns a kernel's limiter says of it."""
    rule_modules("ncu")  # each declares the cause that it owns
    return _OWNED[limits.limiter](limits)


def bottleneck_of(limits: KernelLimits) -> Bottleneck:
    """The name of a kernel's limiter in a diagnosis."""
    return explain_limiter(limits).bottleneck or Bottleneck(limits.limiter.value)


# What keeps tensor cores from their operands, by the largest stall reason.
_OF_MEMORY: Final = "Add pipeline stages to feed the tensor cores from memory: asynchronous copies, TMA, larger tiles."
_OF_SHARED: Final = (
    "Swizzle the shared-memory layout: tensor cores wait for it; load whole matrices, use larger tiles per warp."
)
_OF_OTHERS: Final = (
    "Specialize warps: let some load and others multiply, so that one tile's end overlaps the next products."
)
_OPERANDS: Final = {
    **dict.fromkeys(("long_scoreboard", "lg_throttle"), _OF_MEMORY),
    **dict.fromkeys(("short_scoreboard", "mio_throttle"), _OF_SHARED),
    **dict.fromkeys(("barrier", "sleeping", "membar"), _OF_OTHERS),
}
_BUSY_TENSOR: Final = 0.6  # of its peak: below it tensor cores wait more than the field takes for well fed
_SOME_TENSOR: Final = 0.05  # of its peak: below it products are not what the kernel is for


def operands_advice(limits: KernelLimits) -> str | None:
    """What to do for a product whose tensor cores wait for their operands; None for other kernels."""
    roofs = limits.roofline.compute if limits.roofline is not None else ()
    tensor = max((roof.share for roof in roofs if roof.path != "cuda"), default=0.0)
    top = limits.stalls.top if limits.stalls is not None else None
    return _OPERANDS.get(top[0]) if top is not None and _SOME_TENSOR < tensor < _BUSY_TENSOR else None


Counter = tuple[str, float | None, str, str]
"""The label of a counter, its value, its unit, and how it was measured."""


def counted(limits: KernelLimits, *counters: Counter) -> tuple[Evidence, ...]:
    """The counters behind a finding that were recorded, with the launch they belong to."""
    rows = (limits.kernel.profile,)
    return tuple(
        Evidence(label, Quantity(value, unit), how, table="kernel_profiles", rows=rows)
        for label, value, unit, how in counters
        if value is not None
    )


def gain_ns(limits: KernelLimits, cause: Cause) -> float:
    """Time of the launch that the cause takes, at most what the next ceiling leaves; of necessary work what its roof
    leaves, with the same bytes and operations."""
    if cause in PRODUCT_WORK and is_fp32_product(limits.kernel):
        return most_ns(limits, cause)  # another kernel does the products: how fast is not known, only its bound
    length_ns = limits.kernel.duration_ns or 0.0
    gain = min(length_ns * limits.shares[cause], most_ns(limits, cause))
    return min(gain, length_ns * max(0.0, 1 - limits.roof[1])) if cause in _SAME and cause is limits.limiter else gain


def _share(limits: KernelLimits, cause: Cause) -> float:
    """The cause's share of the time; none where a page says nothing of it."""
    return 0.0 if limits.has_levels_only and cause is not limits.limiter else limits.shares[cause]


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


def _finding(group: LaunchGroup, cause: Cause, explain: Explain, limit: float | None) -> Finding:
    limits = group.longest
    explanation = explain(limits)
    compared_with = _compared_with(limits, cause, limit)
    compared = f" (next cause {share_text(compared_with)})" if limit is None and not limits.has_levels_only else ""
    spent = share_range_text(limits.shares[cause], limits.most_share(cause))
    count = len(group.profiles)
    total = time_text(group.total_ns) if group.total_ns else "length not recorded"
    times = f"{count} launches, {total}" if count > 1 else total
    evidence = Evidence(
        _SHARE,
        Quantity(limits.shares[cause], "ratio"),
        f"counters of the longest launch; its busiest unit is {limits.top.name}, {share_text(limits.top.busy)} of peak",
        limit=Quantity(compared_with, "ratio"),
        table="kernel_profiles",
        rows=group.profiles,
    )
    return Finding(
        message=f"kernel {short_name(limits.kernel.name)} ({times}) spends {spent} of its "
        f"time {explanation.because}{compared}; {_to_roof(limits, cause) or _without(limits, cause)}",
        bottleneck=explanation.bottleneck or Bottleneck(cause.value),
        where=Where(kernel=limits.kernel.name),
        evidence=(evidence, *explanation.evidence),
        advice=explanation.advice,
        verify="Profile the kernel again with the same clock and cache settings: its time falls by at most the stated "
        "part. The milliseconds are of the profiled launches; a timeline says what they are of a step.",
        stated=Quantity.ms(group.gain_ns, 0.0, group.most_ns),
    )


_SAME: Final = {Cause.MEMORY: "bytes", Cause.COMPUTE: "operations"}


def _to_roof(limits: KernelLimits, cause: Cause) -> str:
    """How far a kernel of necessary work is from the roof of its busiest unit, and what lies beyond; '' for others."""
    if cause not in _SAME or cause is not limits.limiter or limits.roof_speedup is None:
        return ""
    name, share = limits.roof
    bound, same = limits.bounds[cause], _SAME[cause]
    beyond = f", {times_text(bound)} with fewer" if isfinite(bound) and bound * share > 1 else ""
    to_roof = f"at most {times_text(limits.roof_speedup)} as fast with the same {same}{beyond}"
    return f"it runs at {share_text(share)} of its {name} roof: {to_roof}"


def _without(limits: KernelLimits, cause: Cause) -> str:
    """What the kernel would win if the cause were gone; of latency apart, if it were hidden only."""
    bound, hidden = limits.bounds[cause], limits.bound_of_hidden_waits
    if cause is Cause.LATENCY and hidden < bound:
        fewer = f", {times_text(bound)} with fewer waits" if isfinite(bound) else ""
        return f"hiding its waits makes the kernel at most {times_text(hidden)} as fast{fewer}"
    return (
        f"without it the kernel is at most {times_text(bound)} as fast" if isfinite(bound) else "no other limit known"
    )


def _on_timeline(finding: Finding, group: LaunchGroup, matches: Mapping[tuple[int, int], KernelMatch]) -> Finding:
    """Where a timeline was read with the report: the gain in milliseconds of a step, not of the profiled launches."""
    match = matches.get((group.longest.kernel.rank, group.longest.kernel.profile))
    if match is None or not group.total_ns:
        return finding
    step_ratio = match.step_ns / group.total_ns
    loosely = "" if match.is_exact else " of the same function, grid and block"
    return replace(
        finding,
        message=f"{finding.message}; the timeline has {match.count} launches{loosely}, {time_text(match.step_ns)} of a "
        "step",
        claim=Claim(match.intervals),
        stated=Quantity.ms(group.gain_ns * step_ratio, 0.0, group.most_ns * step_ratio),
        verify="Profile the kernel again with the same clock and cache settings, then time unprofiled steps.",
    )


def _largest_share(measured: list[KernelLimits], cause: Cause, limit: float | None) -> tuple[Evidence, ...]:
    worst = max(measured, key=lambda limits: (limits.shares[cause], -limits.kernel.profile), default=None)
    if worst is None:
        return ()
    how = f"largest of {len(measured)} launches: {worst.kernel.function}"
    (evidence,) = counted(worst, (_SHARE, worst.shares[cause], "ratio", how))
    return (replace(evidence, limit=Quantity(_compared_with(worst, cause, limit), "ratio")),)


def _why_unmeasured(kernels: list[KernelCounters]) -> str:
    """The reason of most importance: failed passes before what a page leaves out."""
    kernels = sorted(kernels, key=lambda kernel: not kernel.is_failed)
    shown = kernels[:_NAMES_SHOWN]
    names = ", ".join(f"{kernel.function} (launch {kernel.profile})" for kernel in shown)
    more = len(kernels) - _NAMES_SHOWN
    return f"{names}{f' and {more} more' if more > 0 else ''}: {why_unexplained(shown[0]) or BEYOND_LEVELS}"
