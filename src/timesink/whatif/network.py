"""Nodes, edges and their max-plus replay. It knows no CUDA: a node happens when its last predecessor allows it.

The time of a node is the maximum, over the edges that enter it, of the time of the edge's source plus what the edge
demands. Such a system is linear in max-plus algebra (Baccelli, Cohen, Olsder and Quadrat, "Synchronization and
Linearity", 1992), so one pass over the nodes in topological order gives every time. With two edges into the last node:

    a at 0, b at 5;  a -> c demands 3, c -> d demands 4, b -> d demands 1:  c at 3, d at max(3 + 4, 5 + 1) = 7

The edge that gave the maximum is the one that bound the node. What is waited for is nowhere a weight: waiting comes out
of the maximum, and goes where the change of another edge makes it go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from timesink import _native
from timesink.model.arrays import Int8Array, Int64Array
from timesink.records import Record, field, replace

DISABLED = _native.DISABLED
_Kept = TypeVar("_Kept")


class EdgeKind(IntEnum):
    """What an edge stands for. Its weight is what that thing costs by itself, without any waiting.

    `graph.Program` builds each kind and says where its weight comes from.
    """

    HOST = 0
    """A thread does one thing after another: from a point on it to the next."""
    FORK = 1
    """A thread hands work to a worker thread and waits: from its last act to the worker's first."""
    JOIN = 2
    """The worker hands back: from its last act to the first of the thread that waited."""
    LAUNCH = 3
    """Device work starts no earlier than its launch and the way to the device."""
    RUN = 4
    """Device work ends when it has run: from its start to its end."""
    STREAM = 5
    """A stream runs in order: from the end of one piece of work to the start of the next."""
    EVENT = 6
    """A stream waits for an event of another: from the end of the work recorded to the start of the work that waits."""
    RELEASE = 7
    """A blocking call returns once the device work it waits for is over."""
    QUEUE = 8
    """A launch into a full queue returns once earlier work is over and frees a slot."""


class Edges(Record, eq=False):
    """Edges of one kind or many, one row each: dst happens no earlier than `weight_ns + unexplained_ns` after src.

    The weight is intrinsic. What no weight explains of a node's delay belongs to the edge that bound the node when it
    was observed: the jitter of a launch is gone where another edge comes to bind.
    """

    src: Int64Array
    dst: Int64Array
    weight_ns: Int64Array
    kind: Int8Array
    unexplained_ns: Int64Array

    def __len__(self) -> int:
        return int(self.src.size)

    @classmethod
    def of(cls, kind: EdgeKind, src: Int64Array, dst: Int64Array, weight_ns: Int64Array | int) -> Edges:
        """Edges of one kind, fully explained; one weight may serve for all."""
        weight = np.broadcast_to(np.asarray(weight_ns, np.int64), src.shape)
        return cls(src, dst, weight, np.full(src.size, kind, np.int8), np.zeros(src.size, np.int64))

    @classmethod
    def concat(cls, parts: list[Edges]) -> Edges:
        """All parts, one after another."""
        return cls(
            np.concatenate([p.src for p in parts]).astype(np.int64),
            np.concatenate([p.dst for p in parts]).astype(np.int64),
            np.concatenate([p.weight_ns for p in parts]).astype(np.int64),
            np.concatenate([p.kind for p in parts]),
            np.concatenate([p.unexplained_ns for p in parts]),
        )

    def take(self, rows: Int64Array) -> Edges:
        """The chosen edges, in that order."""
        return Edges(self.src[rows], self.dst[rows], self.weight_ns[rows], self.kind[rows], self.unexplained_ns[rows])


class Replay(Record, eq=False):
    """When each node happens, and the number of the edge that bound it (-1 where none did)."""

    time_ns: Int64Array
    binding: Int64Array

    def path_to(self, node: int, network: Network, until_ns: int) -> Int64Array:
        """The edges that bound a node, back to a time, latest first."""
        return _native.path_back(network.edges.src, self.binding, self.time_ns, node, until_ns)


class Network(Record, eq=False):
    """A graph ready for replay.

    `order` lists the nodes topologically; `edges` are grouped by the node they enter, in that order, and those into
    `order[k]` are `first[k]` to `first[k + 1]`. With what is unexplained on its edges, the unchanged replay gives the
    observed times exactly. `dropped` counts edges that contradicted others and were left out. `kept` holds what was
    worked out of nodes, ends and kinds of the edges, for all their costs.
    """

    observed_ns: Int64Array
    edges: Edges
    order: Int64Array
    first: Int64Array
    dropped: int
    kept: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def build(cls, observed_ns: Int64Array, edges: Edges) -> Network:
        """The network of these edges: weights above what was observed are lowered to it."""
        order, first, in_edges, dropped = _native.schedule(edges.src, edges.dst, observed_ns)
        network = cls(observed_ns, edges.take(in_edges), order, first, int(dropped.size))
        return network.explain(network.edges.weight_ns, observed_ns)

    def replay(self) -> Replay:
        """The time of every node: one pass over the edges."""
        src, weight, unexplained = self.edges.src, self.edges.weight_ns, self.edges.unexplained_ns
        return Replay(*_native.replay(self.order, self.first, src, weight, unexplained, self.observed_ns))

    def once(self, what: Hashable, work_out: Callable[[], _Kept]) -> _Kept:
        """What does not depend on costs, worked out once; whoever gets it leaves it as it is."""
        if what not in self.kept:
            self.kept[what] = work_out()
        return self.kept[what]  # type: ignore[no-any-return]

    def explain(self, weight_ns: Int64Array, times_ns: Int64Array) -> Network:
        """The same times of all nodes, explained by other intrinsic costs.

        A weight is at most what passed between its two nodes. Of the edges into a node the one that arrives last binds
        (the first of those that tie), and what is left between its arrival and the node's time stays unexplained on it.
        Arrivals 3 and 6 at a node that happened at 7 leave 1 on the second edge and nothing on the first.
        """
        return self.with_costs(*_native.explain(self.order, self.first, self.edges.src, weight_ns, times_ns))

    def with_costs(self, weight_ns: Int64Array, unexplained_ns: Int64Array) -> Network:
        """The same edges with other costs."""
        return replace(self, edges=replace(self.edges, weight_ns=weight_ns, unexplained_ns=unexplained_ns))

    def same_costs(self, other: Network) -> bool:
        """Whether another network has as many edges, with the same demands."""
        mine, its = self.edges, other.edges
        return _native.same_demands(mine.weight_ns, mine.unexplained_ns, its.weight_ns, its.unexplained_ns)

    def with_edges(self, more: Edges) -> Network:
        """The same nodes with further edges, whose weights are taken as they are."""
        if not len(more):
            return self
        key = more.src.tobytes(), more.dst.tobytes(), more.kind.tobytes()
        network, in_edges = self.once(key, lambda: self._scheduled(Edges.concat([self.edges, more])))
        return network.with_costs(
            np.concatenate((self.edges.weight_ns, more.weight_ns))[in_edges],
            np.concatenate((self.edges.unexplained_ns, more.unexplained_ns))[in_edges],
        )

    def _scheduled(self, edges: Edges) -> tuple[Network, Int64Array]:
        """The network of these edges, and where each of its edges stood."""
        order, first, in_edges, dropped = _native.schedule(edges.src, edges.dst, self.observed_ns)
        dropped_of_all = self.dropped + int(dropped.size)
        return Network(self.observed_ns, edges.take(in_edges), order, first, dropped_of_all), in_edges
