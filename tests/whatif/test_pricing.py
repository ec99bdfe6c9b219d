"""Bounds and the interval of a price, worked by hand with every coefficient other than zero."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from tests.tables import trace_of
from tests.whatif.programs import Host, Launch, Step, Wait, simulate

from timesink.knowledge.assumptions import idle, replay
from timesink.knowledge.op_class import COPY
from timesink.records import replace
from timesink.whatif import Case, Range, Target, Touches, edit, pricing
from timesink.whatif.changes.host import RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import ScaleKernels
from timesink.whatif.edit import Edit, Together
from timesink.whatif.graph import Graph
from timesink.whatif.network import EdgeKind
from timesink.whatif.periods import StepWindows
from timesink.whatif.pricing import Bounds, Floor, Price, Pricer

DEVICE_BUSY = "the GPU is busy for the rest of the step"
HOST_BUSY = "the CPU needs the rest of the step"


@pytest.mark.parametrize(
    ("touches", "limit", "why", "most"),
    [(Touches.HOST, 3, DEVICE_BUSY, 3), (Touches.DEVICE, 1, HOST_BUSY, 1), (Touches.COMMUNICATION, 1, HOST_BUSY, 1),
     (Touches.BOTH, 5, DEVICE_BUSY, 10)],
)  # fmt: skip
def test_a_step_keeps_its_busy_device_and_its_host(
    touches: Touches, limit: float, why: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of 10: the GPU is busy for 7, after it for 4 and 1 of work left to it; the CPU needs 9, then 4."""
    pricer, change = loop(100, 40), Fake({Case.EXPECTED: 0.5})
    vars(pricer)["_floor"], change.touches = Floor(7.0, 9.0), touches
    vars(pricer)["_carried_ns"] = 1.0
    monkeypatch.setattr(pricer.anchors, "busy_ns", lambda *_: 4.0)
    monkeypatch.setattr(pricing, "_host_only_ns", lambda *_: 4.0)
    expected = pricer._expected(cast(Any, change))
    assert expected is not None
    bounds = expected[1]
    assert bounds.limit_ns(10.0) == (limit, why)
    assert bounds.most_ns(touches, 10.0) == most
    assert bounds.limit_ns(2.0)[0] == 0.0
    assert bounds.most_ns(touches, 2.0) == (2.0 if touches is Touches.BOTH else 0.0)
    assert Bounds(Floor(5.0, 5.0), Floor(5.0, 5.0)).limit_ns(10.0) == (5.0, DEVICE_BUSY)


def test_where_no_thread_launches_the_host_needs_no_time() -> None:
    anchors = Mock()
    anchors.host_ns.return_value = None
    assert pricing._host_only_ns(loop(100, 40).graph, anchors) == 0.0


def test_the_interval_of_a_price_is_that_of_its_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gains of 10, 20, 40 and 80 drawn 4, 2, 2 and 2 times of 10: with no other error p10 is 10 and p90 is 80."""
    gains = [np.full(6, value) for value in (10.0, 20.0, 40.0, 80.0)]
    for error in ("MODEL_ERROR", "STEP_ERROR"):
        monkeypatch.setattr(replay, error, replace(getattr(replay, error), value=0.0, low=0.0, high=0.0))
    assert pricing._interval(gains, 100.0, np.ones(6)) == (10.0, 80.0)
    assert pricing._interval(gains[:1] * 4, 100.0, np.ones(6)) == (10.0, 10.0)
    steps = [np.array([0.0, 60.0])] * 4
    low, high = pricing._interval(steps, 100.0, np.ones(2))
    assert (low, high) == (0.0, 60.0)
    assert pricing._interval(steps, 100.0, np.array([0.0, 2.0])) == (60.0, 60.0)  # a step that counts for nothing


@pytest.mark.parametrize(("error", "width"), [("MODEL_ERROR", 50.0), ("STEP_ERROR", 1_000.0)])
def test_the_errors_of_replays_widen_the_interval(monkeypatch: pytest.MonkeyPatch, error: str, width: float) -> None:
    """A fifth of normal errors of 0.1 lies beyond 1.2816 of them on each side: of a gain of 50, of a step of 1,000."""
    for name in ("MODEL_ERROR", "STEP_ERROR"):
        value = 0.1 if name == error else 0.0
        monkeypatch.setattr(replay, name, replace(getattr(replay, name), value=value, low=0.0, high=1.0))
    low, high = pricing._interval([np.full(3, 50.0)] * 4, 1_000.0, np.ones(3))
    assert (low, high) == pytest.approx((50 - 0.12816 * width, 50 + 0.12816 * width), abs=0.02 * width)


def loop(host_us: int, kernel_us: int, steps: int = 8, start_ns: int = 1_000_000) -> Pricer:
    """Steps in which the host works, launches two kernels and waits for them."""
    step = [Step(), Host(host_us * 1_000), Launch(kernel_us * 1_000), Launch(kernel_us * 1_000), Wait()]
    simulated = simulate([part for _ in range(steps) for part in step] + [Step()], start_ns)
    return Pricer(Graph.from_trace(simulated.trace()), simulated.windows())


def test_floors_of_a_step_by_hand() -> None:
    """100 us of Python, two launches of 6 us, two kernels of 40 us and a wait: the CPU needs 112 us and its return."""
    pricer = loop(100, 40)
    assert pricer._floor.busy_ns == pytest.approx(80_000)
    assert pricer.host_ns == pytest.approx(112_000, abs=5_500)
    assert pricer.step_ns == 100_000 + 6_000 + 4_000 + 80_000
    assert pricer.residual_ratio == pytest.approx(0.0, abs=1e-3)
    assert sum(share.ns for share in pricer.path()) == pytest.approx(pricer.step_ns, rel=0.1)


@pytest.mark.parametrize("of_step", [1, 2])
@pytest.mark.parametrize(
    ("long_us", "short_us"), [(100, 40), (100, 10), (300, 40), (500, 100), (200, 150), (2_000, 20)]
)
def test_work_that_a_longer_step_left_is_work_of_the_step_in_which_it_runs(
    long_us: int, short_us: int, of_step: int
) -> None:
    """The CPU waits for the kernel of the step before. Without the wait the GPU works all the time as it did."""
    step = [Step(), Host(5_000), Wait()]
    lengths = [long_us if (at + of_step) % 2 else short_us for at in range(6)]
    made = simulate([part for us in lengths for part in (*step, Launch(us * 1_000))] + [Step()])
    marks = np.array(made.marks_ns)
    pricer = Pricer(Graph.from_trace(made.trace()), StepWindows.alike(marks[2:3], marks[3:4]))
    idle_ns = pricer.step_ns - 1_000 * lengths[1]
    assert pricer.price(RemoveSyncs()).gain_ns <= max(idle_ns, 20_000)
    assert pricer.busy_ns >= 1_000 * min(lengths)
    assert pricer.busy_after_ns(RemoveSyncs()) == pytest.approx(pricer.busy_ns, abs=1)


def test_what_a_change_leaves_of_the_step_beside_its_device_by_hand() -> None:
    """Two kernels of 40 us in a step of 190 us: as they are, a quarter of them, and beside half of the host."""
    pricer = loop(100, 40)
    assert pricer.room_ns(ScaleKernels(Target("kernel", "no such"), Range.exact(0.5))) == pytest.approx(110_000)
    assert pricer.room_ns(ScaleKernels(Target("kernel"), Range.exact(0.25))) == pytest.approx(170_000)
    assert pricer.room_ns(ScaleHost(Target(), 0.5)) == pytest.approx(110_000)


def test_a_price_by_hand() -> None:
    """Half of 100 us of Python, which the device waits for, in all steps but the first, where no call precedes it."""
    pricer = loop(100, 40)
    price = pricer.price(ScaleHost(Target(), 0.5))
    assert price.gain_ns == pytest.approx(7 / 8 * 50_000)
    assert (len(pricer.anchors.windows), price.bounded, price.refused, price.matched) == (8, None, None, True)
    assert price.new_step_ns == price.step_ns - price.gain_ns
    assert price.low_ns <= price.gain_ns <= price.high_ns <= price.step_ns - pricer._floor.busy_ns
    nothing = pricer.price(ScaleKernels(Target("kernel", "no such"), Range.exact(0.5)))
    assert (nothing.gain_ns, nothing.matched) == (0.0, False)
    assert pricer.price(RemoveSyncs()).gain_ns > 0


def test_an_uncertain_change_has_an_interval_around_its_gain() -> None:
    kernels = Target("kernel", "gemm")
    sure, unsure = (
        loop(100, 40).price(ScaleKernels(kernels, factor)) for factor in (Range.exact(0.5), Range(0.9, 0.5, 0.1))
    )
    assert sure.gain_ns == unsure.gain_ns
    assert 0 < unsure.low_ns < sure.low_ns < sure.gain_ns < sure.high_ns < unsure.high_ns < sure.step_ns


def test_what_a_change_draws_is_worked_out_once_a_case_whatever_is_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, draw, drawn = ScaleKernels(Target("kernel", "gemm"), Range.exact(0.5)), ScaleHost._strokes, []

    def count(self: ScaleHost, edit: Edit, graph: Graph, case: Case) -> None:
        drawn.append(case)
        draw(self, edit, graph, case)

    monkeypatch.setattr(ScaleHost, "_strokes", count)
    pricer, host, syncs = loop(100, 40), ScaleHost(Target(), 0.5), RemoveSyncs()
    two = pricer.price(Together((host, kernels)))
    assert sorted(case.value for case in drawn) == [0, 1, 2]
    three = pricer.price(Together((host, kernels, syncs)))
    assert len(drawn) == 3
    assert str(three) == str(loop(100, 40).price(Together((host, kernels, syncs))))
    assert len(drawn) == 6
    assert str(pricer.price(Together((syncs, host)))) == str(loop(100, 40).price(Together((syncs, host))))
    assert three.gain_ns > two.gain_ns > pricer.price(host).gain_ns > 0


def test_what_was_drawn_is_forgotten_where_it_gets_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = first, second = ScaleHost(Target(), 0.5), RemoveSyncs()
    expected, pricer = [str(loop(100, 40).price(change)) for change in changes], loop(100, 40)
    monkeypatch.setattr(edit, "_KEPT_BYTES", 0)
    assert [str(pricer.price(change)) for change in changes] == expected
    kept = pricer.graph.network.once("drawn", edit.Drawn)
    assert [kept.strokes_of(change, case) for change in (first, second) for case in Case][:5] == [None] * 5
    assert kept.strokes_of(second, Case.HOPEFUL)


def test_what_cannot_be_replayed_has_no_price() -> None:
    pricer = loop(100, 40)
    limit = replay.RESIDUAL_LIMIT.value
    change: Any = ScaleHost(Target(), 0.5)
    assert Pricer(pricer.graph, pricer.anchors.windows, limit).price(change).replayed
    unexplained = Pricer(pricer.graph, pricer.anchors.windows, limit + 0.01).price(change)
    assert (unexplained.gain_ns, unexplained.replayed, unexplained.low_ns) == (0.0, False, 0.0)
    assert f"{100 * limit + 1:.1f} % of the step" in str(unexplained.refused)
    unknown = Pricer(pricer.graph, pricer.anchors.windows, limit + 0.01)
    assert (unknown.refused(change), unknown.gain_ns(change)) == (unexplained.refused, 0.0)
    assert pricer.gain_ns(ScaleKernels(Target("kernel", "no such"), Range.exact(0.5))) == 0.0
    assert pricer.refused(change) is None
    none = Pricer(pricer.graph, StepWindows.alike(np.empty(0, np.int64), np.empty(0, np.int64))).price(change)
    assert (none.replayed, none.gain_ns) == (False, 0.0)
    assert "no complete step" in str(none.refused)
    for slowdown, refused in ((replay.SLOWDOWN_LIMIT.value + 0.5, True), (replay.SLOWDOWN_LIMIT.value, False)):
        slow = Pricer(replace(pricer.graph, slowdown=slowdown), pricer.anchors.windows)
        assert ("times as long" in str(slow.price(change).refused)) is refused
        assert slow.refused(change) == slow.price(change).refused
        assert slow.price(ScaleKernels(Target("kernel", "gemm"), Range.exact(0.5))).refused is None


def test_the_same_change_asked_twice_is_replayed_once() -> None:
    pricer, change = loop(100, 40), ScaleHost(Target(), 0.5)
    assert pricer.price(change) is pricer.price(change)
    assert isinstance(pricer.price(ScaleHost(Target(), 0.9)), Price)
    assert pricer.price(ScaleHost(Target(), 0.9)).gain_ns < pricer.price(change).gain_ns
    assert Case.EXPECTED.value == 1


def test_the_gain_alone_is_that_of_the_price_and_of_one_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each change its own gain, held to its limit; whichever is asked for first, the other takes its replay."""
    pricer = loop(100, 40)
    changes: Any = [ScaleHost(Target(), 0.5), ScaleHost(Target(), 0.9), RemoveSyncs()]
    replayed: list[Any] = []
    once = Pricer._replayed_once
    monkeypatch.setattr(Pricer, "_replayed_once", lambda self, change: replayed.append(change) or once(self, change))
    for change in changes * 2:
        assert pricer.gain_ns(change) == pricer.price(change).gain_ns == pricer.gain_ns(change)
    assert len({pricer.gain_ns(change) for change in changes}) > 1
    assert replayed == changes
    other = loop(100, 40)
    assert [other.price(change).gain_ns for change in changes] == [pricer.gain_ns(change) for change in changes]


def test_a_gain_is_lowered_to_its_limit_and_no_case_passes_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    change: Any = ScaleHost(Target(), 0.5)
    gain = loop(100, 40).price(change).gain_ns
    monkeypatch.setattr(pricing, "_interval", lambda gains, step_ns, weight: (-5.0, 1e9))
    monkeypatch.setattr(Bounds, "most_ns", lambda self, touches, step_ns: 90_000.0)
    for limit, bounded in ((gain - 1_000.0, "why"), (gain, None), (gain + 1.0, None)):
        monkeypatch.setattr(Bounds, "limit_ns", lambda self, step_ns, limit=limit: (limit, "why"))
        price = loop(100, 40).price(change)
        assert (price.low_ns, price.gain_ns, price.high_ns, price.bounded) == (
            -5.0,
            min(gain, limit),
            90_000.0,
            bounded,
        )


def test_replays_are_drawn_as_often_as_their_weights_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gains of 10, 20, 40 and 80 drawn 4, 2, 2 and 2 times of 10: half are 10 or 20, seven tenths at most 40."""
    for error in ("MODEL_ERROR", "STEP_ERROR"):
        monkeypatch.setattr(replay, error, replace(getattr(replay, error), value=0.0, low=0.0, high=0.0))
    monkeypatch.setattr(pricing, "_LOW", 0.5)
    monkeypatch.setattr(pricing, "_HIGH", 0.7)
    gains = [np.full(6, value) for value in (10.0, 20.0, 40.0, 80.0)]
    assert pricing._interval(gains, 100.0, np.ones(6)) == (20.0, 40.0)
    uneven = [np.array([0.0, 60.0])] * 4
    monkeypatch.setattr(pricing, "_LOW", 0.999)
    low, _ = pricing._interval([np.repeat(one, 200) for one in uneven], 100.0, np.repeat([1.0, 3.0], 200))
    assert low == pytest.approx(45.0, abs=4.5)  # three of four steps count as slow ones
    usual = [(case.name, at_usual) for case, at_usual, _ in pricing._DRAWS]
    assert usual == [("EXPECTED", False), ("EXPECTED", True), ("CAUTIOUS", True), ("HOPEFUL", False)]


def test_nothing_to_replay_costs_nothing() -> None:
    pricer = loop(100, 40)
    none = Pricer(pricer.graph, StepWindows.alike(np.empty(0, np.int64), np.empty(0, np.int64)))
    assert (none._floor, none.residual_ratio, none.step_ns) == (Floor(0.0, 0.0), 0.0, 0.0)
    price = none.price(ScaleHost(Target(), 0.5))
    assert (price.low_ns, price.gain_ns, price.high_ns) == (0.0, 0.0, 0.0)
    unmatched = pricer.price(ScaleKernels(Target("kernel", "no such"), Range.exact(0.5)))
    assert (unmatched.low_ns, unmatched.gain_ns, unmatched.high_ns) == (0.0, 0.0, 0.0)
    assert Bounds(Floor(0, 0), Floor(0, 0)).most_ns(Touches.BOTH, 0.5) == 0.5


@pytest.mark.parametrize("start_ns", [1_000_000, 10**12])
def test_a_hiccup_in_one_step_condemns_no_trace_and_one_in_most_does(
    start_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of each of seven steps of eight is waiting that nothing explains; the median step says so, one alone not."""
    pricer = loop(100, 40, start_ns=start_ns)
    edges = pricer.graph.network.edges
    base, anchors = pricer._base, pricer.anchors
    path = base.path_to(anchors.last_node(base), pricer.graph.network, anchors.first_ns(base))
    starts, _ = anchors.boundaries(base)
    step = np.searchsorted(starts, base.time_ns[edges.dst[path]] - anchors.origin_ns, side="right") - 1
    for steps, ratio in (([3], 0.0), (range(8), 0.5)):
        unexplained = edges.unexplained_ns.copy()
        for number in steps:
            inside = path[step == number]
            assert inside.size
            unexplained[inside[0]] = int(pricer.step_ns / 2)
        network = replace(pricer.graph.network, edges=replace(edges, unexplained_ns=unexplained))
        fresh = loop(100, 40, start_ns=start_ns)
        fresh.graph = replace(pricer.graph, network=network)
        assert fresh._residual_ratio() == pytest.approx(ratio, abs=0.01)
        monkeypatch.setattr(
            pricing, "_handed_over_ns", lambda graph, path: graph.network.edges.unexplained_ns[path] // 2
        )
        assert fresh._residual_ratio() == pytest.approx(ratio / 2, abs=0.01)  # what copies take to follow is known
        monkeypatch.undo()
    network = replace(network, edges=replace(edges, unexplained_ns=6 * unexplained))
    fresh.graph = replace(pricer.graph, network=network)
    assert fresh._residual_ratio() == 1.0  # of the step, no more


def test_a_ratio_that_is_given_judges_the_trace() -> None:
    pricer = loop(100, 40)
    assert Pricer(pricer.graph, pricer.anchors.windows, 0.37).residual_ratio == 0.37


def test_the_step_if_the_host_took_no_time_by_hand() -> None:
    """A launch takes 4 us to begin, kernels 40 and 40 with 1 between, the wait returns 5 later; the first step keeps
    its 100 us of Python, which no call precedes."""
    assert loop(100, 40).device_ns == pytest.approx((7 * 90_000 + 190_000) / 8)


def test_what_a_copy_and_a_kernel_take_to_follow_each_other_is_no_riddle() -> None:
    """On a stream, beside a copy, up to a limit; edge by edge, every edge waiting for longer than the one before."""
    trace = trace_of("""
| device_ops | kind   | name | copy_kind | stream | correlation | start_us | end_us |
| before     | kernel | z    |           |      7 |           7 |        1 |      2 |
| beside     | copy   | c    | h2d       |     30 |           8 |        2 |      4 |
| first      | kernel | a    |           |      7 |           1 |       10 |     20 |
| there      | copy   | c    | h2d       |      7 |           2 |       22 |     30 |
| second     | kernel | b    |           |      7 |           3 |       32 |     40 |
| third      | kernel | b    |           |      7 |           4 |       42 |     50 |
| elsewhere  | kernel | d    |           |     20 |           5 |       11 |     60 |
| back       | copy   | c    | d2h       |     20 |           6 |       64 |     70 |

| api_calls | name             | correlation | start_us | end_us |
| 1         | cudaLaunchKernel |           1 |        0 |      1 |
| 2         | cudaMemcpyAsync  |           2 |        1 |      2 |
| 3         | cudaLaunchKernel |           3 |        2 |      3 |
| 4         | cudaLaunchKernel |           4 |        3 |      4 |
| 5         | cudaLaunchKernel |           5 |        4 |      5 |
| 6         | cudaMemcpyAsync  |           6 |        5 |      6 |
| 7         | cudaLaunchKernel |           7 |       -4 |     -3 |
| 8         | cudaMemcpyAsync  |           8 |       -2 |     -1 |
""")
    graph = Graph.from_trace(trace)
    edges = graph.network.edges
    unexplained = 300 * (1 + np.arange(len(edges.dst)))
    graph = graph.with_network(replace(graph.network, edges=replace(edges, unexplained_ns=unexplained)))
    path = np.arange(len(edges.dst))[::-1]
    program = graph.program
    copies = [int(op) for op in np.flatnonzero(program.ops.op_class == COPY)]
    blocks = {at for at, op in enumerate(program.blocks.op) if int(op) in copies}
    expected = []
    for edge in path:
        ends = {int(graph.block_of(edges.src[[edge]])[0]), int(graph.block_of(edges.dst[[edge]])[0])}
        beside = edges.kind[edge] == EdgeKind.STREAM and ends & blocks
        expected.append(min(int(unexplained[edge]), idle.GAP_MOST_US.ns) if beside else 0)
    assert sum(value > 0 for value in expected) == 3
    assert 0 < min(value for value in expected if value) < idle.GAP_MOST_US.ns
    assert pricing._handed_over_ns(graph, path).tolist() == expected
    assert pricing._handed_over_ns(loop(100, 40).graph, path[:3]).tolist() == [0, 0, 0]


class Fake:
    """A change that the test writes: what it does to the graph by the case and by whether costs are the usual ones."""

    touches = Touches.BOTH

    def __init__(self, factors: dict[Case, float]) -> None:
        self.factors = factors

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self,)

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        return ScaleHost(Target(), self.factors[case]).rewrite(graph, case)


def test_what_a_change_wins_and_where_it_is_held_are_of_its_expected_case() -> None:
    """A case in which nothing changes is no change that was not found; nor is the hopeful one what bounds the value."""
    pricer = loop(100, 40)
    half: Any = Fake({Case.CAUTIOUS: 1.0, Case.EXPECTED: 0.5, Case.HOPEFUL: 0.1})
    price, expected = pricer.price(half), pricer._expected(half)
    host_ns = pricing._host_only_ns(pricer._changed(half), pricer.anchors)
    assert expected is not None and expected[1] == Bounds(pricer._floor, Floor(pricer.busy_ns, host_ns))
    assert price.matched
    assert price.gain_ns == pytest.approx(7 / 8 * 50_000)
    assert price.low_ns < price.gain_ns < price.high_ns
    nothing: Any = Fake({Case.CAUTIOUS: 0.5, Case.EXPECTED: 1.0, Case.HOPEFUL: 0.1})
    assert not pricer.price(nothing).matched


def test_each_case_is_held_against_the_steps_at_its_own_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps at usual costs are made 7 us longer: what changes nothing wins these in the two cases at such costs."""
    pricer = loop(100, 40)
    graph = replace(pricer.graph, slowdown=pricer.graph.slowdown)
    pricer.__dict__["_usual"] = graph, pricer.periods_ns + 7_000
    seen: list[Any] = []
    change: Any = SimpleNamespace(
        parts=(), touches=Touches.BOTH, rewrite=lambda graph, case: seen.append(graph) or graph
    )
    monkeypatch.setattr(Pricer, "_expected", lambda *_: (pricer.periods_ns * 0, Bounds(pricer._floor, pricer._floor)))
    monkeypatch.setattr(pricing, "_interval", lambda gains, *_: ([gain.max() for gain in gains], 0.0))
    monkeypatch.setattr(pricing, "min", lambda *values: values[0], raising=False)
    assert pricer._replayed(change).low_ns == [0.0, 7_000.0, 7_000.0, 0.0]
    assert seen == [graph, graph, pricer.graph]
    assert pricer._changed(change) is pricer.graph
