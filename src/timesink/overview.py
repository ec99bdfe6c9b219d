"""The plain figures that stand at the head of every diagnosis: sources, steps, devices, notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from timesink.findings import DeviceFigures, Limit, StepFigures
from timesink.measures.attainable import attainable
from timesink.measures.budget import time_budget
from timesink.measures.idle_blame import idle_blame
from timesink.measures.parity import differences, parity_facts
from timesink.measures.per_step import share_of_step
from timesink.measures.steps import steps
from timesink.measures.timeline import device_timeline
from timesink.model.tables import API_CALLS, DEVICES, SOURCES
from timesink.model.trace import Trace
from timesink.model.unprofiled_step import unprofiled_step_ns
from timesink.rule import Facts
from timesink.units import NS_PER_MS, share_text, time_text

QUIET = Limit(
    default=0.10,
    unit="ratio",
    why="a device that idles less is busy whatever its host does; one that idles more wants a cause",
    source="science: launch-bound where host-late gaps pass 10 % of the step",
)
_DIFFERENCES = 6
_REASONS = {
    "warm_up": "warm-up",
    "truncated": "cut off by the end of the window",
    "no_device_work": "without device work",
    "begun_before": "begun before the window",
}


def sources(trace: Trace) -> tuple[Mapping[str, str | int | None], ...]:
    """One mapping per input file: path, format, rank, tool version, size, digest."""
    wanted = ("path", "format", "rank", "tool_version", "size_bytes", "sha256")
    return tuple(trace.get(SOURCES).select(wanted).iter_rows(named=True))


def step_figures(facts: Facts) -> StepFigures:
    """Step times of the slowest rank, which sets the pace of a synchronous job."""
    found = facts(steps)
    times = found.times
    return StepFigures(
        count=times.count,
        p50_ms=_ms(times.p50_ns),
        p90_ms=_ms(times.p90_ns),
        p99_ms=_ms(times.p99_ns),
        source=found.marker_name,
        dropped=tuple(f"{count} {_REASONS.get(reason, reason)}" for reason, count in sorted(found.dropped.items())),
    )


def step_ms(facts: Facts) -> float | None:
    """The step without a profiler where it is known, else the median step as profiled; the longest device span where
    the trace has no steps; None where it has no device work."""
    return _ms(unprofiled_step_ns(facts.trace)) or _profiled_step_ms(facts)


def _profiled_step_ms(facts: Facts) -> float | None:
    p50_ns = facts(steps).times.p50_ns
    if p50_ns is not None:
        return p50_ns / NS_PER_MS
    return max((budget.span_ns for budget in facts(time_budget)), default=0) / NS_PER_MS or None


def device_figures(facts: Facts) -> tuple[DeviceFigures, ...]:
    """The time budget of every device over its whole span."""
    names = {(rank, device): name or "" for rank, device, name in _device_names(facts.trace)}
    return tuple(
        DeviceFigures(
            rank=part.rank,
            device=part.device,
            name=names.get((part.rank, part.device), ""),
            span_ns=part.span_ns,
            busy_ns=part.busy_ns,
            idle_ns=part.idle_ns,
            compute_ns=part.compute_ns,
            exposed_comm_ns=part.exposed_communication_ns,
            exposed_copy_ns=part.exposed_copy_ns,
        )
        for part in facts(time_budget)
    )


def notes(facts: Facts) -> tuple[str, ...]:
    """What ranks differ in, what the reader said about the import, and what limits the figures."""
    said = _unequal_ranks(facts) + tuple(
        f"{note.kind.value}: {note.message}" + (f" ({note.count} rows)" if note.count else "")
        for note in facts.trace.notes
    )
    if facts(steps).times.count == 0 and len(facts(time_budget)):
        said += ("no steps found: figures per step are for the whole window",)
    profiled_ns, step_ns = facts(steps).times.p50_ns, unprofiled_step_ns(facts.trace)
    if step_ns and profiled_ns:
        said += (f"the profiled step takes {profiled_ns / step_ns:.2f} times the unprofiled {time_text(step_ns)}",)
    return said


def _unequal_ranks(facts: Facts) -> tuple[str, ...]:
    """Ranks that differ in what they ought to share make every comparison of them doubtful: said before all else."""
    ranks = facts.trace.get(SOURCES)["rank"].n_unique()
    found = differences(facts(parity_facts)) if ranks > 1 else ()
    told = tuple(f"ranks differ: {difference.text}" for difference in found[:_DIFFERENCES])
    return told + ((f"ranks differ in {len(found) - _DIFFERENCES} more",) if len(found) > _DIFFERENCES else ())


_SLOWED: Final = 0.1  # a profiled step this much longer is not the step the program has


def no_bottleneck(facts: Facts, has_findings: bool) -> str:
    """One sentence for a trace in which no finding is worth a change."""
    budgets = list(facts(time_budget))
    if not budgets:
        return "The trace holds no device work, so no bottleneck of the device can be named."
    lines = facts(device_timeline).by_device
    busy = sum(share_of_step(facts.trace, key, line.busy) for key, line in lines.items()) / len(lines)
    step, unprofiled = _profiled_step_ms(facts), _ms(unprofiled_step_ns(facts.trace))
    period = _of_step(busy, step, unprofiled) if facts(steps).times.count and step else ""
    what = "no finding is worth 1 % of a step" if has_findings else "no rule finds a change worth making"
    if not has_findings and 1 - busy > QUIET.default:
        what = "no rule names a cause, and what the host did in that time is not all recorded"
    devices = "The device is" if len(budgets) == 1 else f"The {len(budgets)} devices are"
    return f"{devices} busy {share_text(busy)}{period}{_attained(facts)}{_idle(facts)}; {what}."


def _of_step(busy: float, step: float, unprofiled: float | None) -> str:
    """Of what the device is busy that share: the step as profiled, and the step without the profiler where that is
    much shorter, which the same kernels fill more of. Times in ms."""
    whole = f" of a {time_text(step * NS_PER_MS)} step"
    if unprofiled is None or step <= (1 + _SLOWED) * unprofiled:
        return whole
    share = share_text(min(busy * step / unprofiled, 1.0))
    return f"{whole} as profiled, {share} of the {time_text(unprofiled * NS_PER_MS)} it takes without the profiler"


_CAUSES = {
    "sync": "blocking waits",
    "copy_staging": "staging of copies",
    "loader": "loading of input",
    "cuda_call": "CUDA calls",
    "dispatch": "framework dispatch",
    "untraced": "host time in which nothing was traced",
    "python": "Python",
    "kernel_gap": "ordinary gaps between queued kernels",
    "graph_gap": "gaps inside CUDA graphs",
}


def _idle(facts: Facts) -> str:
    """What most of the idle time is blamed on, where there is any and calls were recorded."""
    if API_CALLS not in facts.trace:
        return ""
    totals = facts(idle_blame).totals.group_by("cause").agg(pl.col("idle_ns").sum())
    idle_ns = int(totals["idle_ns"].sum())
    if not idle_ns:
        return ""
    cause, most_ns = totals.sort("idle_ns", pl.col("cause").to_physical(), descending=[True, False]).row(0)
    return f"; {share_text(most_ns / idle_ns)} of its idle time is {_CAUSES.get(cause, cause.replace('_', ' '))}"


def _attained(facts: Facts) -> str:
    """How near the kernels run to their bound, where shapes and the GPU's peaks are known."""
    found = facts(attainable)
    if found.attained_ratio is None or found.covered_ratio is None:
        return ""
    return (
        f", with kernels at {share_text(found.attained_ratio)} of the attainable bound"
        f" ({share_text(found.covered_ratio)} of kernel time has recorded shapes)"
    )


def _device_names(trace: Trace) -> list[tuple[int, int, str | None]]:
    return list(trace.get(DEVICES).select("rank", "device", "name").iter_rows())


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS
