"""The price of a change: how much shorter a step becomes, as low / value / high, and what limits it next.

A price is what replays of the change say, held against bounds of a steady step that hold whatever the replays say. A
step of length T takes at least B, the time in which the busiest device runs anything, and at least H, the host's own
time with every wait for the device removed. So a fix of the host alone gains at most T - max(B, H'), and a fix of
kernels alone at most T - max(B', H), where primes are after the change: with T 10 ms, B 7 and a host fix that takes H
from 9 to 4, at most 3 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from timesink.knowledge.assumptions import idle, replay
from timesink.knowledge.op_class import COPY
from timesink.model.arrays import Float64Array, Int64Array, IntArray, median
from timesink.records import Record, replace
from timesink.whatif import Case, Change, Touches
from timesink.whatif.critical_path import PathShare, longest_kind, path_shares
from timesink.whatif.graph import Graph
from timesink.whatif.network import DISABLED, EdgeKind, Replay
from timesink.whatif.periods import Anchors, StepWindows

_RESAMPLES: Final = 400  # the tenth percentile is then known to 1.5 of 100
_SEED: Final = 20_260_401  # any; fixed, so that a price is the same each time
_KEPT: Final = 16  # draws: a rank, or the weights of a trace, has its own
_LOW, _HIGH = 0.10, 0.90  # what is printed as low and high: four fifths lie between
# How often each replay is drawn: (case, whether at usual instead of intrinsic launch costs, weight).
_DRAWS: Final = (
    (Case.EXPECTED, False, 0.4),
    (Case.EXPECTED, True, 0.2),
    (Case.CAUTIOUS, True, 0.2),
    (Case.HOPEFUL, False, 0.2),
)


class Price(Record, eq=False):
    """What a change wins per step, in ns: `low_ns <= gain_ns <= high_ns`, p10 and p90 over steps and unknown figures.

    `step_ns` is the mean step before, and `new_step_ns` after. `replayed` is False where the trace cannot be: the gain
    is 0 then. `refused` says why the gain is not to be shown, if so: it was not replayed, or most of the step is the
    profiler's slow-down, and the gain is what the replay says all the same. `bounded` says which bound lowered the
    gain, if any. `matched` is False where the change found nothing in these steps to change.
    """

    step_ns: float
    gain_ns: float = 0.0
    low_ns: float = 0.0
    high_ns: float = 0.0
    bounded: str | None = None
    refused: str | None = None
    replayed: bool = True
    matched: bool = True

    @property
    def new_step_ns(self) -> float:
        """Mean step after the change."""
        return self.step_ns - self.gain_ns


class Pricer:
    """Prices changes to one rank's graph over its steady steps. What does not depend on the change is done once."""

    def __init__(self, graph: Graph, windows: StepWindows, residual_ratio: float | None = None) -> None:
        """`residual_ratio` is that of the graph before calibration, where it was calibrated: it judges the trace."""
        self.graph = graph
        self.anchors = Anchors(graph, windows)
        self._base = graph.replay()
        self.periods_ns = self.anchors.periods(self._base)
        self.residual_ratio = self._residual_ratio() if residual_ratio is None else residual_ratio
        self._priced: dict[tuple[int, ...], tuple[Sequence[object], Price]] = {}
        self._gained: dict[tuple[int, ...], tuple[Sequence[object], tuple[Float64Array, Bounds] | None]] = {}

    def weighing(self, weight: Float64Array) -> Pricer:
        """The same with steps that count for so much each in a mean."""
        windows = self.anchors.windows
        return Pricer(self.graph, StepWindows(windows.start_ns, windows.end_ns, weight), self.residual_ratio)

    @cached_property
    def _usual(self) -> tuple[Graph, Float64Array]:
        """The graph at usual costs, and its periods."""
        graph = _at_usual_costs(self.graph, self._base)
        return graph, self.anchors.periods(graph.replay())

    @cached_property
    def _floor(self) -> Floor:
        if not len(self.anchors.windows):
            return Floor(0.0, 0.0)
        busy_ns = self.anchors.busy_ns(self._base) + self._carried_ns
        return Floor(busy_ns, _host_only_ns(self.graph, self.anchors))

    @cached_property
    def _carried_ns(self) -> float:
        return self.anchors.carried_ns(self._base)

    @property
    def step_ns(self) -> float:
        """Mean step of the graph as it is."""
        return self.anchors.windows.mean(self.periods_ns)

    @property
    def host_ns(self) -> float:
        """The host's time per step without any wait for the device."""
        return self._floor.host_ns

    def busy_after_ns(self, change: Change, case: Case = Case.EXPECTED) -> float:
        """The time per step in which the busiest device runs anything, once a change is made."""
        changed = self._changed(change, case)
        return self.anchors.busy_ns(changed.replay()) + self._carried_ns

    @cached_property
    def device_ns(self) -> float:
        """The step if the host took no time, but for its waits."""
        edges, (host, _) = self.graph.network.edges, self.graph.host_edges()
        weight = edges.weight_ns.copy()
        weight[host] = np.minimum(weight[host], 0)
        return self.anchors.windows.mean(
            self.anchors.periods(self.graph.network.with_costs(weight, edges.unexplained_ns).replay())
        )

    @property
    def busy_ns(self) -> float:
        """The time per step in which the busiest device runs anything."""
        return self._floor.busy_ns

    def _residual_ratio(self) -> float:
        """Share of the critical path that no weight explains, in the median step: one hiccup condemns no trace."""
        edges, windows = self.graph.network.edges, self.anchors.windows
        if not len(windows) or not self.step_ns:
            return 0.0
        last, first = self.anchors.last_node(self._base), self.anchors.first_ns(self._base)
        path = self._base.path_to(last, self.graph.network, first)
        starts, _ = self.anchors.boundaries(self._base)
        passed = self._base.time_ns[edges.dst[path]] - self.anchors.origin_ns
        step = np.searchsorted(starts, passed, side="right") - 1
        unexplained_ns = edges.unexplained_ns[path] - _handed_over_ns(self.graph, path)
        in_step = np.bincount(np.maximum(step, 0), unexplained_ns, minlength=len(windows))
        return min(median(in_step) / self.step_ns, 1.0)

    def path(self, change: Change | None = None) -> tuple[PathShare, ...]:
        """What the critical path consists of, per step, as it is or once a change is made: what limits the step."""
        if change is None:
            return path_shares(self.graph, self._base, self.anchors)
        changed = self._changed(change)
        return path_shares(changed, changed.replay(), self.anchors)

    def price(self, change: Change) -> Price:
        """Replay the change at every case, resample steps, and hold the result against the bounds."""
        if self.unreplayable is not None:
            return Price(self.step_ns, refused=self.unreplayable, replayed=False)
        key = tuple(map(id, change.parts))
        if key not in self._priced:  # asked for its gain first, then for what to say of it, and by a plan again
            self._priced[key] = change.parts, replace(self._replayed(change), refused=self._slowed(change))
        return self._priced[key][1]

    def _changed(self, change: Change, case: Case = Case.EXPECTED, *, usual: bool = False) -> Graph:
        """The graph after a change, at usual costs if need be."""
        return change.rewrite(self._usual[0] if usual else self.graph, case)

    def gain_ns(self, change: Change) -> float:
        """The gain that `price` gives, alone: of one replay."""
        expected = None if self.unreplayable else self._expected(change)
        if expected is None:
            return 0.0
        return min(self.anchors.windows.mean(expected[0]), expected[1].limit_ns(self.step_ns)[0])

    def room_ns(self, change: Change) -> float:
        """The step less what its device still runs once a change is made."""
        expected = self._expected(change)
        return self.step_ns - (expected[1].after.busy_ns if expected else self.busy_ns)

    def _expected(self, change: Change) -> tuple[Float64Array, Bounds] | None:
        """What each step gains as expected, and the bounds of that; None where the change finds nothing to change."""
        key = tuple(map(id, change.parts))
        if key not in self._gained:
            self._gained[key] = change.parts, self._replayed_once(change)
        return self._gained[key][1]

    def _replayed_once(self, change: Change) -> tuple[Float64Array, Bounds] | None:
        changed = self._changed(change, _DRAWS[0][0])
        if changed.network.same_costs(self.graph.network):
            return None
        replay, before = changed.replay(), self._floor
        of_device = change.touches in (Touches.DEVICE, Touches.COMMUNICATION)
        busy_ns = before.busy_ns
        if change.touches is not Touches.HOST:
            busy_ns = self.anchors.busy_ns(replay, self._base) + self._carried_ns
        host_ns = before.host_ns if of_device else _host_only_ns(changed, self.anchors)
        return self.periods_ns - self.anchors.periods(replay), Bounds(before, Floor(busy_ns, host_ns))

    def _replayed(self, change: Change) -> Price:
        expected = self._expected(change)
        if expected is None:
            return Price(self.step_ns, matched=False)
        gains, bounds = [expected[0]], expected[1]
        for case, usual, _ in _DRAWS[1:]:
            before = self._usual[1] if usual else self.periods_ns
            gains.append(before - self.anchors.periods(self._changed(change, case, usual=usual).replay()))
        windows = self.anchors.windows
        gain, (low, high) = windows.mean(gains[0]), _interval(gains, self.step_ns, windows.weight)
        limit, why = bounds.limit_ns(self.step_ns)
        most = bounds.most_ns(change.touches, self.step_ns)
        bounded = why if gain > limit else None
        return Price(self.step_ns, min(gain, limit), min(low, gain, limit), min(max(high, gain), most), bounded)

    def bound_by(self, change: Change) -> str:
        """What most of the path is once a change is made."""
        changed = self._changed(change)
        return longest_kind(changed, changed.replay(), self.anchors)

    @property
    def unreplayable(self) -> str | None:
        """Why no change has a price, if so."""
        if not len(self.anchors.windows):
            return "the trace has no complete step to replay"
        if self.residual_ratio > replay.RESIDUAL_LIMIT.value:
            return (
                f"{100 * self.residual_ratio:.1f} % of the step is waiting that the trace does not explain "
                f"(limit {100 * replay.RESIDUAL_LIMIT.value:.0f} %)"
            )
        return None

    def refused(self, change: Change) -> str | None:
        """Why the gain of a change is not to be shown, if so."""
        return self.unreplayable or self._slowed(change)

    def _slowed(self, change: Change) -> str | None:
        limit = replay.SLOWDOWN_LIMIT.value
        if self.graph.slowdown > limit and change.touches in (Touches.HOST, Touches.BOTH):
            return (
                f"the profiler makes the step {self.graph.slowdown:.2f} times as long (limit {limit:g}): "
                "capture again without stacks and shapes"
            )
        return None


def _handed_over_ns(graph: Graph, path: IntArray) -> Int64Array:
    """Of what no weight explains on these edges, the time that a copy engine and the multiprocessors take to follow
    each other on a stream: longer than kernels take, and no more of a riddle."""
    edges, program = graph.network.edges, graph.program
    if not len(program.blocks.op):
        return np.zeros(len(path), dtype=np.int64)
    is_copy = program.ops.op_class[program.blocks.op] == COPY
    ends = graph.block_of(edges.src[path]), graph.block_of(edges.dst[path])
    copies = (edges.kind[path] == EdgeKind.STREAM) & np.logical_or(*(is_copy[np.maximum(end, 0)] for end in ends))
    return np.where(copies, np.minimum(edges.unexplained_ns[path], idle.GAP_MOST_US.ns), 0)


def _at_usual_costs(graph: Graph, replay: Replay) -> Graph:
    """The same observation read with usual instead of intrinsic costs for launches and gaps.

    Which of the two a change leaves in place is not known, so replays of both go into the interval of a price.
    """
    network, program = graph.network, graph.program
    weight = network.edges.weight_ns.copy()
    launches = graph.edges_of(EdgeKind.LAUNCH)
    op = program.blocks.op[graph.block_of(network.edges.dst[launches])]
    weight[launches] = program.costs.latency_usual_ns(op)
    streams = graph.edges_of(EdgeKind.STREAM)
    weight[streams] = np.maximum(weight[streams], program.costs.gap_usual_ns)
    return graph.with_network(network.explain(weight, replay.time_ns))


def _interval(gains: list[Float64Array], step_ns: float, weight: Float64Array) -> tuple[float, float]:
    """p10 and p90 of the mean gain over resampled steps and drawn replays, with errors as large as replays show.

    A bootstrap over steps (Efron, 1979) crossed with draws of the unknown figures: each of 400 times a replay is drawn,
    as many steps as there are, with replacement, and their mean gain is multiplied by one normal error and shifted by
    another. `gains` has one array per replay, with the gain of each step. The seed is fixed: one answer per trace.
    """
    which, steps, model, step = _drawn(gains[0].size, None if (weight == 1.0).all() else tuple(weight.tolist()))
    means = np.stack(gains)[which[:, None], steps].mean(axis=1)
    means *= 1.0 + replay.MODEL_ERROR.value * model
    means += replay.STEP_ERROR.value * step_ns * step
    low, high = np.quantile(means, [_LOW, _HIGH])
    return float(low), float(high)


@lru_cache(_KEPT)
def _drawn(steps: int, weight: tuple[float, ...] | None) -> tuple[IntArray, IntArray, Float64Array, Float64Array]:
    """Of each resample: which replay, which steps, and two errors in deviations."""
    rng = np.random.default_rng(_SEED)
    weights = [share for _, _, share in _DRAWS]
    which, size = rng.choice(len(_DRAWS), size=_RESAMPLES, p=weights), (_RESAMPLES, steps)
    shares = None if weight is None else np.array(weight) / np.array(weight).sum()
    chosen = rng.integers(0, steps, size=size) if shares is None else rng.choice(steps, p=shares, size=size)
    return which, chosen, rng.standard_normal(_RESAMPLES), rng.standard_normal(_RESAMPLES)


class Floor(Record):
    """Per step, in ns: B, the time the busiest device runs anything, and H, the host's time without any wait."""

    busy_ns: float
    host_ns: float


class Bounds(Record):
    """The floors of a step before and after a change. A side that it does not touch keeps its floor."""

    before: Floor
    after: Floor

    def limit_ns(self, step_ns: float) -> tuple[float, str]:
        """The most the expected case can win, and what holds it there."""
        busy, host = self.after.busy_ns, self.after.host_ns
        why = "the GPU is busy for the rest of the step" if busy >= host else "the CPU needs the rest of the step"
        return max(step_ns - max(busy, host), 0.0), why

    def most_ns(self, touches: Touches, step_ns: float) -> float:
        """The most any case can win: a host fix leaves the device its work, a device fix leaves the host its own."""
        left_ns = {Touches.HOST: self.before.busy_ns, Touches.BOTH: 0.0}.get(touches, self.before.host_ns)
        return max(step_ns - left_ns, 0.0)


def _host_only_ns(graph: Graph, anchors: Anchors) -> float:
    """The host's time per step when nothing ever waits for the device."""
    edges = graph.network.edges
    weight, unexplained = edges.weight_ns.copy(), edges.unexplained_ns.copy()
    weight[graph.edges_of(EdgeKind.RELEASE, EdgeKind.QUEUE)] = DISABLED
    unexplained[graph.network.once("into returns", lambda: _into_returns(graph))] = 0
    passed = anchors.host_ns(graph.network.with_costs(weight, unexplained).replay())
    return anchors.windows.mean(passed[1] - passed[0]) if passed is not None else 0.0


def _into_returns(graph: Graph) -> IntArray:
    """The edges into the returns of calls that wait."""
    returns = graph.marks(graph.program.points.end_of[graph.program.releases.blocking])
    return np.flatnonzero(returns[graph.network.edges.dst])
