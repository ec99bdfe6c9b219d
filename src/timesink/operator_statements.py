"""The three sentences a team writes down of a run: where the time goes, what overlaps, what the compiler made of it."""

from __future__ import annotations

import polars as pl

from timesink.measures.accumulation import accumulation
from timesink.measures.budget import time_budget
from timesink.measures.compile_counters import CompileCounters, compile_counters
from timesink.measures.overlap_score import OverlapScore, Stage
from timesink.measures.per_step import period_ns, step_windows
from timesink.measures.serving_phases import serving_phases
from timesink.measures.step_parts import COMPUTE, step_parts
from timesink.measures.steps import steps
from timesink.measures.synchronised_ranges import synchronised_ranges
from timesink.measures.timeline import Device
from timesink.model.tables import COMPILE_EVENTS
from timesink.rule import Facts
from timesink.units import share_text, time_text

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
    budgets = sorted(facts(time_budget), key=lambda part: (-part.span_ns, part.rank, part.device))
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
    stages = tuple(Stage(name, time_ns * scale) for name, time_ns in times if time_ns)
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
