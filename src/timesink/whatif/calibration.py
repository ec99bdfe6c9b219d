"""How much of the host's time is the profiler's own (R15): one factor brings the replay to the unprofiled step."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from timesink.model.intervals import Intervals
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, FRAMES, HOST_OPS
from timesink.whatif.graph import Graph
from timesink.whatif.network import EdgeKind
from timesink.whatif.periods import Anchors, StepWindows

Floats = npt.NDArray[np.float64]

_ROUNDS: Final = 24
_LEAST: Final = 0.05
_HOST: Final = (EdgeKind.HOST, EdgeKind.FORK, EdgeKind.JOIN)


def calibrated(graph: Graph, step_ns: float, windows: StepWindows) -> Graph:
    """The graph with host time scaled by kappa, so that its median step is the unprofiled `step_ns`.

    A profiler pays per event it records, so time inside recorded operators, calls and frames shrinks first; only if all
    of it does not suffice does untraced host time shrink too. Device time is left alone. Kappa is the share of the
    inflated host time that is left; 1 where the trace is as fast as the unprofiled program.
    """
    anchors = Anchors(graph, windows)
    if not len(windows) or _typical(graph, anchors) <= step_ns:
        return graph
    recorded = _recorded_shares(graph)
    for inflated in (recorded, np.ones_like(recorded)):
        if _typical(_scaled(graph, _LEAST, inflated), anchors) <= step_ns:
            break
    low, high = _LEAST, 1.0
    for _ in range(_ROUNDS):
        kappa = (low + high) / 2
        if _typical(_scaled(graph, kappa, inflated), anchors) > step_ns:
            high = kappa
        else:
            low = kappa
    return replace(_scaled(graph, low, inflated), kappa=low, slowdown=_typical(graph, anchors) / step_ns)


def _typical(graph: Graph, anchors: Anchors) -> float:
    return float(np.median(anchors.periods(graph.replay())))


def _scaled(graph: Graph, kappa: float, inflated: Floats) -> Graph:
    """Host weights times kappa, of the share of each that is inflated."""
    network = graph.network
    host = graph.edges_of(*_HOST)
    weight = network.edges.weight_ns.copy()
    kept = 1.0 - (1.0 - kappa) * inflated
    weight[host] = np.where(weight[host] > 0, np.floor(weight[host] * kept).astype(np.int64), weight[host])
    return graph.with_network(network.rewritten(weight, network.edges.unexplained_ns))


def _recorded_shares(graph: Graph) -> Floats:
    """The share of each host edge's time that lies inside recorded events of its thread."""
    program, edges = graph.program, graph.network.edges
    host = graph.edges_of(*_HOST)
    points = program.points
    lane = np.where(edges.kind[host] == EdgeKind.JOIN, edges.src[host], edges.dst[host])
    begin, end = points.time_ns[edges.src[host]], points.time_ns[edges.dst[host]]
    covered = np.zeros(host.size)
    number = {pair: n for n, pair in enumerate(program.calls.threads)}
    recorded: dict[int, Intervals] = {}
    for table in (API_CALLS, HOST_OPS, FRAMES):
        frame = graph.tables.get(table)
        if frame is None:
            continue
        for (rank, process, thread), first, last in thread_slices(frame):
            if rank == program.rank and (process, thread) in number:
                part = Intervals.of(frame.slice(first, last - first).select("start_ns", "end_ns"))
                n = number[process, thread]
                recorded[n] = recorded.get(n, Intervals.none()) | part
    for n, part in recorded.items():
        mine = points.thread[lane] == n
        covered[mine] = part.covered_ns(begin[mine], end[mine])
    return np.asarray(np.clip(covered / np.maximum(end - begin, 1), 0.0, 1.0), np.float64)
