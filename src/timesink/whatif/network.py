"""Nodes, edges and their max-plus replay. It knows no CUDA: a node happens when its last predecessor allows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from timesink import _native
from timesink.model.arrays import Int8Array, Int64Array

DISABLED = _native.DISABLED


class EdgeKind(IntEnum):
    """What an edge stands for. Its weight is that thing's intrinsic cost; waiting re-emerges from the maximum."""

    HOST = 0
    FORK = 1
    JOIN = 2
    LAUNCH = 3
    RUN = 4
    STREAM = 5
    EVENT = 6
    RELEASE = 7
    QUEUE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Edges of one kind or many: dst happens no earlier than `weight_ns + unexplained_ns` after src.

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
        """Edges of one kind; one weight may stand for all."""
        weight = np.broadcast_to(np.asarray(weight_ns, np.int64), src.shape)
        return cls(src, dst, weight, np.full(src.size, kind, np.int8), np.zeros(src.size, np.int64))

    @classmethod
    def joined(cls, parts: list[Edges]) -> Edges:
        """All parts, one after another."""
        return cls(
            np.concatenate([p.src for p in parts]).astype(np.int64),
            np.concatenate([p.dst for p in parts]).astype(np.int64),
            np.concatenate([p.weight_ns for p in parts]).astype(np.int64),
            np.concatenate([p.kind for p in parts]),
            np.concatenate([p.unexplained_ns for p in parts]),
        )

    def taken(self, rows: Int64Array) -> Edges:
        """The chosen edges, in that order."""
        return Edges(self.src[rows], self.dst[rows], self.weight_ns[rows], self.kind[rows], self.unexplained_ns[rows])

    @property
    def demands_ns(self) -> Int64Array:
        """What each edge demands; `DISABLED` where it is disabled."""
        return np.where(self.weight_ns == DISABLED, DISABLED, self.weight_ns + self.unexplained_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """When each node happens, and the edge that bound it (-1 where none did)."""

    time_ns: Int64Array
    binding: Int64Array

    def path_to(self, node: int, network: Network, until_ns: int) -> Int64Array:
        """The edges that bound a node, back to a time, latest first."""
        return _native.path_back(network.edges.src, self.binding, self.time_ns, node, until_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A graph ready for replay: edges grouped by the node they enter, nodes in topological order.

    With what is unexplained on its edges, the unchanged replay gives the observed times exactly. `dropped` counts edges
    that contradicted others and were left out.
    """

    observed_ns: Int64Array
    edges: Edges
    order: Int64Array
    first: Int64Array
    dropped: int

    @classmethod
    def build(cls, observed_ns: Int64Array, edges: Edges) -> Network:
        """Weights above what was observed are lowered to it, so that nothing unexplained is negative."""
        order, first, in_edges, dropped = _native.schedule(edges.src, edges.dst, observed_ns)
        network = cls(observed_ns, edges.taken(in_edges), order, first, int(dropped.size))
        return network.reweighted(network.edges.weight_ns, observed_ns)

    def replay(self) -> Replay:
        """The time of every node: one pass over the edges."""
        time, binding = _native.replay(self.order, self.first, self.edges.src, self.edges.demands_ns, self.observed_ns)
        return Replay(time, binding)

    def reweighted(self, weight_ns: Int64Array, times_ns: Int64Array) -> Network:
        """Other intrinsic costs for the same times of all nodes: binding edges get what they leave unexplained."""
        edges = self.edges
        weight = np.minimum(weight_ns, times_ns[edges.dst] - times_ns[edges.src])
        arrivals = times_ns[edges.src] + weight
        largest = np.full(times_ns.size, DISABLED, np.int64)
        filled = np.flatnonzero(np.diff(self.first))
        if filled.size:
            largest[self.order[filled]] = np.maximum.reduceat(arrivals, self.first[:-1][filled])
        binding = np.flatnonzero(arrivals == largest[edges.dst])
        into = edges.dst[binding]
        binding = binding[np.append(True, into[1:] != into[:-1])[: into.size]]  # the first, where two tie
        unexplained = np.zeros_like(weight)
        unexplained[binding] = times_ns[edges.dst[binding]] - arrivals[binding]
        return self.rewritten(weight, unexplained)

    def rewritten(self, weight_ns: Int64Array, unexplained_ns: Int64Array) -> Network:
        """The same edges with other costs."""
        return replace(self, edges=replace(self.edges, weight_ns=weight_ns, unexplained_ns=unexplained_ns))

    def costs_as(self, other: Network) -> bool:
        """Whether another network has the same edges and costs."""
        mine, theirs = self.edges, other.edges
        return len(mine) == len(theirs) and np.array_equal(mine.demands_ns, theirs.demands_ns)

    def with_more(self, more: Edges) -> Network:
        """The same nodes with further edges, whose weights are taken as they are."""
        if not len(more):
            return self
        edges = Edges.joined([self.edges, more])
        order, first, in_edges, dropped = _native.schedule(edges.src, edges.dst, self.observed_ns)
        return replace(
            self, edges=edges.taken(in_edges), order=order, first=first, dropped=self.dropped + int(dropped.size)
        )
