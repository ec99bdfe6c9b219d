"""The dependency graph of what one rank did, and its replay.

`RankWork` is what was read: calls, device work, and what each part waited for. `Program` makes a graph of it, `Graph`
holds it with costs that changes rewrite.

Daydream (Zhu, Phanishayee and Pekhimenko, ATC 2020) and Lumos (Liang et al., MLSys 2025) answer what-if questions by
replaying such graphs. Two things are done otherwise here. Every edge carries what its thing costs by itself, so that
waiting comes out of the replay, where they keep observed gaps as weights: a gap that was the host's lateness would
outlive a change that makes the host faster. And the time between traced events is a cost as well, because a path over
operators alone loses the Python, logging and input loading between them, which is often most of a step. What the edges
leave unexplained stays on the edge that bound, so the unchanged replay is exact, and how much that is says how far a
replay of this trace can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import numpy as np
import polars as pl

from timesink.errors import UsageError
from timesink.knowledge.assumptions import replay
from timesink.model.arrays import BoolArray, Int64Array, IntArray, median
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import Record, field, field_names, replace
from timesink.whatif.device import Blocks, Costs, Ops, measure_costs, read_ops, same_stream_pairs
from timesink.whatif.host import Bursts, Calls, HostPoints, burst_points, find_bursts, host_points, read_calls
from timesink.whatif.network import EdgeKind, Edges, Network, Replay
from timesink.whatif.waits import EventEdges, LaunchOrder, Releases, find_event_edges, find_releases

_Kept = TypeVar("_Kept")


class RankWork(Record, eq=False):
    """What one rank did and what each part of it waited for: all that says why a device was idle."""

    rank: int
    calls: Calls
    bursts: Bursts
    ops: Ops
    blocks: Blocks
    costs: Costs
    releases: Releases
    events: EventEdges

    @classmethod
    def read_work(cls, trace: Trace, rank: int) -> RankWork:
        """The work of one rank."""
        calls = read_calls(trace, rank)
        ops, blocks = read_ops(trace, rank, calls)
        launches = LaunchOrder.of(calls, ops, blocks)
        return RankWork(
            rank,
            calls,
            find_bursts(trace, rank, calls.threads),
            ops,
            blocks,
            measure_costs(ops, calls),
            find_releases(trace, rank, calls, ops, blocks, launches),
            find_event_edges(trace, rank, calls, ops, blocks, launches),
        )

    def launching(self, ops: BoolArray | None = None) -> BoolArray:
        """Which calls launched any of these ops; any op at all where none are given. One entry per call."""
        call = self.ops.call if ops is None else self.ops.call[ops]
        marked = np.zeros(len(self.calls), bool)
        marked[call[call >= 0]] = True
        return marked


class Program(RankWork, eq=False):
    """One rank's work as nodes and edges.

    Nodes are numbered: host points first, then start and end of each block, alternating. With 3 points and 2 blocks:

        node   0  1  2  3               4             5               6
        is     points   block 0 starts  block 0 ends  block 1 starts  block 1 ends
    """

    points: HostPoints

    @classmethod
    def read(cls, trace: Trace, rank: int | None = None) -> Program:
        """The program of a rank; `UsageError` where the trace has several ranks and none was chosen."""
        rank = _only_rank(trace) if rank is None else rank
        work = RankWork.read_work(trace, rank)
        points = host_points(trace, rank, work.calls, work.bursts)
        return cls(**{name: getattr(work, name) for name in field_names(RankWork)}, points=points)

    def start_node(self, block: IntArray) -> IntArray:
        """The node at which a block starts."""
        return len(self.points) + 2 * block

    def end_node(self, block: IntArray) -> IntArray:
        """The node at which a block ends."""
        return len(self.points) + 2 * block + 1

    @property
    def observed_ns(self) -> Int64Array:
        """When each node happened."""
        device = np.stack((self.blocks.start_ns, self.blocks.end_ns), axis=1).ravel()
        return np.concatenate((self.points.time_ns, device))

    def edges(self) -> Edges:
        """Every edge, each with its intrinsic cost in ns."""
        full, freed, usual_ns = self._full_queue()
        return Edges.concat(
            [
                self._host(full, usual_ns),
                *self._handovers(),
                self._launches(),
                self._runs(),
                self._streams(),
                self._events(),
                self._releases(),
                self._queue(full, freed),
            ]
        )

    def _host(self, full: IntArray, usual_ns: int) -> Edges:
        """From each point of a thread to the next, except across a cut, where the thread did nothing but wait.

        The weight is the time between the two: nothing the host does is free, whether a profiler saw it or not. Only a
        call that waited counts with what it costs by itself, and one that found the queue full with `usual_ns`; the
        rest of their time comes back from the edges they waited for.
        """
        points = self.points
        later = np.flatnonzero(~points.cut)
        weight = np.zeros(len(points), np.int64)
        weight[1:] = np.diff(points.time_ns)
        waiting, own_cost = self._waiting_calls()
        for call, cost in ((waiting, own_cost), (full, usual_ns)):
            ends = points.end_of[call]
            weight[ends] = np.minimum(weight[ends], cost)
        return Edges.of(EdgeKind.HOST, later - 1, later, weight[later])

    def _waiting_calls(self) -> tuple[IntArray, Int64Array]:
        """Calls that waited for the device, and what each costs by itself: the median of its kind where none waited.

        A call that can wait, and lasted long with no release found for it, counts as one that waited.
        """
        calls, releases = self.calls, self.releases
        has_release = np.zeros(len(calls), bool)
        has_release[releases.call] = True
        waited = releases.blocking & (self._released_ns() > calls.start_ns)
        cost = np.zeros(len(calls), np.int64)
        for kind in np.unique(calls.kind[releases.blocking]):
            of_kind = releases.blocking & (calls.kind == kind)
            free = calls.lengths_ns[of_kind & has_release & ~waited]
            cost[of_kind] = int(median(free)) if free.size else replay.RETURN_IF_UNSEEN_US.ns
        lost = releases.blocking & ~has_release & (calls.lengths_ns > 2 * replay.RETURN_IF_UNSEEN_US.ns)
        chosen = np.flatnonzero(waited | lost)
        return chosen, cost[chosen]

    def _handovers(self) -> list[Edges]:
        """Forks and joins: PyTorch's autograd runs backward on threads of its own while the caller waits for them.

        Without them the worker's launches would depend on nothing, and the caller's wait would be work. The weight is
        the time between the two acts, during which neither thread waits for anything else.
        """
        points, bursts = self.points, self.bursts
        forks: list[tuple[int, int]] = []
        joins: list[tuple[int, int]] = []
        for number in range(len(bursts)):
            low, high = burst_points(points, bursts, number)
            fork, join = int(points.fork_of[number]), int(points.join_of[number])
            if high > low:
                forks.append((fork, low))
                joins.append((high - 1, join))
            else:  # the worker made no call
                joins.append((fork, join))
        parts = []
        for kind, pairs in ((EdgeKind.FORK, forks), (EdgeKind.JOIN, joins)):
            src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
            parts.append(Edges.of(kind, src, dst, points.time_ns[dst] - points.time_ns[src]))
        return parts

    def _launches(self) -> Edges:
        """From the start of a launching call, not its return, after which many kernels run already, to the block.

        The weight is the intrinsic latency of launches into an empty queue (`measure_costs`).
        """
        block = np.flatnonzero(self.blocks.call >= 0)
        src = self.points.begin_of[self.blocks.call[block]]
        return Edges.of(EdgeKind.LAUNCH, src, self.start_node(block), self.costs.latency_ns(self.blocks.op[block]))

    def _runs(self) -> Edges:
        """From a block's start to its end; the weight is how long it ran."""
        block = np.arange(len(self.blocks))
        length = self.blocks.end_ns - self.blocks.start_ns
        return Edges.of(EdgeKind.RUN, self.start_node(block), self.end_node(block), length)

    def _streams(self) -> Edges:
        """From the end of each block to the start of the next on its stream: CUDA runs a stream in the order of issue.

        The weight is the intrinsic gap between two ops that were both queued (`measure_costs`). The observed gap would
        be wrong: where the host was late, it is the host's.
        """
        earlier, later = same_stream_pairs(self.ops)
        pairs = np.stack((self.ops.block[earlier], self.ops.block[later]))
        pairs = pairs[:, pairs[0] != pairs[1]]
        if (self.blocks.size > 1).any():
            pairs = np.unique(pairs, axis=1)
        return Edges.of(EdgeKind.STREAM, self.end_node(pairs[0]), self.start_node(pairs[1]), self.costs.gap_ns)

    def _events(self) -> Edges:
        """From the work recorded by an event to the work that waits for it; the wait by itself costs nothing."""
        return Edges.of(EdgeKind.EVENT, self.end_node(self.events.source), self.start_node(self.events.sink), 0)

    def _releases(self) -> Edges:
        """From the work that a call waited for to the call's return.

        The weight is the median time in which calls of this kind return after what released them last.
        """
        calls, releases = self.calls, self.releases
        last = self._released_ns()
        waited = np.flatnonzero(last > calls.start_ns)
        tail, kind = calls.end_ns[waited] - last[waited], calls.kind[waited]
        weight = np.full(releases.call.size, replay.RETURN_IF_UNSEEN_US.ns, np.int64)
        for number in np.unique(kind):
            weight[calls.kind[releases.call] == number] = max(0, int(median(tail[kind == number])))
        return Edges.of(EdgeKind.RELEASE, self.end_node(releases.block), self.points.end_of[releases.call], weight)

    def _released_ns(self) -> Int64Array:
        """When what each call waited for was over; long ago where it waited for nothing known."""
        released = np.full(len(self.calls), np.iinfo(np.int64).min, np.int64)
        np.maximum.at(released, self.releases.call, self.blocks.end_ns[self.releases.block])
        return released

    def _queue(self, full: IntArray, freed: IntArray) -> Edges:
        """From the block whose end freed a slot to the return of the launch that found the queue full; no weight."""
        return Edges.of(EdgeKind.QUEUE, self.end_node(freed), self.points.end_of[full], 0)

    def _full_queue(self) -> tuple[IntArray, IntArray, int]:
        """Launches blocked on a full queue, the block whose end freed each, and what a launch usually takes in ns.

        Outstanding at the k-th launch are the k before it less the blocks that have ended. The slot came free at the
        last end before the launch returned.
        """
        block = np.flatnonzero(self.blocks.call >= 0)
        call = self.blocks.call[block]
        if not call.size:
            return call, call, 0
        call = call[np.argsort(self.calls.start_ns[call], kind="stable")]
        by_end = np.argsort(self.blocks.end_ns, kind="stable")
        ended = self.blocks.end_ns[by_end]
        outstanding = np.arange(call.size) - np.searchsorted(ended, self.calls.start_ns[call], side="right")
        lengths = self.calls.lengths_ns[call]
        usual = int(median(lengths))
        full = call[(outstanding >= replay.QUEUE_NEARLY_FULL.whole) & (lengths > replay.BLOCKED_FACTOR.value * usual)]
        full = full[~self.releases.blocking[full]]
        last_end = np.searchsorted(ended, self.calls.end_ns[full], side="right") - 1
        return full[last_end >= 0], by_end[last_end[last_end >= 0]], usual


class Graph(Record, eq=False):
    """A rank's program with its network. `graph.replay()` reproduces every observed time of an unchanged graph exactly.

    `kappa` is the share of profiled host time that calibration left, 1 where it was not needed; `slowdown` is the
    profiled step over the unprofiled one. `tables` are those of the trace the program was read from; where that was an
    excerpt, `op_rows` leads back to rows of the whole trace. `late_peers_ns` is what each block waited for hosts of
    other ranks; None where nothing did. `kept` holds what was worked out of these and of the program alone, for all
    networks of them.
    """

    tables: Mapping[Table, pl.DataFrame]
    program: Program
    network: Network
    kappa: float = 1.0
    slowdown: float = 1.0
    op_rows: IntArray | None = None
    late_peers_ns: Int64Array | None = None
    kept: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def from_trace(cls, trace: Trace, rank: int | None = None) -> Graph:
        """The graph of one rank; `rank` may be left out where the trace has only one."""
        return cls.of(Program.read(trace, rank), trace.tables)

    @classmethod
    def of(cls, program: Program, tables: Mapping[Table, pl.DataFrame], op_rows: IntArray | None = None) -> Graph:
        """The graph of a program that was read before; `tables` are those of its trace, for the names in changes."""
        return cls(tables, program, Network.build(program.observed_ns, program.edges()), op_rows=op_rows)

    def replay(self) -> Replay:
        """When every node happens."""
        return self.network.replay()

    def with_network(self, network: Network) -> Graph:
        """The same program with other costs or edges."""
        return replace(self, network=network)

    def once(self, what: Hashable, work_out: Callable[[], _Kept]) -> _Kept:
        """What does not depend on costs and edges, worked out once; whoever gets it leaves it as it is."""
        if what not in self.kept:
            self.kept[what] = work_out()
        return self.kept[what]  # type: ignore[no-any-return]

    def waiting_for_hosts(self, rows: Int64Array, waited_ns: Int64Array) -> Graph:
        """The same graph, whose ops at these rows of the whole trace waited so long for hosts of other ranks."""
        own, blocks = self.rows_of_ops(), self.program.blocks
        known = np.isin(rows, own)
        order = np.argsort(own)
        block = self.program.ops.block[order[np.searchsorted(own, rows[known], sorter=order)]]
        late_ns = np.zeros(len(blocks), np.int64)
        late_ns[block] = waited_ns[known]
        return replace(self, late_peers_ns=np.where(blocks.size == 1, late_ns, 0))

    def table(self, table: Table) -> pl.DataFrame:
        """A table of the trace; empty where it was not recorded."""
        frame = self.tables.get(table)
        return table.empty() if frame is None else frame

    def rows_of_ops(self) -> IntArray:
        """The row of `device_ops`, in the whole trace, of each op of the program."""
        row = self.program.ops.row
        return row if self.op_rows is None else self.op_rows[row]

    def ops_at(self, rows: IntArray) -> BoolArray:
        """Which ops are these rows of the whole trace, one flag per op."""
        own = self.rows_of_ops()
        wanted = np.zeros(max(int(own.max(initial=-1)), int(rows.max(initial=-1))) + 1, bool)
        wanted[rows] = True
        return wanted[own]

    def names_of_ops(self) -> pl.Series:
        """The name of each op of the program, in its order; untrusted text."""
        return self.once("names", lambda: self.table(DEVICE_OPS)["name"][self.program.ops.row])

    def edges_of(self, *kinds: EdgeKind) -> IntArray:
        """Numbers of the edges of these kinds."""
        kind = self.network.edges.kind
        return self.network.once(
            kinds, lambda: np.flatnonzero(np.logical_or.reduce([kind == wanted for wanted in kinds]))
        )

    def block_of(self, node: IntArray) -> IntArray:
        """The block whose start or end a node is; negative for host points."""
        return (node - len(self.program.points)) // 2

    def host_edges(self) -> tuple[IntArray, IntArray]:
        """Numbers of the edges that are a thread's own time, and the thread of each; a join's is the worker."""
        return self.network.once("host", self._host_edges)

    def _host_edges(self) -> tuple[IntArray, IntArray]:
        edges, host = self.network.edges, self.edges_of(EdgeKind.HOST, EdgeKind.FORK, EdgeKind.JOIN)
        point = np.where(edges.kind[host] == EdgeKind.JOIN, edges.src[host], edges.dst[host])
        return host, self.program.points.thread[point]

    def edges_of_thread(self, thread: int) -> tuple[IntArray, Int64Array, Int64Array]:
        """Of one thread the numbers of these edges, and when each began and ended as observed, in that order."""
        return self.network.once(thread, lambda: self._edges_of_thread(thread))

    def _edges_of_thread(self, thread: int) -> tuple[IntArray, Int64Array, Int64Array]:
        edges, time_ns, (host, thread_of) = self.network.edges, self.program.points.time_ns, self.host_edges()
        own = host[thread_of == thread]
        own = own[np.argsort(time_ns[edges.src[own]], kind="stable")]
        return own, time_ns[edges.src[own]], time_ns[edges.dst[own]]

    def marks(self, nodes: IntArray) -> BoolArray:
        """One flag per node, set for these."""
        marked = np.zeros(self.network.observed_ns.size, bool)
        marked[nodes] = True
        return marked


def ranks_of(trace: Trace) -> list[int]:
    """Ranks that made CUDA calls or did device work, in order."""
    return sorted({int(r) for table in (DEVICE_OPS, API_CALLS) for r in trace.get(table)["rank"].unique().to_list()})


def _only_rank(trace: Trace) -> int:
    ranks = ranks_of(trace)
    if len(ranks) > 1:
        listed = ", ".join(str(r) for r in ranks)
        raise UsageError(f"the trace has ranks {listed}, and a what-if replays one", remedy="choose one with --rank")
    return ranks[0] if ranks else 0
