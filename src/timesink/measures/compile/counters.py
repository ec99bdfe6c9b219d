"""Exact counts of a compiled program, for gates: a change of one is a change of the program, not noise."""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from timesink.measures.compile.regions import compiled_regions
from timesink.measures.compile.summary import compile_summary
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.launches import launches
from timesink.model.names import matches
from timesink.model.tables import COMPILE_EVENTS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered

COMPILATION = r"_compile\.compile_inner|entire_frame_compile"


@dataclass(frozen=True, slots=True)
class CompileCounters:
    """None where it was not recorded: breaks and recompilations need a log; the rest needs a trace, with steps.

    `steady_compilations` counts compilations in the trace that begin in kept steps. Per step: the device that has
    most.
    """

    graph_breaks: float | None
    recompilations: float | None
    late_recompilations: float | None
    steady_compilations: float | None
    regions_per_step: float | None
    graphs_per_step: float | None
    launches_per_step: float | None

    def known(self) -> dict[str, float]:
        """Name and value of each that was recorded."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: float(value) for name, value in values.items() if value is not None}


@remembered
def compile_counters(trace: Trace) -> CompileCounters:
    """Count."""
    log = compile_summary(trace) if COMPILE_EVENTS in trace else None
    regions = compiled_regions(trace) if DEVICE_OPS in trace else ()
    made = [part.launches_per_step for part in launches(trace)] if DEVICE_OPS in trace else []
    per_step = [count for count in made if count is not None]
    return CompileCounters(
        graph_breaks=log.graph_breaks if log else None,
        recompilations=log.recompilations if log else None,
        late_recompilations=log.late_recompilations if log else None,
        steady_compilations=_steady(trace),
        regions_per_step=max((part.per_step for part in regions), default=None),
        graphs_per_step=max((part.graphs for part in regions), default=None),
        launches_per_step=max(per_step, default=None),
    )


def _steady(trace: Trace) -> int | None:
    kept = steps(trace).kept
    if not kept.height:
        return None
    columns = ["rank", "process", "start_ns"]
    parts = [
        frame.filter(matches(frame["name"], COMPILATION)).select(columns)
        for frame in (trace.get(RANGES), trace.get(HOST_OPS))
    ]
    marks = kept.select("rank", "process", "host_start_ns", "host_end_ns").sort("host_start_ns")
    counts = []
    for part in parts:
        placed = part.sort("start_ns").join_asof(
            marks, left_on="start_ns", right_on="host_start_ns", by=["rank", "process"], check_sortedness=False
        )
        inside = placed.filter(pl.col("start_ns") < pl.col("host_end_ns"))
        counts.append(int(inside.group_by("rank").len()["len"].to_numpy().max(initial=0)))
    return max(counts)
