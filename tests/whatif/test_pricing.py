"""Bounds and the interval of a price, worked by hand with every coefficient other than zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.whatif.programs import Host, Launch, Step, Wait, simulate

from timesink.knowledge.assumptions import replay
from timesink.whatif import pricing
from timesink.whatif.change import Case, Range, Target, Touches
from timesink.whatif.changes import RemoveSyncs, ScaleHost, ScaleKernels
from timesink.whatif.graph import Graph
from timesink.whatif.periods import StepWindows
from timesink.whatif.pricing import Bounds, Floor, Price, Pricer

DEVICE_BUSY = "the device is busy for the rest of the step"
HOST_BUSY = "the host needs the rest of the step"


@pytest.mark.parametrize(
    ("touches", "limit", "why", "most"),
    [(Touches.HOST, 3, DEVICE_BUSY, 3), (Touches.DEVICE, 1, HOST_BUSY, 1), (Touches.COMMUNICATION, 1, HOST_BUSY, 1),
     (Touches.BOTH, 5, DEVICE_BUSY, 10)],
)  # fmt: skip
def test_a_step_keeps_its_busy_device_and_its_host(touches: Touches, limit: float, why: str, most: float) -> None:
    """A step of 10: the device is busy for 7, after the change for 5; the host needs 9 and then 4."""
    bounds = Bounds(Floor(7.0, 9.0), Floor(5.0, 4.0))
    assert bounds.limit_ns(touches, 10.0) == (limit, why)
    assert bounds.most_ns(touches, 10.0) == most
    assert bounds.limit_ns(touches, 2.0)[0] == 0.0
    assert bounds.most_ns(touches, 2.0) == (2.0 if touches is Touches.BOTH else 0.0)
    assert Bounds(Floor(5.0, 5.0), Floor(5.0, 5.0)).limit_ns(touches, 10.0) == (5.0, DEVICE_BUSY)


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


def loop(host_us: int, kernel_us: int, steps: int = 8) -> Pricer:
    """Steps in which the host works, launches two kernels and waits for them."""
    step = [Step(), Host(host_us * 1_000), Launch(kernel_us * 1_000), Launch(kernel_us * 1_000), Wait()]
    simulated = simulate([part for _ in range(steps) for part in step] + [Step()])
    return Pricer(Graph.from_trace(simulated.trace()), simulated.windows())


def test_floors_of_a_step_by_hand() -> None:
    """100 us of Python, two launches of 6 us, two kernels of 40 us and a wait: the host needs 112 us and its return."""
    pricer = loop(100, 40)
    assert pricer._floor.busy_ns == pytest.approx(80_000)
    assert pricer.host_ns == pytest.approx(112_000, abs=5_500)
    assert pricer.step_ns == 100_000 + 6_000 + 4_000 + 80_000
    assert pricer.residual_ratio == pytest.approx(0.0, abs=1e-3)
    assert sum(share.ns for share in pricer.path()) == pytest.approx(pricer.step_ns, rel=0.1)


def test_a_price_by_hand() -> None:
    """Half of 100 us of Python, which the device waits for, in all steps but the first, where no call precedes it."""
    pricer = loop(100, 40)
    price = pricer.price(ScaleHost(Target(), 0.5))
    assert price.gain_ns == pytest.approx(7 / 8 * 50_000)
    assert (price.steps, price.bounded, price.refused, price.matched) == (8, None, None, True)
    assert price.new_step_ns == price.step_ns - price.gain_ns
    assert price.low_ns <= price.gain_ns <= price.high_ns <= price.step_ns - pricer._floor.busy_ns
    nothing = pricer.price(ScaleKernels(Target("kernel", "no such"), Range.exact(0.5)))
    assert (nothing.gain_ns, nothing.matched) == (0.0, False)
    assert pricer.price(RemoveSyncs()).gain_ns > 0


def test_what_cannot_be_replayed_has_no_price() -> None:
    pricer = loop(100, 40)
    limit = replay.RESIDUAL_LIMIT.value
    change: Any = ScaleHost(Target(), 0.5)
    assert Pricer(pricer.graph, pricer.anchors.windows, limit).price(change).replayed
    unexplained = Pricer(pricer.graph, pricer.anchors.windows, limit + 0.01).price(change)
    assert (unexplained.gain_ns, unexplained.replayed, unexplained.low_ns) == (0.0, False, 0.0)
    assert f"{100 * limit + 1:.1f} % of the step" in str(unexplained.refused)
    none = Pricer(pricer.graph, StepWindows.alike(np.empty(0, np.int64), np.empty(0, np.int64))).price(change)
    assert (none.steps, none.replayed, none.gain_ns) == (0, False, 0.0)
    assert "no complete step" in str(none.refused)
    for slowdown, refused in ((replay.SLOWDOWN_LIMIT.value + 0.5, True), (replay.SLOWDOWN_LIMIT.value, False)):
        slow = Pricer(replace(pricer.graph, slowdown=slowdown), pricer.anchors.windows)
        assert ("times as long" in str(slow.price(change).refused)) is refused
        assert slow.price(ScaleKernels(Target("kernel", "gemm"), Range.exact(0.5))).refused is None


def test_the_same_change_asked_twice_is_replayed_once() -> None:
    pricer, change = loop(100, 40), ScaleHost(Target(), 0.5)
    assert pricer.price(change) is pricer.price(change)
    assert isinstance(pricer.price(ScaleHost(Target(), 0.9)), Price)
    assert pricer.price(ScaleHost(Target(), 0.9)).gain_ns < pricer.price(change).gain_ns
    assert Case.EXPECTED.value == 1
