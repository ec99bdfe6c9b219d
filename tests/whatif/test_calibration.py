"""Calibration takes the profiler's own time out of the host and leaves the device alone."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from tests.whatif.programs import Host, Launch, Simulated, Step, simulate

from timesink.knowledge.assumptions import replay
from timesink.model.tables import HOST_OPS
from timesink.whatif import Case, Range, Target, unprofiled
from timesink.whatif.changes.host import RemoveSyncs
from timesink.whatif.changes.kernels import ScaleKernels
from timesink.whatif.graph import Graph
from timesink.whatif.periods import StepWindows
from timesink.whatif.pricing import Pricer
from timesink.whatif.unprofiled import calibrate


def host_bound(steps: int = 12) -> Simulated:
    """Steps of 40 us of Python and ten launches of 6 us, for kernels of 0.5 us: 100 us."""
    step = (Step(), Host(40_000), *(Launch(500) for _ in range(10)))
    return simulate([Launch(500), *(part for _ in range(steps) for part in step), Step()])


def expected(graph: Graph, step_ns: float, windows: StepWindows, same_run: bool = False) -> Graph:
    cases = calibrate(graph, step_ns, windows, same_run=same_run)
    return cases[len(cases) // 2]


@pytest.mark.parametrize("unprofiled_us", [100, 150, 70, 50, 42])
def test_the_step_takes_what_it_takes_without_a_profiler(unprofiled_us: int) -> None:
    simulated = host_bound()
    scaled = expected(Graph.from_trace(simulated.trace()), unprofiled_us * 1_000, simulated.windows())
    step = Pricer(scaled, simulated.windows()).step_ns
    assert step == pytest.approx(min(unprofiled_us, 100) * 1_000, rel=0.01)


@pytest.mark.parametrize(("step_us", "kappa"), [(70, 0.4), (62, 0.24), (45, 0.15)])
def test_what_recording_does_not_explain_a_slower_host_does(
    step_us: int, kappa: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a host's 100 us half is recorded, of which 0.4 +- 0.1 is usually left: with 0.24 of it a step takes 62 us.

    With 0.2 it takes 60, and in 45 all of it takes three quarters: 0.15 of what was recorded.
    """
    monkeypatch.setattr(unprofiled, "_usual_kappa", lambda _: (0.4, 0.1))
    monkeypatch.setattr(unprofiled, "_recorded_shares", lambda graph: np.full(graph.host_edges()[0].size, 0.5))
    simulated = host_bound()
    scaled = expected(Graph.from_trace(simulated.trace()), step_us * 1_000, simulated.windows())
    assert scaled.kappa == pytest.approx(kappa, abs=0.01)
    assert Pricer(scaled, simulated.windows()).step_ns == pytest.approx(step_us * 1_000, rel=0.01)


@pytest.mark.parametrize("usual", [0.5, 0.8])
def test_where_the_device_takes_the_step_the_host_is_what_recording_is_likely_to_leave_of_it(
    usual: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host of 100 us beside kernels of 1 ms: no step says how much of it the profiler took."""
    monkeypatch.setattr(unprofiled, "_estimated_kappa", lambda _: (usual, 0.05))
    step = (Step(), Host(40_000), *(Launch(100_000) for _ in range(10)))
    simulated = simulate([Launch(500), *(part for _ in range(12) for part in step), Step()])
    graph, windows = Graph.from_trace(simulated.trace()), simulated.windows()
    raw = Pricer(graph, windows)
    told = Pricer(expected(graph, raw.step_ns, windows), windows)
    assert told.host_ns / raw.host_ns == pytest.approx(usual, abs=0.01)
    assert told.step_ns == pytest.approx(raw.step_ns, rel=0.005)  # of the first launch


@pytest.mark.parametrize(
    ("python_us", "launches", "slower"), [(40, 10, 1), (200, 10, 1), (40, 10, 2), (150, 5, 3), (5, 20, 2)]
)
def test_of_the_same_run_a_host_behind_the_device_is_what_recording_by_count_leaves_of_it(
    python_us: int, launches: int, slower: int
) -> None:
    """However slow its launches are: it ran on the same cores. Of another run it is quicker."""
    launch = Launch(100_000, call_ns=6_000 * slower)
    step = (Step(), Host(python_us * 1_000), *(launch for _ in range(launches)))
    simulated = simulate([Launch(500), *(part for _ in range(12) for part in step), Step()])
    graph, windows = Graph.from_trace(simulated.trace()), simulated.windows()
    raw = Pricer(graph, windows)
    (counted,) = unprofiled.deflate(graph, [Case.EXPECTED], same_cores=True)
    same, other = (expected(graph, raw.step_ns, windows, same) for same in (True, False))
    assert Pricer(same, windows).host_ns == Pricer(counted, windows).host_ns
    assert Pricer(same, windows).step_ns == pytest.approx(raw.step_ns, rel=0.005)
    assert Pricer(other, windows).host_ns <= 1.02 * Pricer(same, windows).host_ns


def test_of_the_same_run_a_step_that_waits_for_its_host_says_what_it_takes() -> None:
    simulated = host_bound()
    graph, windows = Graph.from_trace(simulated.trace()), simulated.windows()
    assert expected(graph, 70_000, windows, True).kappa == expected(graph, 70_000, windows).kappa


@pytest.mark.parametrize(("usual", "deviation"), [(0.3, 0.05), (0.3, 0.1), (0.5, 0.1), (0.7, 0.1)])
def test_a_host_that_the_device_hides_is_known_as_well_as_hosts_are(
    usual: float, deviation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above: nine tenths to a tenth of what is likely by normal errors; of a host that sets the pace no more than
    what is expected is left, for the step tells it."""
    monkeypatch.setattr(unprofiled, "_usual_kappa", lambda _: (usual, deviation))
    step = (Step(), Host(40_000), *(Launch(100_000) for _ in range(10)))
    simulated = simulate([Launch(500), *(part for _ in range(12) for part in step), Step()])
    graph, windows = Graph.from_trace(simulated.trace()), simulated.windows()
    most, expected, least = (one.kappa for one in calibrate(graph, Pricer(graph, windows).step_ns, windows))
    assert least < expected < most
    assert most == pytest.approx(min(usual + 1.28 * deviation, 1.0), abs=0.04)
    assert least == pytest.approx(usual - 1.28 * deviation, abs=0.04)
    alone = host_bound()
    assert len(calibrate(Graph.from_trace(alone.trace()), 70_000, alone.windows())) == 1


@pytest.mark.parametrize("ratio", [0.5, 0.7, 0.8, 0.9, 0.95, 1.0])
def test_no_host_explains_a_step_that_is_shorter_than_what_the_device_took(
    ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above: told that the step takes less than the kernels alone did, the host is as it is likely to be."""
    monkeypatch.setattr(unprofiled, "_usual_kappa", lambda _: (0.5, 0.05))
    step = (Step(), Host(40_000), *(Launch(100_000) for _ in range(10)))
    simulated = simulate([Launch(500), *(part for _ in range(12) for part in step), Step()])
    graph, windows = Graph.from_trace(simulated.trace()), simulated.windows()
    told_ns = ratio * Pricer(graph, windows).step_ns
    assert expected(graph, told_ns, windows).kappa == pytest.approx(0.5, abs=0.02)


def test_device_times_are_not_inflated_and_stay() -> None:
    simulated = host_bound()
    graph = Graph.from_trace(simulated.trace())
    times = expected(graph, 70_000, simulated.windows()).replay().time_ns
    blocks = np.arange(len(graph.program.blocks))
    assert (times[graph.program.end_node(blocks)] - times[graph.program.start_node(blocks)] == 500).all()


def test_a_trace_that_is_mostly_profiler_prices_no_host_time_but_still_the_device() -> None:
    simulated = host_bound()
    pricer = Pricer(expected(Graph.from_trace(simulated.trace()), 45_000, simulated.windows()), simulated.windows())
    host, device = pricer.price(RemoveSyncs()), pricer.price(ScaleKernels(Target("kernel", ""), Range.exact(0.5)))
    assert host.refused is not None
    assert "the profiler makes the step 2.22 times as long" in host.refused
    assert host.replayed  # the figures stand, for a bound to be held against
    assert host.high_ns > 0
    assert device.refused is None


def test_unexplained_waiting_is_not_priced() -> None:
    # kernels of 100 us wait for each other; every other one starts 30 us later than its queue and its launch explain
    simulated = simulate(
        [part for _ in range(12) for part in (Step(), *(Launch(100_000) for _ in range(4)))] + [Step()]
    )
    for number, op in enumerate(simulated.ops):
        late = 30_000 * ((number + 1) // 2)
        op["start_ns"], op["end_ns"] = int(str(op["start_ns"])) + late, int(str(op["end_ns"])) + late
    simulated.calls[-1]["end_ns"] = int(str(simulated.ops[-1]["end_ns"])) + 5_000
    pricer = Pricer(Graph.from_trace(simulated.trace()), simulated.windows())
    assert pricer.residual_ratio == pytest.approx(60 / 464, rel=0.1)
    price = pricer.price(ScaleKernels(Target("kernel", ""), Range.exact(0.5)))
    assert price.refused is not None
    assert "does not explain" in price.refused
    assert (price.replayed, price.gain_ns) == (False, 0.0)


def test_a_change_that_finds_nothing_says_so() -> None:
    simulated = host_bound()
    pricer = Pricer(Graph.from_trace(simulated.trace()), simulated.windows())
    price = pricer.price(ScaleKernels(Target("kernel", "absent"), Range.exact(0.5)))
    assert (price.matched, price.gain_ns, price.refused) == (False, 0.0, None)


@pytest.mark.parametrize(("slowness", "usual"), [(1.0, 0.4), (2.0, 0.1607)])
def test_on_a_slow_host_recording_takes_more_of_it(
    slowness: float, usual: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2 parts of program 3 are recording's on a fast host; on one twice as slow 3 times two to the power of 1.8."""
    operators = HOST_OPS.empty().clear(1).with_columns(pl.lit("[[1]]").alias("input_shapes"))
    graph = SimpleNamespace(
        program=SimpleNamespace(rank=0), table=lambda table: operators if table is HOST_OPS else table.empty()
    )
    monkeypatch.setattr(unprofiled, "host_slowness", lambda *_: slowness)
    assert unprofiled._usual_kappa(graph) == pytest.approx((usual, usual / 4), abs=1e-3)


def test_a_host_that_is_slow_beside_the_profiler_is_likely_quicker_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as slow in launches: of its time on a fast one what is left is less by two to the power of 0.8, 1.74."""
    graph = Graph.from_trace(host_bound().trace())
    left, usual = unprofiled.deflate(graph, same_cores=True), []
    monkeypatch.setattr(unprofiled, "deflate", lambda _, cases, **_how: [left[case.value] for case in cases])
    for slowness in (1.0, 2.0):
        monkeypatch.setattr(unprofiled, "host_slowness", lambda *_, of=slowness: of)
        usual.append(unprofiled._estimated_kappa(graph))
    assert unprofiled._slower(graph, replay.QUICKER_AGAIN_POWER.value / 2) == pytest.approx(1.3195, rel=1e-3)
    assert usual[0][0] / usual[1][0] == pytest.approx(1.741, rel=1e-3)
    assert [deviation for _, deviation in usual] == [0.15, 0.15]
