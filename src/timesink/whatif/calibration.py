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

_LEAST: Final = 0.05
_TRIED: Final = np.linspace(_LEAST, 1.0, 20)
_FINE: Final = np.linspace(_LEAST, 1.0, 951)
# Two runs of one program differ by so much of the step (clocks, temperature): a step that the device fills says no more
# about the host than this lets through.
_STEP_NOISE_RATIO: Final = 0.015
# torch.profiler with shapes: recorded operators and calls take two and a half times as long. Kappa of the programs of
# the tuning split whose host sets the pace: 0.30 to 0.45 (docs/decisions/0005-refusal-by-slow-down.md).
_USUAL_KAPPA: Final = 0.40
_KAPPA_DEVIATION: Final = 0.10
_HOST: Final = (EdgeKind.HOST, EdgeKind.FORK, EdgeKind.JOIN)


def calibrated(graph: Graph, step_ns: float, windows: StepWindows) -> Graph:
    """The graph with host time scaled by kappa, so that its median step is the unprofiled `step_ns`.

    A profiler pays per event it records, so time inside recorded operators, calls and frames shrinks first; only if all
    of it does not suffice does untraced host time shrink too. Device time is left alone. Kappa is the share of the
    inflated host time that is left: the most likely one, by the step it gives and, where the profiler is one whose
    kappa is known, by that. 1 where the trace is as fast as the unprofiled program and nothing else is known.
    """
    anchors = Anchors(graph, windows)
    if not len(windows):
        return graph
    usual = _usual_kappa(graph)
    if usual is None and _typical(graph, anchors) <= step_ns:
        return graph
    inflated = _recorded_shares(graph)
    noise = 0.0 if usual is None else 2 * _STEP_NOISE_RATIO
    if _typical(_scaled(graph, _LEAST, inflated), anchors) > (1 + noise) * step_ns:
        inflated, usual = np.ones_like(inflated), None
    tried = [_typical(_scaled(graph, float(kappa), inflated), anchors) for kappa in _TRIED]
    off = (np.interp(_FINE, _TRIED, tried) / step_ns - 1) / _STEP_NOISE_RATIO
    unlikely = off**2 + (0.0 if usual is None else ((_FINE - usual) / _KAPPA_DEVIATION) ** 2)
    kappa = float(_FINE[int(np.argmin(unlikely))])
    return replace(_scaled(graph, kappa, inflated), kappa=kappa, slowdown=_typical(graph, anchors) / step_ns)


def _usual_kappa(graph: Graph) -> float | None:
    """What kappa usually is for the profiler that recorded this; None where it was not measured."""
    operators, frames = graph.tables.get(HOST_OPS), graph.tables.get(FRAMES)
    if operators is None or operators["input_shapes"].null_count() == operators.height:
        return None
    return _USUAL_KAPPA if frames is None or not frames.height else None


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
