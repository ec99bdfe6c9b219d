"""The dependency graph of one rank's trace, and its replay with one thing changed.

Daydream (ATC'20) and Lumos (MLSys'25) replay such graphs; here every edge carries an intrinsic cost, waiting re-emerges
from the maximum over predecessors, and what the maximum leaves unexplained stays with its node as a residual.

What every change has: a label, the side it touches, and figures that are known only as ranges.

What one rank did, as the graph sees it: calls, points, bursts, device ops, and how they depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Final, Protocol

import numpy as np
import polars as pl

from timesink.errors import UsageError
from timesink.model.arrays import Int64Array, IntArray
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.device import Blocks, Costs, Ops, measure_costs, read_ops, same_stream_pairs
from timesink.whatif.host import Bursts, Calls, HostPoints, burst_points, find_bursts, host_points, read_calls
from timesink.whatif.network import EdgeKind, Edges, Network, Replay
from timesink.whatif.waits import EventEdges, Releases, find_event_edges, find_releases

# What a call that waits costs once it may go on, where the trace shows none that did not wait.
_RETURN_IF_UNSEEN_NS: Final = 5_000
# A context holds 1024 outstanding launches; a launch near that blocks until one completes (R2).
_QUEUE_NEARLY_FULL: Final = 900
_BLOCKED_FACTOR: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class RankWork:
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
        return RankWork(
            rank,
            calls,
            find_bursts(trace, rank, calls.threads),
            ops,
            blocks,
            measure_costs(ops, calls),
            find_releases(trace, rank, calls, ops, blocks),
            find_event_edges(trace, rank, calls, ops, blocks),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Program(RankWork):
    """One rank as a graph. Node numbers: host points first, then the start and the end of each block, alternating."""

    points: HostPoints

    @classmethod
    def read(cls, trace: Trace, rank: int | None = None) -> Program:
        """Raises `UsageError` where the trace has several ranks and none was chosen."""
        rank = _only_rank(trace) if rank is None else rank
        work = RankWork.read_work(trace, rank)
        points = host_points(trace, rank, work.calls, work.bursts)
        return cls(**{part.name: getattr(work, part.name) for part in fields(RankWork)}, points=points)

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
        """Every edge of R1 to R11, each with its intrinsic cost."""
        return Edges.joined(
            [self._host(), *self._handovers(), self._launches(), self._runs(), self._streams(), self._events(),
             self._releases(), self._queue()]
        )  # fmt: skip

    def _host(self) -> Edges:
        points = self.points
        later = np.flatnonzero(~points.cut)
        weight = np.zeros(len(points), np.int64)
        weight[1:] = np.diff(points.time_ns)
        waiting, cost = self.blocking_costs()
        ends = points.end_of[waiting]
        weight[ends] = np.minimum(weight[ends], cost)
        full, _, usual = self._full_queue()
        ends = points.end_of[full]
        weight[ends] = np.minimum(weight[ends], usual)
        return Edges.of(EdgeKind.HOST, later - 1, later, weight[later])

    def blocking_costs(self) -> tuple[IntArray, Int64Array]:
        """Calls that waited, and what each costs by itself: the median of its kind where none waited."""
        calls, releases = self.calls, self.releases
        found = np.zeros(len(calls), bool)
        found[releases.call] = True
        waited = releases.blocking & (self._released_ns() > calls.start_ns)
        lengths = calls.lengths_ns
        cost = np.zeros(len(calls), np.int64)
        for kind in np.unique(calls.kind[releases.blocking]):
            mine = releases.blocking & (calls.kind == kind)
            free = lengths[mine & found & ~waited]
            cost[mine] = int(np.median(free)) if free.size else _RETURN_IF_UNSEEN_NS
        lost = releases.blocking & ~found & (lengths > 2 * _RETURN_IF_UNSEEN_NS)
        chosen = np.flatnonzero(waited | lost)
        return chosen, cost[chosen]

    def _handovers(self) -> list[Edges]:
        points, bursts = self.points, self.bursts
        forks: list[tuple[int, int]] = []
        joins: list[tuple[int, int]] = []
        for number in range(len(bursts)):
            low, high = burst_points(points, bursts, number)
            fork, join = int(points.fork_of[number]), int(points.join_of[number])
            if high > low:
                forks.append((fork, low))
                joins.append((high - 1, join))
            else:
                joins.append((fork, join))
        parts = []
        for kind, pairs in ((EdgeKind.FORK, forks), (EdgeKind.JOIN, joins)):
            src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
            parts.append(Edges.of(kind, src, dst, points.time_ns[dst] - points.time_ns[src]))
        return parts

    def _launches(self) -> Edges:
        block = np.flatnonzero(self.blocks.call >= 0)
        src = self.points.begin_of[self.blocks.call[block]]
        return Edges.of(EdgeKind.LAUNCH, src, self.start_node(block), self.costs.latency_ns(self.blocks.op[block]))

    def _runs(self) -> Edges:
        block = np.arange(len(self.blocks))
        length = self.blocks.end_ns - self.blocks.start_ns
        return Edges.of(EdgeKind.RUN, self.start_node(block), self.end_node(block), length)

    def _streams(self) -> Edges:
        earlier, later = same_stream_pairs(self.ops)
        pairs = np.stack((self.ops.block[earlier], self.ops.block[later]))
        pairs = pairs[:, pairs[0] != pairs[1]]
        if (self.blocks.size > 1).any():
            pairs = np.unique(pairs, axis=1)
        return Edges.of(EdgeKind.STREAM, self.end_node(pairs[0]), self.start_node(pairs[1]), self.costs.gap_ns)

    def _events(self) -> Edges:
        return Edges.of(EdgeKind.EVENT, self.end_node(self.events.source), self.start_node(self.events.sink), 0)

    def _releases(self) -> Edges:
        """A call that waited returns the median tail of its kind after what released it last."""
        calls, releases = self.calls, self.releases
        last = self._released_ns()
        waited = np.flatnonzero(last > calls.start_ns)
        tail, kind = calls.end_ns[waited] - last[waited], calls.kind[waited]
        weight = np.full(releases.call.size, _RETURN_IF_UNSEEN_NS, np.int64)
        for number in np.unique(kind):
            weight[calls.kind[releases.call] == number] = max(0, int(np.median(tail[kind == number])))
        return Edges.of(EdgeKind.RELEASE, self.end_node(releases.block), self.points.end_of[releases.call], weight)

    def _released_ns(self) -> Int64Array:
        """When what each call waited for was over; long ago where it waited for nothing known."""
        released = np.full(len(self.calls), np.iinfo(np.int64).min, np.int64)
        np.maximum.at(released, self.releases.call, self.blocks.end_ns[self.releases.block])
        return released

    def _queue(self) -> Edges:
        """A launch that blocks on a full queue goes on when a slot frees: at the last completion before it returns."""
        full, freed, _ = self._full_queue()
        return Edges.of(EdgeKind.QUEUE, self.end_node(freed), self.points.end_of[full], 0)

    def _full_queue(self) -> tuple[IntArray, IntArray, int]:
        """Launches blocked on a full queue, the block whose end freed each, and what a launch usually takes."""
        block = np.flatnonzero(self.blocks.call >= 0)
        call = self.blocks.call[block]
        if not call.size:
            return call, call, 0
        call = call[np.argsort(self.calls.start_ns[call], kind="stable")]
        by_end = np.argsort(self.blocks.end_ns, kind="stable")
        ended = self.blocks.end_ns[by_end]
        outstanding = np.arange(call.size) - np.searchsorted(ended, self.calls.start_ns[call], side="right")
        lengths = self.calls.lengths_ns[call]
        usual = int(np.median(lengths))
        full = call[(outstanding >= _QUEUE_NEARLY_FULL) & (lengths > _BLOCKED_FACTOR * usual)]
        full = full[~self.releases.blocking[full]]
        place = np.searchsorted(ended, self.calls.end_ns[full], side="right") - 1
        return full[place >= 0], by_end[place[place >= 0]], usual


def ranks_of(trace: Trace) -> list[int]:
    """Ranks that made CUDA calls or did device work."""
    found = {int(r) for table in (DEVICE_OPS, API_CALLS) for r in trace.get(table)["rank"].unique().to_list()}
    return sorted(found)


def _only_rank(trace: Trace) -> int:
    ranks = ranks_of(trace)
    if len(ranks) > 1:
        listed = ", ".join(str(r) for r in ranks)
        raise UsageError(f"the trace has ranks {listed}, and a what-if replays one", remedy="choose one with --rank")
    return ranks[0] if ranks else 0


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A rank's program with its network. `graph.replay()` reproduces every observed time of an unchanged graph exactly.

    `kappa` is the factor that calibration put on profiled host time: 1 where none was made (R15); `slowdown` is the
    profiled step over the unprofiled one. `tables` are those of
    the trace the program was read from; where that was an excerpt, `op_rows` leads back to rows of the whole trace.
    """

    tables: Mapping[Table, pl.DataFrame]
    program: Program
    network: Network
    kappa: float = 1.0
    slowdown: float = 1.0
    op_rows: IntArray | None = None

    @classmethod
    def from_trace(cls, trace: Trace, rank: int | None = None) -> Graph:
        """The graph of one rank; `rank` may be left out where the trace has only one."""
        return cls.of(Program.read(trace, rank), trace.tables)

    @classmethod
    def of(cls, program: Program, tables: Mapping[Table, pl.DataFrame], op_rows: IntArray | None = None) -> Graph:
        """The graph of a program that was read before; `tables` are those of its trace, for the names in changes."""
        return cls(tables, program, Network.build(program.observed_ns, program.edges()), op_rows=op_rows)

    def rows_of_ops(self) -> IntArray:
        """The row of `device_ops`, in the whole trace, of each op of the program."""
        row = self.program.ops.row
        return row if self.op_rows is None else self.op_rows[row]

    def replay(self) -> Replay:
        """When every node happens."""
        return self.network.replay()

    def apply(self, change: Change, case: Case | None = None) -> Graph:
        """The graph with one thing changed; this one stays as it is. Changes may be applied one after another."""
        return change.rewrite(self) if case is None else change.rewrite(self, case)

    def edges_of(self, *kinds: EdgeKind) -> IntArray:
        """Numbers of the edges of these kinds."""
        chosen = np.zeros(len(self.network.edges), bool)
        for kind in kinds:
            chosen |= self.network.edges.kind == kind
        return np.flatnonzero(chosen)

    def block_of(self, node: IntArray) -> IntArray:
        """The block whose start or end a node is; negative for host points."""
        return (node - len(self.program.points)) // 2

    def names_of_ops(self) -> pl.Series:
        """The name of each op of the program, in its order; untrusted text."""
        return self.tables[DEVICE_OPS]["name"].gather(self.program.ops.row)

    def with_network(self, network: Network) -> Graph:
        """The same program with other costs or edges."""
        return replace(self, network=network)


class Case(Enum):
    """Which end of its ranges a change is replayed at: what wins least, what is expected, what wins most."""

    CAUTIOUS = 0
    EXPECTED = 1
    HOPEFUL = 2


class Touches(Enum):
    """Whose time a change takes away: that decides which bound holds and which claims a profiler's own cost forbids."""

    HOST = "host"
    DEVICE = "device"
    BOTH = "host and device"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True)
class Range:
    """A figure at each case."""

    cautious: float
    expected: float
    hopeful: float

    @classmethod
    def exact(cls, value: float) -> Range:
        """A figure that is known."""
        return cls(value, value, value)

    def at(self, case: Case) -> float:
        """The figure at a case."""
        return (self.cautious, self.expected, self.hopeful)[case.value]


class Change(Protocol):
    """A change that a graph can replay. `rewrite` leaves the graph it is given as it is."""

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        ...

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        ...

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ...
