"""The strokes of which changes are made: shorter ops, saved host time, waits that go, edges that come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timesink.model.intervals import Intervals
from timesink.whatif.graph import Graph
from timesink.whatif.network import DISABLED, EdgeKind, Edges
from timesink.whatif.selection import HostWindows

Times = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Shares = npt.NDArray[np.float64]


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

    def scale_ops(self, ops: Flags, factor: float | Shares) -> None:
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

    def drop_ops(self, ops: Flags) -> None:
        """Take ops away: they run for no time, start without delay, and leave no gap."""
        self.scale_ops(ops, 0.0)
        self.close_gaps(ops, 0)
        launches = self.graph.edges_of(EdgeKind.LAUNCH)
        gone = ops[self.graph.program.blocks.op[self.graph.block_of(self.graph.network.edges.dst[launches])]]
        self._weight[launches[gone]] = np.minimum(self._weight[launches[gone]], 0)

    def close_gaps(self, ops: Flags, gap_ns: int) -> None:
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

    def save_host_parts(self, thread: int, start_ns: Times, end_ns: Times, share: Shares) -> None:
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

    def drop_waits(self, calls: Flags) -> None:
        """Let calls return at once instead of waiting for the device; they cost nothing any more."""
        graph, points, edges = self.graph, self.graph.program.points, self.graph.network.edges
        ends = np.zeros(graph.network.observed_ns.size, bool)
        ends[points.end_of[calls]] = True
        self.disable(graph.edges_of(EdgeKind.RELEASE, EdgeKind.QUEUE), ends)
        own = graph.edges_of(EdgeKind.HOST)
        self._weight[own[ends[edges.dst[own]]]] = 0
        self.start_promptly(ends)

    def disable(self, among: Rows, into: Flags) -> None:
        """Take edges away that enter the marked nodes."""
        gone = among[into[self.graph.network.edges.dst[among]]]
        self._weight[gone] = DISABLED

    def disable_from(self, among: Rows, out_of: Flags) -> None:
        """Take edges away that leave the marked nodes."""
        gone = among[out_of[self.graph.network.edges.src[among]]]
        self._weight[gone] = DISABLED

    def start_promptly(self, nodes: Flags) -> None:
        """Forget the delays of the marked nodes that no weight explains."""
        self._unexplained[nodes[self.graph.network.edges.dst]] = 0

    def add(self, kind: EdgeKind, src: Rows, dst: Rows, weight_ns: Times | int) -> None:
        """Demand more: dst happens no earlier than that after src."""
        self._more.append(Edges.of(kind, src, dst, weight_ns))

    def _shorten(self, edges: Rows, share: Shares) -> None:
        """Edges whose weight is disabled stay so; rounding keeps the order of two savings."""
        weight = self._weight[edges]
        kept = np.rint(weight * (1.0 - share)).astype(np.int64)
        self._weight[edges] = np.where(weight > 0, kept, weight)
