"""The plain figures that stand at the head of every diagnosis: sources, steps, devices, notes.

The three sentences a team writes down of a run: where the time goes, what overlaps, what the compiler made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from timesink.diagnosis.rule import Facts
from timesink.diagnosis.verdicts import DeviceFigures, Limit, StepFigures
from timesink.measures.communication.pipelines import OverlapScore, PipelineStage
from timesink.measures.compile.summary import CompileCounters, compile_counters
from timesink.measures.idle.blame import idle_blame
from timesink.measures.kernels.attainable import attainable
from timesink.measures.ranks.parity import differences, parity_facts
from timesink.measures.steps.parts import COMPUTE, accumulation, step_parts
from timesink.measures.steps.per_step import period_ns, share_of_step, step_windows
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.measures.timeline.ranges import serving_phases
from timesink.measures.timeline.synchronisations import synchronised_ranges
from timesink.model.tables import API_CALLS, COMPILE_EVENTS, DEVICES, SOURCES
from timesink.model.trace import Trace
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
    return _ms(facts.trace.unprofiled_step_ns) or _profiled_step_ms(facts)


def _profiled_step_ms(facts: Facts) -> float | None:
    p50_ns = facts(steps).times.p50_ns
    if p50_ns is not None:
        return p50_ns / NS_PER_MS
    return max((budget.span_ns for budget in facts(device_timeline)), default=0) / NS_PER_MS or None


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
        for part in facts(device_timeline)
    )


def notes(facts: Facts) -> tuple[str, ...]:
    """What ranks differ in, what the reader said about the import, and what limits the figures."""
    said = _unequal_ranks(facts) + tuple(
        f"{note.kind.value}: {note.message}" + (f" ({note.count} rows)" if note.count else "")
        for note in facts.trace.notes
    )
    if facts(steps).times.count == 0 and len(facts(device_timeline)):
        said += ("no steps found: figures per step are for the whole window",)
    profiled_ns, step_ns = facts(steps).times.p50_ns, facts.trace.unprofiled_step_ns
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
    lines = facts(device_timeline).by_device
    if not lines:
        return "The trace holds no device work, so no bottleneck of the device can be named."
    busy = sum(share_of_step(facts.trace, key, line.busy) for key, line in lines.items()) / len(lines)
    step, unprofiled = _profiled_step_ms(facts), _ms(facts.trace.unprofiled_step_ns)
    period = _of_step(busy, step, unprofiled) if facts(steps).times.count and step else ""
    what = "no finding is worth 1 % of a step" if has_findings else "no rule finds a change worth making"
    if not has_findings and 1 - busy > QUIET.default:
        what = "no rule names a cause, and what the host did in that time is not all recorded"
    devices = "The device is" if len(lines) == 1 else f"The {len(lines)} devices are"
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


_NAMED = 3


def statements(facts: Facts) -> tuple[str, ...]:
    """Attribution, overlap, compilation: those of them that the trace supports."""
    said = (_attribution(facts), _overlap(facts), _compilation(facts))
    return tuple(sentence for sentence in said if sentence)


def _attribution(facts: Facts) -> str:
    parts = facts(step_parts)
    if not parts.span_ns:
        return ""
    profiled = facts(synchronised_ranges)
    how = "block-profiled: attribution, not throughput" if profiled.attribution_only else "as profiled"
    updates = [found.micro_batches for found in facts(accumulation) if found.micro_batches]
    micro = f", {max(updates)} micro-batches to an optimizer step" if updates and max(updates) > 1 else ""
    return f"attribution: {_shares(facts)}{micro} ({how})"


def _shares(facts: Facts) -> str:
    phases = [part for part in facts(serving_phases) if part.device_ns]
    whole = sum(part.device_ns for part in phases)
    if phases:
        return (
            ", ".join(
                f"{part.phase.value} ({part.steps} engine steps) is {share_text(part.device_ns / whole)}"
                for part in phases
            )
            + " of the GPU time of engine steps"
        )
    parts = facts(step_parts)
    frame = parts.frame
    blocks = frame.filter((pl.col("kind") == COMPUTE) & (pl.col("range") != ""))
    by_range = (
        blocks.group_by("range").agg(pl.col("total_ns").sum()).sort(["total_ns", "range"], descending=[True, False])
    )
    by_kind = frame.group_by("kind").agg(pl.col("total_ns").sum()).sort(["total_ns", "kind"], descending=[True, False])
    chosen = by_range if by_range.height > 1 else by_kind
    named = [f"{name} is {share_text(total / parts.span_ns)}" for name, total in chosen.head(_NAMED).iter_rows()]
    over = f"{parts.step_count} steady steps" if facts(steps).times.count else "the recorded window"
    return f"{', '.join(named)} of {over}"


def _totals(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    totals = frame.group_by(name).agg(pl.col("total_ns").sum())
    return totals.sort("total_ns", name, descending=[True, False])


def _overlap(facts: Facts) -> str:
    budgets = sorted(facts(device_timeline), key=lambda part: (-part.span_ns, part.rank, part.device))
    if not budgets:
        return ""
    part = budgets[0]
    device: Device = (part.rank, part.device)
    start, end = step_windows(facts.trace, device)
    covered = int((end - start).sum())
    scale = period_ns(facts.trace, device) / max(part.span_ns, 1) if facts(steps).times.count else 1.0
    if not covered:
        return ""
    times = (("compute", part.compute_ns), ("communication", part.communication_ns), ("copies", part.copy_ns))
    stages = tuple(PipelineStage(name, time_ns * scale) for name, time_ns in times if time_ns)
    if not stages:
        return ""
    found = OverlapScore(stages, part.span_ns * scale)
    longest = (
        f"period {time_text(found.period_ns)}, longest stage {found.longest.name} {time_text(found.longest.time_ns)}"
    )
    if found.score is None:
        return f"overlap: {longest}; one stage only, nothing to overlap"
    return f"overlap: {longest}; OverlapScore {found.score:.2f} (0 one after another, 1 the longest hides the others)"


def _compilation(facts: Facts) -> str:
    found: CompileCounters = facts(compile_counters)
    parts = []
    if COMPILE_EVENTS in facts.trace:
        parts.append(f"graph breaks {found.graph_breaks:.0f}, recompilations {found.recompilations:.0f}")
    if found.regions_per_step is not None and found.graphs_per_step is not None:
        parts.append(f"{found.regions_per_step:.0f} compiled regions of {found.graphs_per_step:.0f} graphs per step")
    if found.steady_compilations:
        parts.append(f"{found.steady_compilations:.0f} compilations in steady steps")
    if not parts:
        return ""
    if found.launches_per_step is not None:
        parts.append(f"{found.launches_per_step:.0f} launches per step")
    return f"compile: {', '.join(parts)}"
