"""What changes would win, over the steady steps of each rank.

The dependency graph of each rank, built once per trace: idle blame reads its parts, prices replay it.

A long trace is replayed in excerpts, so the whole of its program would serve the blame alone: it is then read without
the graph's nodes, and not kept.

The chain of events that sets the pace of each rank, as it passed between host and GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.steps.steps import steps
from timesink.measures.timeline.links import launch_links
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, EVENT_WAITS, FRAMES, HOST_OPS, PROFILER_OVERHEAD, RANGES, SYNCS
from timesink.model.trace import Trace, remembered
from timesink.whatif.critical_path import PathPieces, path_pieces
from timesink.whatif.graph import Graph, Program, RankWork, ranks_of
from timesink.whatif.periods import Anchors, StepWindows, calibrate
from timesink.whatif.pricing import Pricer


@remembered
def programs(trace: Trace) -> Mapping[int, Program]:
    """Per rank: its calls, device ops, and what each waited for."""
    return {rank: Program.read(trace, rank) for rank in ranks_of(trace)}


# A rank with more device ops than this is only ever replayed in excerpts.
_OPS_KEPT: Final = 200_000


def work_of(trace: Trace, rank: int) -> RankWork:
    """What a rank did: its program where that is kept anyway, else its parts alone."""
    if trace.get(DEVICE_OPS).height <= _OPS_KEPT:
        return programs(trace)[rank]
    return RankWork.read_work(trace, rank)


@remembered
def graphs(trace: Trace) -> Mapping[int, Graph]:
    """Per rank: the graph that a what-if replays."""
    return {rank: Graph.of(program, trace.tables) for rank, program in programs(trace).items()}


# A replay of about this many device ops tells as much as one of millions, and a price stays well below a second.
_OPS_REPLAYED: Final = 20_000
_STRETCHES: Final = 4
_STEPS_IN_STRETCH: Final = 3


@remembered
def pricers(trace: Trace) -> Mapping[int, Pricer]:
    """A pricer per rank with steady steps. Of a long trace it replays a few stretches of steps, spread evenly."""
    worked = set(trace.get(DEVICE_OPS)["rank"].unique())  # a memory snapshot has steps, and nothing to replay
    found = {rank: windows for rank, windows in step_windows(trace).items() if rank in worked}
    return {rank: Pricer(*_replayed(trace, rank, windows)) for rank, windows in found.items()}


@remembered
def calibrated_pricers(trace: Trace) -> Mapping[int, Pricer]:
    """The same with host time scaled so that a step takes as long as it does without a profiler.

    Where that time is not known (`unprofiled_step_ns`), those of the trace as it is.
    """
    step_ns = trace.unprofiled_step_ns
    if step_ns is None:
        return pricers(trace)
    found: dict[int, Pricer] = {}
    for rank, pricer in pricers(trace).items():
        windows = pricer.anchors.windows
        found[rank] = Pricer(calibrate(pricer.graph, step_ns, windows), windows, pricer.residual_ratio)
    return found


def step_windows(trace: Trace) -> Mapping[int, StepWindows]:
    """Host windows of the kept steps of each rank."""
    kept = steps(trace).kept.sort("rank", "host_start_ns", "host_end_ns")
    return {
        int(rank): StepWindows(rows["host_start_ns"].to_numpy(), rows["host_end_ns"].to_numpy())
        for (rank,), rows in kept.group_by("rank", maintain_order=True)
    }


def _replayed(trace: Trace, rank: int, windows: StepWindows) -> tuple[Graph, StepWindows]:
    """The graph to replay and its windows: all of it, or of a long trace an excerpt."""
    ops = trace.get(DEVICE_OPS)
    count = ops.height if ops["rank"].n_unique() == 1 else int((ops["rank"] == rank).sum())
    budget = max(_STRETCHES * _STEPS_IN_STRETCH, int(len(windows) * _OPS_REPLAYED / max(count, 1)))
    if count <= _OPS_REPLAYED or len(windows) <= budget:
        return graphs(trace)[rank], windows
    length = budget // _STRETCHES
    firsts = np.linspace(1, len(windows) - length, _STRETCHES).astype(np.int64)
    chosen = np.unique(firsts[:, None] + np.arange(length))
    lead = np.unique(np.maximum(firsts - 1, 0))  # one step ahead of each stretch brings the queues to their usual depth
    within = Intervals.union_of(
        np.concatenate((windows.start_ns[chosen], windows.start_ns[lead])),
        np.concatenate((windows.end_ns[chosen], windows.start_ns[np.minimum(lead + 1, len(windows) - 1)])),
    )
    excerpt, op_rows = _excerpt(trace, rank, within)
    graph = Graph.of(Program.read(excerpt, rank), excerpt.tables, op_rows)
    return graph, StepWindows(windows.start_ns[chosen], windows.end_ns[chosen])


def _excerpt(trace: Trace, rank: int, within: Intervals) -> tuple[Trace, Int64Array]:
    """The calls made within the time, the device ops they launched, what the host did; and those ops' rows."""
    tables: dict[Table, pl.DataFrame] = {}
    calls, ops = trace.get(API_CALLS), trace.get(DEVICE_OPS)
    called = _starts_in(calls, rank, within)
    link = launch_links(trace).call
    by_launch = np.append(called, False)[link]
    launched = np.where(link >= 0, by_launch, _starts_in(ops, rank, within))
    tables[API_CALLS], tables[DEVICE_OPS] = calls.filter(pl.Series(called)), ops.filter(pl.Series(launched))
    for table in (SYNCS, EVENT_WAITS):
        if table in trace:
            tables[table] = trace[table].filter(pl.Series(_starts_in(trace[table], rank, within)))
    for table in (HOST_OPS, RANGES, FRAMES, PROFILER_OVERHEAD):
        if table in trace:
            frame = trace[table]
            touched = within.covered_ns(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()) > 0
            tables[table] = frame.filter(pl.Series(touched) & (frame["rank"] == rank))
    return Trace(trace.source, tables, trace.notes), np.flatnonzero(launched)


def _starts_in(frame: pl.DataFrame, rank: int, within: Intervals) -> BoolArray:
    start = frame["start_ns"].to_numpy()
    return np.asarray((within.covered_ns(start, start + 1) > 0) & (frame["rank"] == rank).to_numpy(), np.bool_)


@remembered
def critical_path(trace: Trace) -> Mapping[int, PathPieces]:
    """Per rank with steady steps and a dependency graph: the path from the first of them to the end of the last.

    It is the path of the unchanged replay, so every piece lies where it was observed. A piece that no weight explains
    in full keeps its whole length: the path says what was waited for, not why it took that long.
    """
    windows = step_windows(trace)
    known = {rank: graph for rank, graph in graphs(trace).items() if rank in windows}
    return {rank: path_pieces(graph, graph.replay(), Anchors(graph, windows[rank])) for rank, graph in known.items()}
