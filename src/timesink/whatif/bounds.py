"""What no change can win more than (science: bounds of a steady step).

A step takes at least B, the time in which the busiest device runs anything, and at least H, the host's own time with
every wait for the device removed. A fix of the host alone gains at most T - max(B, H'), a fix of kernels alone at most
T - max(B', H), where primes are after the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np

from timesink.whatif.changes.case import Touches
from timesink.whatif.graph import Graph
from timesink.whatif.network import DISABLED, EdgeKind, Replay
from timesink.whatif.periods import Anchors


@dataclass(frozen=True, slots=True)
class Floor:
    """Per step, in ns: B, the time the busiest device runs anything, and H, the host's time without any wait."""

    busy_ns: float
    host_ns: float

    @classmethod
    def of(cls, graph: Graph, anchors: Anchors, replay: Replay) -> Floor:
        """Measure both in a graph and its replay."""
        if not len(anchors.windows):
            return cls(0.0, 0.0)
        return cls(anchors.busy_ns(replay), host_only_ns(graph, anchors))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The floors of a step before and after a change."""

    before: Floor
    after: Floor

    def limit_ns(self, touches: Touches, step_ns: float) -> tuple[float, str]:
        """The most the expected case can win, and what holds it there."""
        busy = self.before.busy_ns if touches is Touches.HOST else self.after.busy_ns
        host = self.before.host_ns if touches is Touches.DEVICE else self.after.host_ns
        why = "the device is busy for the rest of the step" if busy >= host else "the host needs the rest of the step"
        return max(step_ns - max(busy, host), 0.0), why

    def most_ns(self, touches: Touches, step_ns: float) -> float:
        """The most any case can win: a host fix leaves the device its work, a device fix leaves the host its own."""
        match touches:
            case Touches.HOST:
                return max(step_ns - self.before.busy_ns, 0.0)
            case Touches.DEVICE | Touches.COMMUNICATION:
                return max(step_ns - self.before.host_ns, 0.0)
            case Touches.BOTH:
                return max(step_ns, 0.0)
            case _:
                assert_never(touches)


def host_only_ns(graph: Graph, anchors: Anchors) -> float:
    """The host's time per step when nothing ever waits for the device."""
    edges = graph.network.edges
    weight, unexplained = edges.weight_ns.copy(), edges.unexplained_ns.copy()
    weight[graph.edges_of(EdgeKind.RELEASE, EdgeKind.QUEUE)] = DISABLED
    returns = np.zeros(graph.network.observed_ns.size, bool)
    returns[graph.program.points.end_of[graph.program.releases.blocking]] = True
    unexplained[returns[edges.dst]] = 0
    found = anchors.host_ns(graph.with_network(graph.network.rewritten(weight, unexplained)).replay())
    return float(np.mean(found[1] - found[0])) if found is not None else 0.0
