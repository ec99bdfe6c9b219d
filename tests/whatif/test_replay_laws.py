"""Laws of the replay: without a change it is the observation, and a change predicts what a simulator then does."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import shifted, traces
from tests.whatif.programs import GAP_NS, Host, Instruction, Launch, Wait, simulate

from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.whatif import Range, Target
from timesink.whatif.changes.host import RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import ScaleKernels
from timesink.whatif.critical_path import path_pieces, path_shares
from timesink.whatif.graph import Graph, ranks_of
from timesink.whatif.periods import Anchors, StepWindows

host_work = st.integers(0, 20_000).map(lambda n: Host(2 * n))
launches = st.builds(Launch, st.integers(1, 40_000).map(lambda n: 2 * n), st.sampled_from([7, 20]))
waits = st.builds(Wait, st.sampled_from([None, None, 7]))
programs = st.lists(st.one_of(host_work, launches, launches, waits), min_size=1, max_size=25)


def end_after(graph: Graph) -> int:
    """When the replayed program is over."""
    return int(graph.replay().time_ns.max())


@settings(deadline=None)
@given(traces())
def test_replay_of_an_unchanged_graph_gives_every_observed_time(trace: Trace) -> None:
    for rank in ranks_of(trace):
        graph = Graph.from_trace(trace, rank)
        assert np.array_equal(graph.replay().time_ns, graph.network.observed_ns)
        assert (graph.network.edges.unexplained_ns >= 0).all()


@settings(deadline=None)
@given(traces(), st.integers(-1000, 10**18))
def test_a_shifted_clock_shifts_nothing_but_times(trace: Trace, by_ns: int) -> None:
    for rank in ranks_of(trace):
        here, there = Graph.from_trace(trace, rank), Graph.from_trace(shifted(trace, by_ns), rank)
        assert np.array_equal(here.network.observed_ns + by_ns, there.network.observed_ns)
        assert np.array_equal(here.network.edges.weight_ns, there.network.edges.weight_ns)
        assert np.array_equal(here.network.edges.unexplained_ns, there.network.edges.unexplained_ns)


@settings(deadline=None)
@given(traces(), st.sampled_from([1 << 40, (1 << 63) - 1]))
def test_the_size_of_correlation_ids_does_not_matter(trace: Trace, largest: int) -> None:
    """Times processes, the largest ids are no 64-bit number any more."""
    renamed = (largest - (pl.col("correlation") - 1)).alias("correlation")  # the strategy draws them from 1 on
    tables = {table: trace.get(table).with_columns(renamed) for table in (API_CALLS, DEVICE_OPS)}
    renumbered = replace(trace, tables={**trace.tables, **tables})
    for rank in ranks_of(trace):
        here, there = Graph.from_trace(trace, rank), Graph.from_trace(renumbered, rank)
        assert np.array_equal(here.network.edges.weight_ns, there.network.edges.weight_ns)
        assert np.array_equal(here.program.ops.call, there.program.ops.call)


@settings(deadline=None)
@given(programs)
def test_a_simulated_program_leaves_nothing_unexplained(program: list[Instruction]) -> None:
    graph = Graph.from_trace(simulate(program).trace())
    assert graph.network.edges.unexplained_ns.sum() == 0


@settings(deadline=None)
@given(programs)
def test_faster_kernels_end_when_the_simulator_says(program: list[Instruction]) -> None:
    graph = Graph.from_trace(simulate(program).trace())
    faster = [Launch(s.ns // 2, s.stream) if isinstance(s, Launch) else s for s in program]
    changed = ScaleKernels(Target("kernel", "gemm"), Range.exact(0.5)).rewrite(graph)
    assert end_after(changed) == simulate(faster).end_ns


@settings(deadline=None)
@given(programs)
def test_a_faster_host_ends_when_the_simulator_says(program: list[Instruction]) -> None:
    began = Launch(2)  # host work before the first call lies before the trace
    graph = Graph.from_trace(simulate([began, *program, Wait()]).trace())
    halved = simulate([_halved(step) for step in [began, *program, Wait()]])
    last = graph.program.points.end_of[-2]
    assert ScaleHost(Target(), 0.5).rewrite(graph).replay().time_ns[last] == halved.calls[-2]["end_ns"]


def _halved(step: Instruction) -> Instruction:
    match step:
        case Host(ns):
            return Host(ns // 2)
        case Launch(ns, stream, name, call_ns):
            return Launch(ns, stream, name, call_ns // 2)
        case Wait(stream, call_ns):
            return Wait(stream, call_ns // 2)


@settings(deadline=None)
@given(programs, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_speed_up_never_predicts_a_longer_program(
    program: list[Instruction], one: float, other: float
) -> None:
    graph = Graph.from_trace(simulate(program).trace())
    slower, faster = max(one, other), min(one, other)
    for change in (lambda f: ScaleKernels(Target("kernel", ""), Range.exact(f)), lambda f: ScaleHost(Target(), f)):
        times = change(slower).rewrite(graph).replay().time_ns
        assert (change(faster).rewrite(graph).replay().time_ns <= times).all()
        assert (times <= graph.network.observed_ns).all()


@settings(deadline=None)
@given(programs)
def test_removed_waits_end_no_later_and_no_earlier_than_host_or_device_alone(program: list[Instruction]) -> None:
    graph = Graph.from_trace(simulate(program).trace())
    changed = RemoveSyncs().rewrite(graph)
    ops = graph.program.blocks
    busiest = max((int((ops.end_ns - ops.start_ns)[graph.program.ops.stream == s].sum()) for s in (0, 1)), default=0)
    first = int(graph.network.observed_ns.min())
    assert busiest <= end_after(changed) - first <= end_after(graph) - first


def test_the_intrinsic_gap_is_the_one_between_queued_kernels() -> None:
    graph = Graph.from_trace(simulate([Launch(50_000) for _ in range(10)]).trace())
    assert graph.program.costs.gap_ns == GAP_NS


@pytest.mark.parametrize("rows", [0, 1])
def test_a_trace_without_calls_replays_as_it_was(rows: int) -> None:
    simulated = simulate([Launch(100)] * rows)
    simulated.calls.clear()
    graph = Graph.from_trace(simulated.trace())
    assert np.array_equal(graph.replay().time_ns, graph.network.observed_ns)


@settings(deadline=None)
@given(programs, st.integers(1, 10**6))
def test_the_critical_path_is_without_gaps_and_sums_to_its_shares(program: list[Instruction], length_ns: int) -> None:
    graph = Graph.from_trace(simulate(program).trace())
    replay = graph.replay()
    anchors = Anchors(graph, StepWindows.alike(np.array([0]), np.array([length_ns])))
    found = path_pieces(graph, replay, anchors)
    assert np.array_equal(found.end_ns[:-1], found.start_ns[1:])
    assert (found.end_ns > found.start_ns).all()
    assert not found.end_ns.size or found.end_ns[-1] == replay.time_ns[anchors.last_node(replay)]
    total = sum(share.ns for share in path_shares(graph, replay, anchors))
    assert int((found.end_ns - found.start_ns).sum()) == total
