"""The strokes of which changes are made: shorter ops, saved host time, waits that go, edges that come.

What a change is about: device ops, host time or calls, chosen by name or by explicit windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, get_args

import numpy as np
import polars as pl
from polars.exceptions import ComputeError

from timesink.errors import UsageError
from timesink.knowledge.kernels import COMMUNICATION
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, IntArray
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.whatif.graph import Graph
from timesink.whatif.network import DISABLED, EdgeKind, Edges

HostWindows = Mapping[int, Intervals]

Kind = Literal["any", "kernel", "collective", "op", "range", "frame", "call", "windows"]
_HOST_TABLES: Final = {"op": HOST_OPS, "range": RANGES, "frame": FRAMES, "call": API_CALLS}


@dataclass(frozen=True, slots=True)
class Target:
    """Part of a program. `pattern` is a regular expression, searched anywhere in a name.

    kernel and collective choose device ops by name; op, range, frame and call choose host time inside what bears the
    name, and the device work launched there; windows chooses host time by (process, thread); any is everything.
    """

    kind: Kind = "any"
    pattern: str = ""
    windows: Mapping[tuple[int, int], Intervals] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def parse(cls, text: str) -> Target:
        """From `kind:pattern`; raises `UsageError` for an unknown kind or a pattern that is no regular expression."""
        kind, colon, pattern = text.partition(":")
        known = [k for k in get_args(Kind) if k not in ("any", "windows")]
        if not colon or kind not in known:
            raise UsageError(
                f"{text!r} names no part of a program", remedy=f"write KIND:REGEX, KIND one of {', '.join(known)}"
            )
        try:
            pl.Series([""]).str.contains(pattern)
        except ComputeError as error:
            reason = str(error).partition("\n\n")[0].strip().splitlines()[-1]
            raise UsageError(f"{pattern!r} is no regular expression: {reason}") from error
        return next(cls(k, pattern) for k in get_args(Kind) if k == kind)

    def __str__(self) -> str:
        match self.kind:
            case "any":
                return "everything"
            case "windows":
                total = sum(part.total_ns for part in self.windows.values())
                return f"{total / 1e6:.3f} ms of host time"
            case _:
                return f"{self.kind}:{self.pattern}"


def chosen_ops(graph: Graph, target: Target) -> BoolArray:
    """Device ops that a target names, or that were launched inside the host time it names."""
    program = graph.program
    if target.kind == "any":
        return np.ones(len(program.ops), bool)
    if target.kind in ("kernel", "collective"):
        frame = graph.tables.get(DEVICE_OPS, DEVICE_OPS.empty())
        chosen = matches(frame["name"].gather(program.ops.row), target.pattern).to_numpy()
        return chosen & (program.ops.op_class == COMMUNICATION) if target.kind == "collective" else chosen
    calls = calls_within(graph, host_windows(graph, target))
    return (
        (program.ops.call >= 0) & calls[np.maximum(program.ops.call, 0)]
        if len(program.calls)
        else np.zeros(len(program.ops), bool)
    )


def host_windows(graph: Graph, target: Target) -> dict[int, Intervals]:
    """Host time that a target names, by thread number. A worker thread's time counts with that of its owner.

    For `kernel` and `collective` it is the time of the calls that launched them.
    """
    program = graph.program
    number = {pair: n for n, pair in enumerate(program.calls.threads)}
    match target.kind:
        case "any":
            found = {n: _span(graph) for n in number.values()}
        case "windows":
            found = {number[pair]: part for pair, part in target.windows.items() if pair in number}
        case "kernel" | "collective":
            calls = np.unique(program.ops.call[chosen_ops(graph, target) & (program.ops.call >= 0)])
            found = _by_thread(program.calls.thread[calls], program.calls.start_ns[calls], program.calls.end_ns[calls])
        case "op" | "range" | "frame" | "call":
            found = _named_windows(graph, target, number)
    return _shared_with_workers(graph, found)


def _span(graph: Graph) -> Intervals:
    times = graph.program.points.time_ns
    return Intervals.one(int(times.min()), int(times.max()) + 1)


def _named_windows(graph: Graph, target: Target, number: Mapping[tuple[int, int], int]) -> dict[int, Intervals]:
    frame = graph.tables.get(_HOST_TABLES[target.kind])
    if frame is None or not frame.height:
        return {}
    hit = matches(frame["name"], target.pattern).to_numpy()
    found: dict[int, Intervals] = {}
    for (rank, process, thread), first, last in thread_slices(frame):
        rows = first + np.flatnonzero(hit[first:last])
        if rank == graph.program.rank and (process, thread) in number and rows.size:
            found[number[process, thread]] = Intervals.of(frame[rows].select("start_ns", "end_ns"))
    return found


def _by_thread(thread: IntArray, start: Int64Array, end: Int64Array) -> dict[int, Intervals]:
    return {int(n): Intervals.union_of(start[thread == n], end[thread == n]) for n in np.unique(thread)}


def _shared_with_workers(graph: Graph, found: dict[int, Intervals]) -> dict[int, Intervals]:
    """A range of the thread that waits for a worker encloses what the worker does on its behalf."""
    bursts = graph.program.bursts
    for owner, worker in sorted(set(zip(bursts.owner.tolist(), bursts.worker.tolist(), strict=True))):
        if owner in found:
            found[worker] = found[owner] | found.get(worker, Intervals.none())
    return found


def calls_within(graph: Graph, windows: HostWindows) -> BoolArray:
    """Calls that begin inside the host time of their thread."""
    calls = graph.program.calls
    inside = np.zeros(len(calls), bool)
    for thread, part in windows.items():
        mine = np.flatnonzero(calls.thread == thread)
        inside[mine] = part.covered_ns(calls.start_ns[mine], calls.start_ns[mine] + 1) > 0
    return inside


class Edit:
    """Works on copies of a graph's costs; `done()` is the changed graph. Strokes of different kinds may follow."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._weight = graph.network.edges.weight_ns.copy()
        self._unexplained = graph.network.edges.unexplained_ns.copy()
        self._more: list[Edges] = []
        edges, program = graph.network.edges, graph.program
        run = graph.edges_of(EdgeKind.RUN)
        self._run_edge = np.empty(len(program.blocks), np.int64)
        self._run_edge[graph.block_of(edges.dst[run])] = run

    def done(self) -> Graph:
        """The changed graph."""
        network = self.graph.network.rewritten(self._weight, self._unexplained)
        return self.graph.with_network(network.with_more(Edges.joined(self._more)) if self._more else network)

    def scale_ops(self, ops: BoolArray, factor: float | Float64Array) -> None:
        """Multiply how long ops run. In a graph launch, only time in which no other op runs shrinks (R11).

        `factor` is one number, or one per op of the program.
        """
        program = self.graph.program
        saved = (1.0 - np.broadcast_to(np.asarray(factor, np.float64), ops.shape)) * ops
        length = (program.ops.end_ns - program.ops.start_ns).astype(np.float64)
        alone = program.blocks.size[program.ops.block] == 1
        share = np.zeros(len(program.blocks))
        run = np.maximum(program.blocks.end_ns - program.blocks.start_ns, 1)
        np.add.at(share, program.ops.block[alone], saved[alone])
        together = np.flatnonzero(~alone & (saved > 0))
        if together.size:
            mates = np.isin(program.ops.block, np.unique(program.ops.block[together]))
            others = Intervals.union_of(program.ops.start_ns[mates & ~ops], program.ops.end_ns[mates & ~ops])
            start, end = program.ops.start_ns[together], program.ops.end_ns[together]
            exclusive = length[together] - others.covered_ns(start, end)
            np.add.at(
                share, program.ops.block[together], saved[together] * exclusive / run[program.ops.block[together]]
            )
        self._shorten(self._run_edge[share != 0], np.minimum(share[share != 0], 1.0))

    def drop_ops(self, ops: BoolArray) -> None:
        """Take ops away: they run for no time, start without delay, and leave no gap."""
        self.scale_ops(ops, 0.0)
        self.close_gaps(ops, 0)
        launches = self.graph.edges_of(EdgeKind.LAUNCH)
        gone = ops[self.graph.program.blocks.op[self.graph.block_of(self.graph.network.edges.dst[launches])]]
        self._weight[launches[gone]] = np.minimum(self._weight[launches[gone]], 0)

    def close_gaps(self, ops: BoolArray, gap_ns: int) -> None:
        """Let ops follow their predecessors on the stream after at most `gap_ns`, without the jitter of a launch."""
        graph, edges = self.graph, self.graph.network.edges
        left = np.bincount(graph.program.ops.block[~ops], minlength=len(graph.program.blocks)) == 0
        into = graph.edges_of(EdgeKind.STREAM)
        into = into[left[graph.block_of(edges.dst[into])]]
        self._weight[into] = np.minimum(self._weight[into], gap_ns)
        nodes = np.zeros(graph.network.observed_ns.size, bool)
        nodes[graph.program.start_node(np.flatnonzero(left))] = True
        self.start_promptly(nodes)

    def save_host(self, windows: HostWindows, share: float) -> None:
        """Take a share of the host's own time in the windows away. Waiting is not host time and stays what it is."""
        for thread, part in windows.items():
            self.save_host_parts(thread, part.start_ns, part.end_ns, np.full(len(part), share))

    def save_host_parts(self, thread: int, start_ns: Int64Array, end_ns: Int64Array, share: Float64Array) -> None:
        """The same for disjoint intervals of one thread, in order, each with a share of its own."""
        if not start_ns.size:
            return
        edges, points = self.graph.network.edges, self.graph.program.points
        mine = self.graph.edges_of(EdgeKind.HOST, EdgeKind.FORK, EdgeKind.JOIN)
        lane = np.where(edges.kind[mine] == EdgeKind.JOIN, edges.src[mine], edges.dst[mine])
        mine = mine[points.thread[lane] == thread]
        begin, end = points.time_ns[edges.src[mine]], points.time_ns[edges.dst[mine]]
        origin = int(start_ns[0])
        knots = np.stack((start_ns - origin, end_ns - origin), axis=1).ravel().astype(np.float64)
        gained = np.stack((np.zeros(share.size), (end_ns - start_ns) * share), axis=1).ravel().cumsum()
        saved = np.interp(end - origin, knots, gained) - np.interp(begin - origin, knots, gained)
        length = np.maximum(end - begin, 1)
        touched = saved > 0
        self._shorten(mine[touched], np.minimum(saved[touched] / length[touched], 1.0))

    def drop_waits(self, calls: BoolArray) -> None:
        """Let calls return at once instead of waiting for the device; they cost nothing any more."""
        graph, points, edges = self.graph, self.graph.program.points, self.graph.network.edges
        ends = np.zeros(graph.network.observed_ns.size, bool)
        ends[points.end_of[calls]] = True
        self.disable(graph.edges_of(EdgeKind.RELEASE, EdgeKind.QUEUE), ends)
        own = graph.edges_of(EdgeKind.HOST)
        self._weight[own[ends[edges.dst[own]]]] = 0
        self.start_promptly(ends)

    def disable(self, among: Int64Array, into: BoolArray) -> None:
        """Take edges away that enter the marked nodes."""
        gone = among[into[self.graph.network.edges.dst[among]]]
        self._weight[gone] = DISABLED

    def disable_from(self, among: Int64Array, out_of: BoolArray) -> None:
        """Take edges away that leave the marked nodes."""
        gone = among[out_of[self.graph.network.edges.src[among]]]
        self._weight[gone] = DISABLED

    def start_promptly(self, nodes: BoolArray) -> None:
        """Forget the delays of the marked nodes that no weight explains."""
        self._unexplained[nodes[self.graph.network.edges.dst]] = 0

    def add(self, kind: EdgeKind, src: Int64Array, dst: Int64Array, weight_ns: Int64Array | int) -> None:
        """Demand more: dst happens no earlier than that after src."""
        self._more.append(Edges.of(kind, src, dst, weight_ns))

    def _shorten(self, edges: Int64Array, share: Float64Array) -> None:
        """Edges whose weight is disabled stay so; rounding keeps the order of two savings."""
        weight = self._weight[edges]
        kept = np.rint(weight * (1.0 - share)).astype(np.int64)
        self._weight[edges] = np.where(weight > 0, kept, weight)
