"""The rules on single kernels, one for each cause of a kernel's time.

A kernel's time is divided among causes (`measures.counters.limiter`). Each rule owns the cause that is called as it is,
and speaks where that limits the kernel, or where its share of the time passes the rule's limit. The shares of a kernel
add up to its time, so findings about one kernel add up too. Kernels too small to profile alone are one finding.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from math import inf, isfinite
from typing import Any, Final

from timesink.diagnosis.judge import Row, Rows, declare, fill_template, said_advice
from timesink.diagnosis.rule import Limits, Rule, rule_texts
from timesink.diagnosis.verdicts import Claim, Clear, Evidence, Quantity, Undecided, Where
from timesink.knowledge.kernel_names import short_name
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.bounds import awake_ns, fused_bound, idle_clock_hz
from timesink.measures.counters.busiest import OF_MEMORY, OF_OTHERS, OF_SHARED
from timesink.measures.counters.causes import (
    AT_ROOF,
    BYTES_TO_ROOF,
    CODE_TO_ROOF,
    COPIES_TO_ROOF,
    FEW_SMS,
    FUSE,
    LOADS_TO_ROOF,
    NECESSARY,
    OPERATIONS_TO_ROOF,
    OPTIMIZE,
    WAITING,
    Figures,
    advised_bound,
    as_it_is,
    bound_in_fp32,
    cause_name,
    compared_with,
    figures_of,
    gain_ns,
    is_tiny,
    next_cause,
    share_of,
    told_most,
    wins_by_less_work,
)
from timesink.measures.counters.comparison import KernelMatch, kernel_matches
from timesink.measures.counters.groups import LaunchGroup, launch_groups
from timesink.measures.counters.limiter import KernelLimits, kernel_limits, why_unexplained
from timesink.measures.counters.waste import Cause
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import replace
from timesink.units import NS_PER_MS, NS_PER_US, share_range_text, share_text, time_text, times_text

_CAPTURE: Final = "ncu --set full --import-source off --clock-control none -o report PROGRAM"
BEYOND_LEVELS: Final = "this page says how busy memory is, not whether its accesses waste it, nor what warps wait for"
_NAMES_SHOWN: Final = 3  # as many as fit in a sentence
_SURELY: Final = 0.01  # of the time: less is nothing that surely is the cause's
_ALIKE: Final = 0.01  # of the time: shares that differ by less say the same
_MOST_OF: Final = 0.9  # of the time: no estimate says more
_AGAIN: Final = "Profile the kernel again with the same clock and cache settings"
_FALLS: Final = (
    f"{_AGAIN}: its time falls by at most the stated part. The milliseconds are of the profiled launches; a timeline "
    "says what they are of a step."
)
ADVICE: Final = {
    FUSE: "Fuse it with its neighbors, or replay a CUDA graph; alone it is too small to matter.",
    OPTIMIZE: "Compile with optimization, without -G or -O0, and profile again: each instruction waits 10 cycles or "
    "more for the one before it, as only unoptimized code does.",
    OF_MEMORY: "Add pipeline stages to feed the tensor cores from memory: asynchronous copies, TMA, larger tiles.",
    OF_SHARED: "Swizzle the shared-memory layout: tensor cores wait for it; load whole matrices, use larger tiles per "
    "warp.",
    BYTES_TO_ROOF: "Keep more bytes in flight, up to the roof: 16-byte loads per lane, several loads a warp.",
    LOADS_TO_ROOF: "Keep more bytes in flight, up to the roof: several loads a warp, more warps; they are 16 bytes "
    "wide.",
    COPIES_TO_ROOF: "Keep more bytes in flight, up to the roof: more stages of asynchronous copies, larger tiles.",
    CODE_TO_ROOF: "Unroll less and keep cold paths out of line, up to the roof: warps wait for instructions; the code "
    "does not fit their caches.",
    OPERATIONS_TO_ROOF: "Keep warps ready, up to the roof: independent instructions, more warps, fewer barriers.",
    OF_OTHERS: "Specialize warps: let some load and others multiply, so that one tile's end overlaps the next "
    "products.",
}
"""What helps whatever the cause is called."""


def actions(explained: Iterable[tuple[KernelCounters, KernelLimits | None]]) -> tuple[str, ...]:
    """What to do about the limiter of each launch; of one without, why it is undecided."""
    return tuple(
        f"Undecided: {why_unexplained(kernel)}." if limits is None else said_of(limits)[1]
        for kernel, limits in explained
    )


def said_of(limits: KernelLimits) -> tuple[str, str]:
    """What the rule that owns a launch's limiter says: where the time goes, and what to do."""
    texts = rule_texts(_rule_name(limits.limiter)).told_to(limits.kernel.program)
    figures = {"spends": "", "then": "", **_worded(figures_of(limits, limits.limiter))}
    of_variant = texts.variants.get(figures["variant"], {})
    where = fill_template({**texts.said, **of_variant}["message"], {**figures, **of_variant})
    return where, said_advice(texts, figures["variant"], figures["advice"], figures)


def _rule_name(cause: Cause) -> str:
    return cause.value.replace("_", "-")


def _worded(figures: Figures) -> Figures:
    """The figures of a launch with their names in words."""
    known = {"variant": "", "advice": "", **figures}
    known["advice"] = ADVICE.get(known["advice"] or "", known["advice"] or "")
    known |= {name: ADVICE[known[name]] for name in ("operands", "reach") if known.get(name)}
    if known.get("beside"):
        known["beside"] = rule_texts("compute-bound-kernel").variants[known["beside"]]["words"]
    return known


def _rows(cause: Cause, trace: Trace, limits: Limits) -> Rows:
    """A row for each kernel that the cause limits, or in which its share of the time passes the limit; largest gain
    first. Undecided where there is none and counters are missing for some kernel. Kernels that wait and are shorter
    than the rule's `alone_us` are one finding of occupancy together, and none of latency."""
    declared = rule_texts(_rule_name(cause)).limits
    limit = limits["time_ratio"] if "time_ratio" in declared else None
    alone_us = limits["alone_us"] if "alone_us" in declared else 0.0
    told = (
        partial(_figures, cause, slow_fp64=limits["fp64_ratio"]) if cause is Cause.COMPUTE else partial(_figures, cause)
    )
    all_limits = kernel_limits(trace)
    every = [one for one in all_limits if one is not None]
    tiny = [one for one in every if is_tiny(one, alone_us)]
    measured = [one for one in every if not is_tiny(one, alone_us)]
    matches = kernel_matches(trace)
    longer = _longest_undecided(trace)
    found = [
        _on_timeline(_beside(_row(group, cause, told(group.longest), limit), group, longer), group, matches)
        for group in launch_groups(measured, cause)
        if group.longest.limiter is cause or (limit is not None and share_of(group.longest, cause) > limit)
    ]
    if tiny and cause is Cause.OCCUPANCY:
        found.append(_together(tiny, alone_us, matches))
    if found:
        return found if not trace.get(DEVICE_OPS).height else [_apart(row) for row in found]
    kernels = zip(kernel_counters(trace), all_limits, strict=True)
    unmeasured = [counters for counters, one in kernels if one is None or one.has_levels_only or one.others]
    if unmeasured:
        return Undecided(_why_unmeasured(unmeasured), _CAPTURE)
    return [_clear(measured, cause, limit)] if measured else Clear(())


def _figures(cause: Cause, limits: KernelLimits, **others: float) -> Figures:
    name = cause_name(limits, cause, **others)
    return {**_worded(figures_of(limits, cause, **others)), "bottleneck": Bottleneck(name)}


def spent_text(limits: KernelLimits, cause: Cause, won: float = 0.0) -> str:
    """The share of the kernel's time that the cause takes: a range, or the most where nothing surely is its own; no
    less than what is `won` of it at most."""
    least, most = limits.least_share(cause), max(told_most(limits, cause), won)
    return share_range_text(least, most) if least >= _SURELY else f"at most {share_text(most)}"


def _row(group: LaunchGroup, cause: Cause, figures: Figures, limit: float | None) -> Row:
    """What is found of launches of one kernel: the figures of the longest."""
    limits = group.longest
    compared = compared_with(limits, cause, limit)
    count = group.count
    total = time_text(group.total_ns) if group.total_ns else "length not recorded"
    times = f"{count} launches of {total} in all" if count > 1 else total
    is_limiter = cause is limits.limiter
    beside = next_cause(limits) if is_limiter else None
    then = "" if beside is None else f". The next cause, {beside[0]}, takes {share_text(beside[1])}"
    won = group.most_ns / group.total_ns if is_limiter and limits.doubt and group.total_ns else 0.0
    spent = spent_text(limits, cause, won)
    spends = "may spend all of its time" if spent == f"at most {share_text(1.0)}" else f"spends {spent} of its time"
    doubt = f"{_two_ways(limits, cause, won)}{limits.doubt}" if is_limiter and limits.doubt else ""
    return Row(
        (limits.kernel.rank, 0),
        {
            **figures,
            "spends": f"{_named(limits)}, {times}, {spends}",
            "then": doubt or f"{_to_roof(limits, cause) or _without(limits, cause)}{then}",
            "time_ratio": limits.least_share(cause),
            "how": f"counters of the longest launch; its busiest unit is {limits.top.name}, "
            f"{share_text(limits.top.busy)} of peak",
            "verify": _FALLS,
        },
        stated=_stated(group),
        where=Where(kernel=limits.kernel.name),
        rows=group.profiles,
        others_rows=(limits.kernel.profile,),
        compared={"time_ratio": compared},
        bottleneck=figures["bottleneck"],
        variant=figures["variant"],
        advice=figures["advice"],
        verdict=True,
        behind=group.behind,
    )


@remembered
def _longest_undecided(trace: Trace) -> tuple[KernelCounters, float] | None:
    """The kernel of which nobody can say what limits it that takes most of the time, and how long."""
    lengths: dict[str, tuple[KernelCounters, float]] = {}
    for kernel, limits in zip(kernel_counters(trace), kernel_limits(trace), strict=True):
        if limits is None:
            first, length = lengths.get(kernel.name, (kernel, 0.0))
            lengths[kernel.name] = first, length + (kernel.total_ns or 0.0)
    return max(lengths.values(), key=lambda one: one[1], default=None)


def _beside(row: Row, group: LaunchGroup, longer: tuple[KernelCounters, float] | None) -> Row:
    """The row with the undecided kernel that takes longer than these launches, if there is one."""
    if longer is None or longer[1] <= group.total_ns or group.cause is not group.longest.limiter:
        return row
    name, length = short_name(longer[0].name), time_text(longer[1])
    return _with(row, then=f"{row.figures['then']}. What limits {name}, {length}, is undecided")


def _named(limits: KernelLimits) -> str:
    """Its short name, called a kernel where that does not say so."""
    name = short_name(limits.kernel.name)
    return name if "kernel" in name.lower() else f"kernel {name}"


def _stated(group: LaunchGroup, ratio: float = 1.0) -> Quantity:
    """What is won: a bound where it would be nearly all of the time, of which something always stays, where another
    cause may limit it instead, and of less work."""
    most_ns = group.gain_ns if group.longest.is_roof_least else max(group.most_ns, group.gain_ns)
    is_open = bool(group.longest.others) or wins_by_less_work(group.longest, group.cause)
    is_bound = is_open or group.gain_ns > _MOST_OF * group.total_ns
    gain_ns = most_ns if is_bound else group.gain_ns
    return Quantity.ms(gain_ns * ratio, 0.0, most_ns * ratio)


def _clear(measured: list[KernelLimits], cause: Cause, limit: float | None) -> Row:
    """The launch in which the cause has the largest share, none of which is found."""
    worst = max(measured, key=lambda limits: (limits.shares[cause], -limits.kernel.profile))
    return Row(
        (worst.kernel.rank, 0),
        {
            "time_ratio": worst.shares[cause],
            "how": f"largest of {len(measured)} launches: {worst.kernel.function}",
        },
        rows=(worst.kernel.profile,),
        compared={"time_ratio": compared_with(worst, cause, limit)},
        verdict=False,
    )


def _together(tiny: list[KernelLimits], alone_us: float, matches: Mapping[tuple[int, int], KernelMatch]) -> Row:
    """The one finding about kernels that are too small to profile alone."""
    lengths, counts = [awake_ns(one.kernel) or 0.0 for one in tiny], [one.kernel.launches for one in tiny]
    longest_ns, longest = max(zip(lengths, tiny, strict=True), key=lambda one: (one[0], -one[1].kernel.profile))
    spent = [length * count for length, count in zip(lengths, counts, strict=True)]
    total_ns, launches = sum(spent), sum(counts)
    waiting = sum(ns * sum(one.shares[cause] for cause in WAITING) for one, ns in zip(tiny, spent, strict=True))
    most_ns = total_ns * (1 - 1 / fused_bound(lengths, counts))
    asleep = [clock for one in tiny if (clock := idle_clock_hz(one.kernel)) is not None]
    cycles = f", as if at 1 GHz (it was measured at an idle clock of {min(asleep) / 1e6:.1f} MHz)" if asleep else ""
    kernels = len({limits.kernel.name for limits in tiny})
    alone = f"the small {_named(longest)}, {time_text(total_ns)}{cycles}, fills no unit for"
    several = f"{kernels} small kernels, {launches} launches of {time_text(total_ns)} in all{cycles}, fill no unit for"
    what, its = (several, "their") if kernels > 1 else (alone, "its")
    less_us = alone_us * (FEW_SMS if longest_ns >= alone_us * NS_PER_US else 1)
    row = Row(
        (longest.kernel.rank, 0),
        {
            "spends": f"{what} {share_text(waiting / total_ns)} of {its} time. A launch takes less than "
            f"{less_us:g} us, too little to change by itself",
            "then": "",
            "longest_us": longest_ns / NS_PER_US,
            "launches": launches,
            "verify": "Capture a timeline again: fewer launches, and less time in them.",
        },
        stated=Quantity.ms(most_ns, 0.0, most_ns),
        where=Where(kernel=longest.kernel.name),
        others_rows=tuple(limits.kernel.profile for limits in tiny),
        compared={"longest_us": less_us},
        variant="together",
        advice=ADVICE[FUSE],
        verdict=True,
    )
    found = {id(match): match for one in tiny if (match := matches.get((one.kernel.rank, one.kernel.profile)))}
    return _in_steps(row, list(found.values()), most_ns / total_ns) if found else row


def _in_steps(row: Row, matches: list[KernelMatch], ratio: float) -> Row:
    """What is found of several kernels with the time that a timeline gives them; `ratio` of it could be saved."""
    intervals = dict(matches[0].intervals)
    for match in matches[1:]:
        for device, some in match.intervals.items():
            intervals[device] = intervals[device] | some if device in intervals else some
    step_ms = sum(match.step_ns for match in matches) / NS_PER_MS
    return replace(
        _with(row, then=f". In the timeline they take {time_text(step_ms * NS_PER_MS)} of a step"),
        claim=Claim(intervals),
        stated=Quantity(step_ms * ratio, "ms", low=0.0, high=step_ms * ratio),
    )


def _with(row: Row, **figures: Any) -> Row:
    return replace(row, figures={**row.figures, **figures})


def _to_roof(limits: KernelLimits, cause: Cause) -> str:
    """What a kernel of necessary work wins at the roof of its busiest unit, as a sentence; '' for others."""
    if cause not in NECESSARY or cause is not limits.limiter or limits.roof_speedup is None:
        return ""
    if cause is Cause.COMPUTE and (in_fp32 := bound_in_fp32(limits)) is not None:
        return f". In fp32 it is at most {times_text(in_fp32)} as fast"
    if gain_ns(limits, cause) > (limits.kernel.duration_ns or 0.0) * (1 - limits.roof[1]):
        return ""  # other operations take their place
    if wins_by_less_work(limits, cause):
        is_told = share_text(limits.roof[1]) in spent_text(limits, cause)
        return "" if is_told else f". It runs {limits.roof_text}"  # which is no bound of that
    less = "; only less work wins more" if limits.roof[1] >= AT_ROOF else ""
    return f". At its {limits.roof[0]} roof it is at most {times_text(limits.roof_speedup)} as fast{less}"


def _two_ways(limits: KernelLimits, cause: Cause, won: float) -> str:
    """What an open verdict wins with less to do, of all its launches, and while it does the same, as a sentence; ''
    where it is as much, or not known."""
    kept, less = as_it_is(limits, cause), 1 / (1 - won) if won < 1 else inf
    is_known = limits.told_bound(cause) is not None or isfinite(advised_bound(limits, cause))
    if kept is None or not is_known or not kept * (1 + _ALIKE) < less < inf or limits.is_roof_least:
        return ""
    ways = _WAYS[cause is Cause.LATENCY]
    return f". It is at most {times_text(less)} as fast with {ways[0]}, and {times_text(kept)} with {ways[1]}"


_WAYS: Final = (("less work", "the same work"), ("fewer waits", "its waits hidden"))


def _without(limits: KernelLimits, cause: Cause) -> str:
    """What the kernel would win if the cause were gone, of latency if it were hidden only, as a sentence; '' where that
    is what its share of the time says already."""
    bound, hidden = limits.told_bound(cause), limits.bound_of_hidden_waits
    if cause is Cause.LATENCY and limits.most_share(cause) - _ALIKE < 1 - 1 / hidden and hidden < limits.bounds[cause]:
        return f". With its waits hidden it is at most {times_text(hidden)} as fast"
    if bound is None:
        return ". No other limit is known"
    told = abs(1 - 1 / bound - limits.most_share(cause)) < _ALIKE
    return "" if told else f". Without that it is at most {times_text(bound)} as fast"


def _on_timeline(row: Row, group: LaunchGroup, matches: Mapping[tuple[int, int], KernelMatch]) -> Row:
    """Where a timeline was read with the report: the gain in milliseconds of a step, not of the profiled launches."""
    match = matches.get((group.longest.kernel.rank, group.longest.kernel.profile))
    if match is None or not group.total_ns:
        return row
    step_ratio = match.step_ns / group.total_ns
    loosely = "" if match.is_exact else " of the same function, grid and block"
    there = f". The timeline has {match.count} launches{loosely}, {time_text(match.step_ns)} of a step"
    return replace(
        _with(row, then=f"{row.figures['then']}{there}", verify=f"{_AGAIN}, then time unprofiled steps."),
        claim=Claim(match.intervals),
        stated=_stated(group, step_ratio),
    )


def _apart(row: Row) -> Row:
    """What is found of a kernel that the timeline beside the report does not run, by name, grid and block: it is no
    part of these steps, and wins nothing of them."""
    if row.claim is not None and row.claim.intervals:
        return row
    then = f"{row.figures['then']}; apart from these steps: the timeline runs no such kernel"
    return replace(_with(row, then=then), claim=Claim(), stated=Quantity.ms(0.0, 0.0, 0.0))


def _why_unmeasured(kernels: list[KernelCounters]) -> str:
    """The reason of most importance: failed passes before what a page leaves out."""
    kernels = sorted(kernels, key=lambda kernel: not kernel.is_failed)
    shown = kernels[:_NAMES_SHOWN]
    names = ", ".join(f"{kernel.function} (launch {kernel.profile})" for kernel in shown)
    more = len(kernels) - _NAMES_SHOWN
    return f"{names}{f' and {more} more' if more > 0 else ''}: {why_unexplained(shown[0]) or BEYOND_LEVELS}"


def _more(_trace: Trace, row: Row, figures: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Evidence, ...]]:
    """The counters that only some launches have."""
    counted = (counter for counter in figures.get("more", ()) if counter[1] is not None)
    return {}, tuple(
        Evidence(label, Quantity(value, unit), how, table="kernel_profiles", rows=row.others_rows)
        for label, value, unit, how in counted
    )


def _rule(cause: Cause) -> Rule:
    def rows(trace: Trace, limits: Limits) -> Rows:
        return _rows(cause, trace, limits)

    return declare(_rule_name(cause), rows, details=_more, most=1, asks_limits=True)


RULES: Final = tuple(map(_rule, Cause))
