"""Prices on real programs whose gain was measured, and on excerpts of long traces."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.measures.idle.test_blamed_time import STEPPED
from tests.strategies import frame
from tests.tables import trace_of
from tests.whatif.programs import Host, Launch, Step, Wait, simulate

from timesink.measures.idle.blame import idle_blame
from timesink.measures.timeline import device_timeline, replay
from timesink.measures.timeline.replay import calibrated_pricers, graphs, pricers
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.units import NS_PER_MS
from timesink.whatif import Target
from timesink.whatif.changes.host import FeedLoader, RemoveSyncs, ScaleHost
from timesink.whatif.changes.transfers import PinCopies
from timesink.whatif.edit import Together
from timesink.whatif.periods import StepWindows

HOST = {"rank": 0, "process": 1, "thread": 1}


@pytest.mark.parametrize("name", ["gpt_before", "gpt_after"])
def test_an_own_capture_replays_exactly_and_explains_itself(shared_data: Path, name: str) -> None:
    trace = read(shared_data / f"own/kineto/{name}.json.gz")
    graph = graphs(trace)[0]
    assert np.array_equal(graph.replay().time_ns, graph.network.observed_ns)
    assert pricers(trace)[0].residual_ratio < 0.02


def test_the_gain_of_feeding_the_loop_is_predicted_from_the_calibrated_trace(shared_data: Path) -> None:
    # measured without a profiler: 10.60 ms before, 8.70 ms with the batch kept on the GPU
    trace = read(shared_data / "own/kineto/gpt_before.json.gz")
    pricer = calibrated_pricers(trace.with_unprofiled_step(10.60 * NS_PER_MS))[0]
    calls, ranges = trace[API_CALLS], trace[RANGES]
    main = ranges["thread"][0]
    began = ranges.filter(ranges["name"].cast(str).str.starts_with("ProfilerStep"))["start_ns"].to_numpy()
    first = calls.filter(calls["thread"] == main)["start_ns"].to_numpy()
    until = first[np.searchsorted(first, began)]  # the batch is made between step start and first CUDA call
    data = Target("windows", windows={(int(calls["process"][0]), int(main)): Intervals(began, until)})
    price = pricer.price(Together((FeedLoader(data), PinCopies())))
    assert price.refused is None
    assert price.gain_ns == pytest.approx(1.90 * NS_PER_MS, rel=0.15)
    assert price.low_ns <= 1.90 * NS_PER_MS <= price.high_ns


def test_the_gain_is_predicted_from_nsight_systems_as_well(shared_data: Path) -> None:
    pricer = pricers(read(shared_data / "own/nsys/gpt_before.sqlite"))[0]
    assert pricer.step_ns == pytest.approx(10.60 * NS_PER_MS, rel=0.02)
    price = pricer.price(FeedLoader(Target("range", "^data_load$")))
    assert price.gain_ns == pytest.approx(1.90 * NS_PER_MS, rel=0.15)


def test_the_gain_of_loader_workers_is_within_a_tenth_of_the_step(shared_data: Path) -> None:
    # two captures of one job, no A/B on one machine: workers also slowed the main thread, which no replay can know
    before = pricers(read(shared_data / "public/kineto/resnet50_workers0.json.gz"))[0]
    after = pricers(read(shared_data / "public/kineto/resnet50_workers4.json.gz"))[0]
    price = before.price(FeedLoader(Target("range", r"enumerate\(DataLoader\)#.*__next__")))
    won_ns = np.median(before.periods_ns) - np.median(after.periods_ns)
    assert price.gain_ns == pytest.approx(won_ns, abs=0.1 * before.step_ns)


def test_blame_sums_to_idle_on_every_capture(shared_data: Path) -> None:
    for path in sorted((shared_data / "public/kineto").glob("*.gz")):
        trace = read(path)
        assert idle_blame(trace).idle_ns == sum(line.idle.total_ns for line in device_timeline(trace)), path.name


def _long(steps: int) -> Trace:
    """Steps that alternate between two lengths, each waiting for its kernels."""
    step = [[Step(), Host(20_000 + 5_000 * (n % 2)), *(Launch(9_000) for _ in range(4)), Wait()] for n in range(steps)]
    simulated = simulate([part for one in step for part in one] + [Step()])
    marks = simulated.marks_ns
    ranges = [
        {**HOST, "name": f"ProfilerStep#{n}", "start_ns": start, "end_ns": end, "kind": "push_pop", "depth": 0}
        for n, (start, end) in enumerate(pairwise(marks))
    ]
    trace = simulated.trace()
    return Trace("test", {**trace.tables, RANGES: frame(RANGES, ranges)})


def test_an_excerpt_of_a_long_trace_prices_like_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pricers(_long(200))[0]
    monkeypatch.setattr(replay, "_OPS_REPLAYED", 100)
    excerpt = pricers(_long(200))[0]
    assert len(excerpt.graph.program.ops) < 0.2 * len(whole.graph.program.ops)
    for change in (RemoveSyncs(), ScaleHost(Target(), 0.5)):
        full, part = whole.price(change), excerpt.price(change)
        assert part.step_ns == pytest.approx(full.step_ns, rel=0.03)
        assert part.gain_ns == pytest.approx(full.gain_ns, rel=0.05)
    rows = excerpt.graph.rows_of_ops()
    starts = whole.graph.program.ops.start_ns[np.searchsorted(whole.graph.program.ops.row, rows)]
    assert np.array_equal(starts, excerpt.graph.program.ops.start_ns)


@pytest.mark.parametrize("waiting", [0, 1, None])
def test_a_rank_replays_what_its_own_ops_waited_for_other_hosts(
    monkeypatch: pytest.MonkeyPatch, waiting: int | None
) -> None:
    """Rank 0 alone has steps: of its 24 ops the second one waited for 7 ns, or those of another rank did."""
    waited = {} if waiting is None else {waiting: (np.array([1]), np.array([7]))}
    monkeypatch.setattr(replay, "waited_for_hosts", lambda _: waited)
    graph = pricers(trace_of(STEPPED))[0].graph
    late_ns = np.zeros(24) if graph.late_peers_ns is None else graph.late_peers_ns[graph.program.ops.block]
    assert dict(zip(graph.rows_of_ops().tolist(), late_ns.tolist(), strict=True)) == {
        row: 7 * (waiting == 0 and row == 1) for row in range(24)
    }


def test_pricers_are_calibrated_once_and_only_to_a_known_step() -> None:
    trace = trace_of(STEPPED)
    assert calibrated_pricers(trace) is pricers(trace)
    told = trace.with_unprofiled_step(8.5 * NS_PER_MS)
    assert calibrated_pricers(told) is calibrated_pricers(told)
    assert calibrated_pricers(told)[0].step_ns < pricers(told)[0].step_ns


def stepped(*periods_ms: float, weight: list[float] | None = None, **more: object) -> Any:
    """A pricer whose steps take so long."""
    start = np.arange(len(periods_ms), dtype=np.int64)
    windows = StepWindows(start, start + 1, np.array(weight or [1.0] * len(periods_ms)))
    periods = np.array(periods_ms) * NS_PER_MS
    named: dict[str, Any] = {"anchors": SimpleNamespace(windows=windows), "periods_ns": periods, **more}
    return SimpleNamespace(step_ns=windows.mean(periods), **named)


@pytest.mark.parametrize(
    ("known_ms", "rate"), [(19.8, 17.3 / 50.5), (12.6, 0.2), (5.0, None), (53.0, None), (40.0, None), (6.0, 3.5 / 50.5)]
)
def test_how_often_slow_steps_come_by_the_known_mean_step(known_ms: float, rate: float | None) -> None:
    """Four steps of 2.5 ms and one of 53 ms: a known mean of 19.8 makes the slow one (19.8 - 2.5) / (53 - 2.5) of all.

    That is within three times of the fifth that is seen; rates below a fifteenth or above three fifths are not.
    """
    windows = replay._reweigh_slow_steps(stepped(2.5, 2.5, 53.0, 2.5, 2.5), known_ms * NS_PER_MS)
    if rate is None:
        assert windows is None
    else:
        assert windows is not None
        assert windows.weight.tolist() == pytest.approx([5 * (rate if at == 2 else (1 - rate) / 4) for at in range(5)])
        assert windows.mean(np.array([2.5, 2.5, 53.0, 2.5, 2.5])) == pytest.approx(known_ms)
    assert replay._reweigh_slow_steps(stepped(2.5, 2.5, 2.6), known_ms * NS_PER_MS) is None


def test_slow_steps_seen_too_often_are_weighed_before_they_are_compared() -> None:
    """The slow step counts for 2 of 6: a third is seen, so that a ninth is the least."""
    pricer = stepped(2.5, 2.5, 53.0, 2.5, 2.5, weight=[1, 1, 2, 1, 1])
    assert replay._reweigh_slow_steps(pricer, (2.5 + 50.5 / 8.9) * NS_PER_MS) is not None
    assert replay._reweigh_slow_steps(pricer, (2.5 + 50.5 / 9.1) * NS_PER_MS) is None


def test_a_rank_takes_the_step_it_is_told_else_the_expected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "deflated_pricers", lambda _: {1: (stepped(11.0), stepped(10.5), stepped(6.0))})
    assert replay.step_without_profiler_ns(Trace("made", {}), 1) == 10.5 * NS_PER_MS
    told = Trace("made", {}).with_unprofiled_step(5.0 * NS_PER_MS)
    assert replay.step_without_profiler_ns(told, 1) == 5 * NS_PER_MS


def test_an_excerpt_is_stretches_of_steps_with_the_step_before_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 steps of 5 ops, with 100 replayed, 20 steps: runs of 5 from 1, 32, 63 and 94; the lead before each."""
    simulated = simulate(
        [part for _ in range(100) for part in (Step(), *(Launch(2_000) for _ in range(5)), Wait())] + [Step()]
    )
    windows, trace = simulated.windows(), simulated.trace()
    seen: list[tuple[int, int]] = []

    def excerpt(trace: Trace, rank: int, within: Intervals) -> Any:
        seen.extend(zip(within.start_ns.tolist(), within.end_ns.tolist(), strict=True))
        return real(trace, rank, within)

    real = replay._excerpt
    monkeypatch.setattr(replay, "_excerpt", excerpt)
    monkeypatch.setattr(replay, "_OPS_REPLAYED", 100)
    graph, replayed = replay._select_steps(trace, 0, windows)
    first = [1, 32, 63, 95]
    chosen = [number + more for number in first for more in range(5)]
    assert replayed.start_ns.tolist() == windows.start_ns[chosen].tolist()
    assert replayed.end_ns.tolist() == windows.end_ns[chosen].tolist()
    assert seen == [(windows.start_ns[number - 1], windows.end_ns[number + 4]) for number in first]
    assert len(graph.program.ops) == 4 * 6 * 5
    monkeypatch.setattr(replay, "_OPS_REPLAYED", 500)
    assert len(replay._select_steps(trace, 0, windows)[0].program.ops) == 500  # that is all there is
    monkeypatch.setattr(replay, "_OPS_REPLAYED", 10)
    assert len(replay._select_steps(trace, 0, windows)[1]) == 12  # three steps a stretch are the least


def test_a_known_mean_step_weighs_slow_steps_or_scales_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that count alike are calibrated; slow ones come as often as the known step says, where a rate is likely."""
    even, odd = stepped(10.0, 10.0), stepped(2.5, 2.5, 53.0, 2.5, 2.5, weight=[1, 1, 2, 1, 1])
    for number, pricer in enumerate((even, odd)):
        pricer.graph, pricer.residual_ratio = f"graph {number}", 0.1 + number
    expected = stepped(2.0, 2.0, 50.0, 2.0, 2.0, graph="without recording")
    monkeypatch.setattr(replay, "pricers", lambda _: {0: even, 1: odd})
    monkeypatch.setattr(replay, "deflated_pricers", lambda _: dict.fromkeys((0, 1), (None, expected, None)))
    monkeypatch.setattr(replay, "Pricer", lambda *given: given)
    monkeypatch.setattr(replay, "calibrate", lambda graph, step_ns, windows, same_run: ((graph, step_ns),))
    found: Any = calibrated_pricers(Trace("made", {}).with_unprofiled_step(12.0 * NS_PER_MS))
    assert found[0] == (("graph 0", 12.0 * NS_PER_MS), even.anchors.windows, 0.1)
    graph, windows, residual = found[1]
    assert (graph, residual) == ("without recording", 1.1)
    assert windows.mean(expected.periods_ns) == pytest.approx(12.0 * NS_PER_MS)
    found = calibrated_pricers(Trace("made", {}).with_unprofiled_step(49.0 * NS_PER_MS))  # no likely rate
    assert found[1] == (("graph 1", 49.0 * NS_PER_MS), odd.anchors.windows, 1.1)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_what_may_be_left_of_a_host_stands_beside_what_is_expected(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Of a known step alone; where slow steps are weighed, their rate is all that it tells."""
    even, odd = stepped(2.5, 53.0, 2.5, 2.5, graph="even"), stepped(2.5, 2.5, 53.0, 2.5, weight=[1, 1, 2, 1])
    expected = stepped(2.0, 2.0, 50.0, 2.0, graph="odd", residual_ratio=0.1)
    even.residual_ratio = odd.residual_ratio = 0.1
    monkeypatch.setattr(replay, "pricers", lambda _: {0: even, 1: odd})
    monkeypatch.setattr(replay, "deflated_pricers", lambda _: dict.fromkeys((0, 1), (None, expected, None)))
    monkeypatch.setattr(replay, "Pricer", lambda graph, *_: graph)
    asked: list[bool] = []

    def calibrate(graph: str, step_ns: float, windows: StepWindows, same_run: bool) -> tuple[str, ...]:
        asked.append(same_run)
        return tuple(f"{graph} {at}" for at in range(count))

    monkeypatch.setattr(replay, "calibrate", calibrate)
    trace = Trace("made", {})
    assert replay.calibrated_ends(trace) == {}
    told = trace.with_unprofiled_step(19.8 * NS_PER_MS)
    assert calibrated_pricers(told) == {0: f"even {count // 2}", 1: "odd"}
    assert replay.calibrated_ends(told) == {0: tuple(f"even {at}" for at in range(count) if at != count // 2)}
    replay.calibrated_ends(trace.with_unprofiled_step(19.8 * NS_PER_MS, (19.8 * NS_PER_MS,)))
    assert asked == [False, True]


def test_slow_steps_are_not_all_steps() -> None:
    """Half of the steps are seen to be slow: a mean above the slow step is no rate, be it within three times of it."""
    half = stepped(2.5, 2.5, 53.0, 2.5, 2.5, weight=[1, 1, 4, 1, 1])
    assert replay._reweigh_slow_steps(half, (2.5 + 50.5 * 0.9) * NS_PER_MS) is not None
    assert replay._reweigh_slow_steps(half, (2.5 + 50.5 * 1.2) * NS_PER_MS) is None


def test_a_path_is_found_for_ranks_with_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = SimpleNamespace(replay=lambda: "times")
    monkeypatch.setattr(replay, "graphs", lambda _: {0: graph, 1: graph})
    monkeypatch.setattr(replay, "step_windows", lambda _: {1: "windows"})
    monkeypatch.setattr(replay, "Anchors", lambda _, windows: windows)
    monkeypatch.setattr(replay, "path_pieces", lambda _, times, anchors: (times, anchors))
    assert replay.critical_path(Trace("made", {})) == {1: ("times", "windows")}


def test_an_excerpt_holds_what_was_launched_in_its_time_and_what_the_host_did() -> None:
    trace = trace_of("""
| api_calls | name             | correlation | start_us | end_us |
| a         | cudaLaunchKernel | 1           | 0        | 4      |
| b         | cudaLaunchKernel | 2           | 10       | 14     |

| device_ops | name | correlation | start_us | end_us |
| k          | gemm | 1           | 50       | 60     |
| l          | gemm | 2           | 61       | 70     |
| m          | gemm |             | 2        | 3      |

| ranges | name | start_us | end_us |
| r      | in   | 1        | 3      |
| s      | out  | 20       | 30     |
""")
    excerpt, rows = replay._excerpt(trace, 0, Intervals.one(0, 5_000))
    assert excerpt[API_CALLS]["correlation"].to_list() == [1]
    assert sorted((excerpt[DEVICE_OPS]["start_ns"] // 1_000).to_list()) == [2, 50]
    assert (trace[DEVICE_OPS]["start_ns"].to_numpy()[rows] // 1_000).tolist() == sorted([2, 50])
    assert excerpt[RANGES]["name"].to_list() == ["in"]
    for until, names in ((20_000, ["in"]), (20_001, ["in", "out"])):  # a nanosecond of it is enough
        assert replay._excerpt(trace, 0, Intervals.one(0, until))[0][RANGES]["name"].to_list() == names
    assert replay._excerpt(trace, 0, Intervals.one(10_001, 20_000))[0][API_CALLS].height == 0  # it begins just before


def test_few_steps_are_replayed_whole_and_only_the_rank_s_own_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(steps: int) -> Any:
        return simulate(
            [part for _ in range(steps) for part in (Step(), *(Launch(2_000) for _ in range(5)), Wait())] + [Step()]
        )

    monkeypatch.setattr(replay, "_OPS_REPLAYED", 10)
    few = program(12)
    windows = few.windows()
    assert replay._select_steps(few.trace(), 0, windows)[1] is windows
    monkeypatch.setattr(replay, "_OPS_REPLAYED", 100)
    many = program(100)
    trace = many.trace()
    other = trace[DEVICE_OPS].head(3).with_columns(rank=pl.lit(1, trace[DEVICE_OPS].schema["rank"]))
    both = Trace("two", {**trace.tables, DEVICE_OPS: pl.concat([trace[DEVICE_OPS], other])})
    assert len(replay._select_steps(both, 0, many.windows())[1]) == 20
    monkeypatch.setattr(replay, "graphs", lambda _: {2: "nothing ran"})
    assert replay._select_steps(both, 2, many.windows())[0] == "nothing ran"


def test_steps_of_ranks_that_worked_are_weighed_where_some_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2 has steps of its host alone; rank 3 has slow steps of which none was kept."""
    monkeypatch.setattr(replay, "steps", lambda _: SimpleNamespace(windows=pl.DataFrame({"rank": [0, 1, 3]})))
    monkeypatch.setattr(replay, "step_windows", lambda _: dict.fromkeys(range(3), "kept"))
    monkeypatch.setattr(replay, "_select_steps", lambda _, rank, windows: (rank, windows))
    monkeypatch.setattr(replay, "slow_rates", lambda _: {1: 0.1, 3: 0.1})
    monkeypatch.setattr(replay, "weights_in", lambda _, rank, periods_ns: (rank, periods_ns))
    monkeypatch.setattr(
        replay, "Pricer", lambda *given: SimpleNamespace(given=given, periods_ns=7, weighing=lambda by: (*given, *by))
    )
    found: Any = pricers(Trace("made", {}))
    assert (found.keys(), found[0].given, found[1]) == ({0, 1}, (0, "kept"), (1, "kept", 1, 7))


def test_the_program_of_a_short_trace_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = simulate([Launch(2_000), Launch(2_000)]).trace()
    monkeypatch.setattr(replay, "_OPS_KEPT", 2)
    assert replay.work_of(trace, 0) is replay.programs(trace)[0]
    monkeypatch.setattr(replay, "_OPS_KEPT", 1)
    assert replay.work_of(trace, 0) is not replay.programs(trace)[0]
