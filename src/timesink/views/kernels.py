"""The tables of `timesink kernels`, and of `timesink kernels --next`.

One row per profiled launch with its limiter, and what to know before believing it; the longest kernels one by one, what
their time goes to and why their warps wait; and the kernels of a timeline that are worth a replay.
"""

import shlex
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import polars as pl

from timesink.diagnosis.words import number
from timesink.errors import UsageError
from timesink.knowledge.kernel_names import short_name
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.causes import cause_name, limiter_name, told_most
from timesink.measures.counters.limiter import KernelLimits, kernel_limits, why_unexplained
from timesink.measures.counters.sheet import told_speedup
from timesink.measures.counters.stalls import FULL, HIDDEN_BY_WARPS, NOT_HIDDEN, Stalls
from timesink.measures.kernels import KernelTarget, kernel_targets
from timesink.model.tables import KERNEL_PROFILES
from timesink.model.trace import Trace
from timesink.records import Record, replace
from timesink.rules.ncu.causes import actions
from timesink.units import share_text, time_text
from timesink.untrusted.masking import redacted
from timesink.views import Cell, Field, Page, Sheet, declare, listed, sheet_of
from timesink.views.kernel_proof import proof_sheet

LIMITER_WORDS = {name.value: name.value.replace("_", " ").removesuffix(" kernel") for name in Bottleneck}

_OFTEN = 4  # launches of one kernel from which on one row is for all
_AT_LIMITER = 3  # of a launch's cells
_OF_REPEATED = "a row for the launches of one kernel with one limiter: the id, time and figures are of the median one; "
_NAMED = 3  # kernels of an advice, as many as fit beside it

_LIMITER = Field("limiter", "limiter", is_name=True, words=LIMITER_WORDS)


def kernels_page(trace: Trace, order: Sequence[int] | None = None) -> Page:
    """Every launch with its limiter, in report order or that of `order`, then what to do about each kind of limiter."""
    kernels, limits = kernel_counters(trace), kernel_limits(trace)
    do = actions(zip(kernels, limits, strict=True))
    rows = [_row(*launch) for launch in zip(kernels, limits, do, strict=True)]
    repeated: list[tuple[Cell, ...]] = []
    if order is not None:
        rows.sort(key=lambda row: order.index(int(str(row[0]))))
    else:
        repeated = _repeated(kernels, rows)
    columns = declare(
        "id, kernel [kernel], launches, time_ns: time, longest_ns: longest"
        if repeated
        else "id, kernel [kernel], time_ns: time",
        _LIMITER,
        "limiter_ratio: of its time, limiter_most_ratio: at most, roof: nearest roof [text], roof_ratio: of roof, "
        "roof_speedup: x to roof, bound_speedup: x without limiter",
    )
    note = (
        "x to roof: speedup at the nearest roof, with the same bytes and operations; x without limiter: most speedup "
        "if the limiter were gone, up to the next unit's ceiling"
    )
    limited = [(limit, action) for limit, action in zip(limits, do, strict=True) if limit is not None]
    advice = declare(replace(_LIMITER, is_name=False), "kernels: launches, of: of kernels [text], action: do [text]")
    of_all = sheet_of("actions", "what to do", _actions(limited), advice, "by limiter, longest total time first")
    in_short = [proof_sheet(kernels[0], limits[0], "in short", do[0])] if len(kernels) == 1 else []
    sheets = (
        *in_short,
        sheet_of("kernels", "kernels", repeated or rows, columns, _OF_REPEATED + note if repeated else note),
        *(() if in_short else (of_all,)),
    )
    return Page(_headline(kernels, limits), sheets, tuple(_notes(trace, kernels, limits)))


def _repeated(kernels: Sequence[KernelCounters], rows: Sequence[tuple[Cell, ...]]) -> list[tuple[Cell, ...]]:
    """One row for launches of the same kernel, grid and block with the same limiter, by the median and the longest of
    their times; none where no kernel was launched often."""
    groups: dict[tuple[Any, ...], list[tuple[int, tuple[Cell, ...]]]] = {}
    for kernel, row in zip(kernels, rows, strict=True):
        key = kernel.name, kernel.grid, kernel.block, row[_AT_LIMITER]
        groups.setdefault(key, []).append((kernel.launches, row))
    merged: list[tuple[Cell, ...]] = []
    for group in groups.values():
        ordered = sorted(group, key=lambda one: float(str(one[1][2] or 0.0)))
        launched = [*accumulate(launches for launches, _ in ordered)]
        _, (profile, name, time_ns, *more) = ordered[bisect_right(launched, (launched[-1] - 1) // 2)]
        merged.append((profile, name, launched[-1], time_ns, ordered[-1][1][2], *more))
    return merged if any(int(str(row[2])) >= _OFTEN for row in merged) else []


def _row(kernel: KernelCounters, limits: KernelLimits | None, action: str) -> tuple[Cell, ...]:
    known = kernel_entry(kernel, limits, action)
    speedups = (factor and round(factor, 2) for factor in (known["roof_speedup"], known["bound_speedup"]))
    limiter = known["limiter"] or "undecided"
    return (
        kernel.profile,
        kernel.name,
        kernel.duration_ns,
        limiter,
        known["limiter_share"],
        known["limiter_share_at_most"],
        known["roof"],
        known["roof_share"],
        *speedups,
    )


def _headline(kernels: Sequence[KernelCounters], limits: Sequence[KernelLimits | None]) -> str:
    """Which kernel takes most of the profiled time, what limits it, and how far from its roof it is."""
    longest = max(range(len(kernels)), key=lambda at: (kernels[at].total_ns or 0, -at), default=None)
    if longest is None:
        return "no kernels were profiled"
    kernel, limit = kernels[longest], limits[longest]
    total_ns = sum(kernel.total_ns or 0 for kernel in kernels)
    share = f", {share_text(kernel.total_ns / total_ns)} of the profiled time" if kernel.total_ns else ""
    launches = sum(kernel.launches for kernel in kernels)
    count = f"{launches} profiled kernel{'s' if launches != 1 else ''}; the longest is"
    if limit is None:
        return f"{count} {short_name(kernel.name)}{share}: undecided, {why_unexplained(kernel)}"
    limiter = LIMITER_WORDS[limiter_name(limit)]
    return f"{count} {short_name(kernel.name)}{share}: {limiter}, {limit.roof_text}{limit.doubt}"


def _actions(limited: Sequence[tuple[KernelLimits, str]]) -> Iterator[tuple[Cell, ...]]:
    """Each advice once, with the number of launches it is for and their kernels, longest first, by total time."""
    groups: dict[tuple[str, str], tuple[Counter[str], defaultdict[str, float]]] = {}
    for limits, action in limited:
        counts, times_ns = groups.setdefault((limiter_name(limits), action), (Counter(), defaultdict(float)))
        counts[name := short_name(limits.kernel.name)] += limits.kernel.launches
        times_ns[name] += limits.kernel.total_ns or 0
    rows = [(-sum(times_ns.values()), *key, counts, times_ns) for key, (counts, times_ns) in groups.items()]
    for _, limiter, advice, counts, times_ns in sorted(rows, key=lambda row: row[:3]):
        longest = sorted(counts, key=lambda name: (-times_ns[name], name))
        more = f" and {len(longest) - _NAMED} more" if len(longest) > _NAMED else ""
        named = ", ".join(f"{name} ×{counts[name]}" if counts[name] > 1 else name for name in longest[:_NAMED])
        yield limiter, counts.total(), named + more, advice


def _notes(trace: Trace, kernels: Sequence[KernelCounters], limits: Sequence[KernelLimits | None]) -> Iterator[str]:
    yield from (f"{note.kind}: {note.message}" + (f" ({note.count})" if note.count else "") for note in trace.notes)
    yield from _undecided([kernel for kernel, one in zip(kernels, limits, strict=True) if one is None])
    yield from _in_doubt([one for one in limits if one is not None and one.others])
    yield from _session(trace)
    yield from _clocks(limits)
    identities = [one.stalls.identity for one in limits if one is not None and one.stalls and one.stalls.identity]
    if identities:
        yield f"stall reasons sum to {min(identities):.2f}-{max(identities):.2f} of the latency they should sum to"
    if partial := sum(one is not None and not one.is_complete for one in limits):
        yield f"{number(partial, 'launch', 'launches')} without the list of units: one may be busier (use --set full)"


def _undecided(kernels: Sequence[KernelCounters]) -> Iterator[str]:
    """Each reason once, with the launches it holds for."""
    yield from _grouped((f"undecided, {why_unexplained(kernel)}", kernel) for kernel in kernels)


def _in_doubt(limits: Sequence[KernelLimits]) -> Iterator[str]:
    """What else may limit launches whose counters leave that open, each doubt once."""
    said = (f"{LIMITER_WORDS[limiter_name(one)]} by what was counted{one.doubt}" for one in limits)
    yield from _grouped(zip(said, (one.kernel for one in limits), strict=True))


def _grouped(said: Iterable[tuple[str, KernelCounters]]) -> Iterator[str]:
    groups: dict[str, list[KernelCounters]] = {}
    for what, kernel in said:
        groups.setdefault(what, []).append(kernel)
    for what, group in groups.items():
        first = f"launch {group[0].profile}, {short_name(group[0].name)}"
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        yield f"{first}{others}: {what}"


def _session(trace: Trace) -> Iterator[str]:
    profiles = trace[KERNEL_PROFILES].with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    names = ("gpu", "tool_version", "driver_version", "clock_control", "command")
    for row in profiles.select(names).unique(maintain_order=True).iter_rows(named=True):
        words = {"gpu": "", "tool_version": "ncu ", "driver_version": "driver ", "clock_control": "clock "}
        parts = [prefix + str(row[name]) for name, prefix in words.items() if row[name]]
        if parts:
            yield ", ".join(parts) + (f"; captured with: {redacted(row['command'])}" if row["command"] else "")


def _clocks(limits: Sequence[KernelLimits | None]) -> Iterator[str]:
    lines = [one.roofline for one in limits if one is not None and one.roofline is not None]
    clocks = [line.clock_hz for line in lines if line.clock_hz]
    boost = max((line.max_clock_hz for line in lines if line.max_clock_hz), default=None)
    if clocks and boost:
        yield (
            f"SM clock while profiled {min(clocks) / 1e9:.2f}-{max(clocks) / 1e9:.2f} GHz, boost {boost / 1e9:.2f} GHz "
            f"({share_text(max(clocks) / boost)} of it): shares are of the roofs at the profiled clock"
        )
    if sources := sorted({line.source for line in lines}):
        yield f"peaks from: {'; '.join(sources)}"


def kernel_entries(trace: Trace) -> list[dict[str, Any]]:
    """One entry per launch, in report order. A launch whose counters failed has no limiter: null, not "none"."""
    kernels, limits = kernel_counters(trace), kernel_limits(trace)
    return list(map(kernel_entry, kernels, limits, actions(zip(kernels, limits, strict=True))))


def kernel_entry(kernel: KernelCounters, limits: KernelLimits | None, action: str) -> dict[str, Any]:
    """A launch with its limiter, roof, bound and what to do, as JSON shows it."""
    roof, share = limits.roof if limits is not None else (None, None)
    return {
        "kernel": kernel.name,
        "id": kernel.profile,
        "time_us": None if kernel.duration_ns is None else kernel.duration_ns / 1e3,
        "limiter": None if limits is None else limiter_name(limits),
        "limiter_or": [] if limits is None else [cause_name(limits, cause) for cause in limits.others],
        "limiter_share": limits and limits.least_share(limits.limiter),
        "limiter_share_at_most": limits and told_most(limits, limits.limiter),
        "roof": roof,
        "roof_share": share,
        "roof_speedup": limits and limits.roof_speedup,
        "bound_speedup": limits and told_speedup(limits),
        "action": action,
    }


# As many as fit on a screen.
SHOWN_KERNELS = 6
SHOWN_STALLS = 8  # of some twenty reasons; the others are under a percent


def kernel_details(trace: Trace) -> Iterator[tuple[str, tuple[Sheet, ...]]]:
    """The longest launch of each of the longest kernels: causes of its time, reasons of its stalls."""
    limited = [limits for limits in kernel_limits(trace) if limits is not None]
    longest: dict[str, KernelLimits] = {}
    for limits in sorted(limited, key=lambda limits: (-(limits.kernel.duration_ns or 0), limits.kernel.profile)):
        longest.setdefault(limits.kernel.name, limits)
    for one in list(longest.values())[:SHOWN_KERNELS]:
        length = "" if one.kernel.duration_ns is None else f", {time_text(one.kernel.duration_ns)}"
        title = f"{short_name(one.kernel.name)} (id {one.kernel.profile}{length})"
        stalls = () if one.stalls is None else (stalls_sheet(one.stalls, one.kernel.profile),)
        yield title, (causes_sheet(one), *stalls)


def causes_sheet(one: KernelLimits) -> Sheet:
    """Every cause with its share of the time and the bound without it."""
    bounds = {cause: one.told_bound(cause) for cause in one.ranked}
    rows = (
        (cause.value.replace("_", " "), one.shares[cause], bound and round(bound, 2)) for cause, bound in bounds.items()
    )
    columns = "cause [text], time_ratio: share of the time [bar], bound_speedup: x without it"
    note = (
        f"busiest unit {one.top.name}, {100 * one.top.busy:.1f} % of its peak; shares sum to 1; "
        "x without it: at most, if the cause were gone"
    )
    return sheet_of(f"causes_{one.kernel.profile}", "What its time goes to", rows, columns, note)


def stalls_sheet(stalls: Stalls, profile: int) -> Sheet:
    """The largest reasons of the warps' waiting, and whether more warps would help."""
    ranked = sorted(stalls.shares.items(), key=lambda item: (-item[1], item[0]))
    remedies = ((HIDDEN_BY_WARPS, "hide it"), (FULL, "lengthen the queue"), (NOT_HIDDEN, "do not help"))
    rows = (
        (reason, share, next((words for reasons, words in remedies if reason in reasons), None))
        for reason, share in ranked[:SHOWN_STALLS]
    )
    columns = "reason: warps wait for [name], wait_ratio: share of the waiting [bar], more_warps [text]"
    origin = "from samples" if stalls.is_sampled else "from counters"
    cycles = "" if stalls.cycles is None else f"; a warp issues once in {stalls.cycles:.1f} cycles"
    left = len(ranked) - SHOWN_STALLS
    more = f"; {left} smaller ones are not shown" if left > 0 else ""
    return sheet_of(f"stalls_{profile}", "Why its warps wait", rows, columns, f"{origin}{cycles}{more}")


# Replays of `--set full` on Hopper, from 34 reports of ncu 2025.3; the profiler adds its own overhead to each.
FULL_PASSES = 42
_ENOUGH = 0.9  # of the kernels' time: the rest is many small ones
_MOST_LAUNCHES = 4  # each is replayed FULL_PASSES times
NEXT_NOTES = (
    f"about {FULL_PASSES} replays per launch, each with the profiler's own overhead and with memory saved and restored",
    "then: timesink kernels kernels_*, or timesink diagnose TRACE kernels_*/*.ncu-rep for the gain per step",
)


class NextKernel(Record):
    """A kernel worth a replay, the ncu command for a few of its launches, and how long the replays of a launch run."""

    target: KernelTarget
    command: str
    replays_ns: float


def next_kernels(trace: Trace, program: str, top: int) -> tuple[NextKernel, ...]:
    """The kernels that take most of the steady steps. `UsageError` where no kernel runs in them."""
    targets = kernel_targets(trace)[:top]
    if not targets:
        raise UsageError("no kernel runs in the steady steps of this trace", remedy="give a trace with GPU kernels")
    return tuple(NextKernel(target, _ncu(target, program), target.mean_ns * FULL_PASSES) for target in targets)


def hottest(trace: Trace, most: int) -> tuple[tuple[KernelTarget, ...], float]:
    """The functions to profile where `most` launches are, one of each shape, and their share of the kernels' time.

    Those whose shapes take most of a step each come first; no more are taken than 90 % of the time needs.
    """
    targets = kernel_targets(trace)
    whole = sum(target.step_ns for target in targets)
    chosen: list[KernelTarget] = []
    taken, left = 0.0, most
    for target in sorted(targets, key=lambda target: -target.step_ns / target.grids):
        if target.grids <= left and taken < _ENOUGH * whole:
            chosen.append(target)
            taken, left = taken + target.step_ns, left - target.grids
    return tuple(chosen), taken / whole if whole else 0.0


def _ncu(target: KernelTarget, program: str) -> str:
    """The capture of its first launches in a step."""
    count = min(max(target.grids, 1), max(target.per_step, 1), _MOST_LAUNCHES)
    launches = ["--kernels", target.pattern, "--launch-count", str(count)]
    out = f"kernels_{''.join(c if c.isalnum() else '_' for c in target.function)[:40]}"
    return f"{shlex.join(['timesink', 'capture', 'ncu', '--set', 'full', *launches, '-o', out])} -- {program}"


def next_page(kernels: Sequence[NextKernel]) -> Page:
    """The kernels and their commands."""
    rows = (
        (of.function, of.step_ns, of.step_ratio, of.mean_ns, of.per_step, kernel.replays_ns, kernel.command)
        for kernel in kernels
        for of in (kernel.target,)
    )
    sheet = listed("kernels.next", rows)
    return Page("kernels worth a closer look", (sheet,), NEXT_NOTES)
