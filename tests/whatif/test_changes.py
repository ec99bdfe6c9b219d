"""Each change does to a graph what it would do to the program."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import frame
from tests.whatif.programs import Host, Instruction, Launch, Step, Wait, simulate
from tests.whatif.test_replay_laws import programs

from timesink.errors import UsageError
from timesink.fixes.grammar import VERBS, change_names
from timesink.fixes.table import EDITS, FIXES, parse_change
from timesink.model.intervals import Intervals
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, EVENT_WAITS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.whatif import EVERYTHING, Case, Change, Range, Selection, Target
from timesink.whatif.changes.host import CaptureGraph, DropCompiler, DropOperator, FeedLoader, RemoveSyncs, ScaleHost
from timesink.whatif.changes.kernels import EnterRegions, FuseOptimizer, ScaleKernels, UnderAutocast, shorten
from timesink.whatif.changes.transfers import OverlapCollectives, PinCopies
from timesink.whatif.edit import Together
from timesink.whatif.graph import Graph
from timesink.whatif.pricing import Pricer

US = 1_000
HOST = {"rank": 0, "process": 1, "thread": 1}
DEVICE = {"rank": 0, "device": 0, "process": 1, "context": 1, "stream": 7, "kind": "kernel", "name": "k"}


def made(tables: dict[Table, list[dict[str, object]]]) -> Trace:
    """A trace of records that give times in us."""

    def scaled(record: dict[str, object]) -> dict[str, object]:
        times = {f"{key}_ns": int(str(record[key])) * US for key in ("start", "end") if key in record}
        return {key: value for key, value in record.items() if key not in ("start", "end")} | times

    return Trace("test", {table: frame(table, [scaled(r) for r in rows]) for table, rows in tables.items()})


def call(name: str, start: int, end: int, correlation: int | None = None, **more: object) -> dict[str, object]:
    return {**HOST, "name": name, "start": start, "end": end, "correlation": correlation, **more}


def op(start: int, end: int, correlation: int, **more: object) -> dict[str, object]:
    return {**DEVICE, "start": start, "end": end, "correlation": correlation, **more}


def ends_us(graph: Graph) -> list[float]:
    """When each device op is over, in order of observed start."""
    return (graph.replay().time_ns[graph.program.end_node(np.arange(len(graph.program.blocks)))] / US).tolist()


@settings(deadline=None)
@given(programs)
def test_without_waits_the_device_does_what_the_simulator_says(program: list[Instruction]) -> None:
    graph = Graph.from_trace(simulate(program).trace())
    free = simulate([s for s in program if not isinstance(s, Wait)])
    freed = RemoveSyncs().rewrite(graph)
    over = freed.replay().time_ns[freed.program.end_node(np.arange(len(freed.program.blocks)))]
    assert sorted(over.tolist()) == sorted(o["end_ns"] for o in free.ops)


@settings(deadline=None)
@given(st.lists(st.sampled_from([Host(7_000), Launch(9_000), Launch(9_000, name="drop"), Wait(7)]), max_size=20))
def test_dropped_kernels_leave_the_program_that_never_launched_them(program: list[Instruction]) -> None:
    program = [Launch(9_000), *program]
    graph = Graph.from_trace(simulate(program).trace())
    without = simulate([s for s in program if not (isinstance(s, Launch) and s.name == "drop")])
    changed = DropOperator(Target("kernel", "^drop$")).rewrite(graph)
    last = changed.program.points.end_of[-1]
    assert changed.replay().time_ns[last] == without.end_ns


FIRST_TWO = Selection((0, 0), {"unfused": np.array([0, 1]), "first": np.array([0])})
ANY_CHANGE: list[Change] = [
    RemoveSyncs(),
    CaptureGraph(),
    ScaleHost(Target(), 0.3),
    ScaleKernels(Target("kernel", "gemm"), Range(0.8, 0.5, 0.2)),
    FuseOptimizer.of(FIRST_TWO, Target("kernel", "gemm")),
    shorten(FIRST_TWO, first=Range(0.8, 0.5, 0.2)),
    PinCopies(),
    DropOperator(Target("kernel", "gemm")),
]


DRAWN = [
    *ANY_CHANGE,
    OverlapCollectives(EVERYTHING),
    EnterRegions((0, 0), np.array([1]), trains=True),
    UnderAutocast(shorten(FIRST_TWO, first=Range(0.8, 0.5, 0.2)), np.array([0]), np.array([2.0])),
    DropCompiler(Target("any"), Target("kernel", "gemm")),
]


@settings(deadline=None)
@given(programs, st.sampled_from(DRAWN), st.sampled_from(DRAWN), st.sampled_from(list(Case)))
def test_what_was_drawn_before_is_drawn_again_on_other_costs(
    program: list[Instruction], first: Change, second: Change, case: Case
) -> None:
    def changed(graph: Graph, *changes: Change) -> list[list[int]]:
        edges = Together(changes).rewrite(graph, case).network.edges
        return [edges.weight_ns.tolist(), edges.unexplained_ns.tolist()]

    fresh, known = (Graph.from_trace(simulate(program).trace()) for _ in range(2))
    changed(known, first, second)
    changed(known, second)
    slower, slower_known = (ScaleHost(Target(), 1.5).rewrite(graph) for graph in (fresh, known))
    assert changed(slower_known, first, second) == changed(slower, first, second)
    assert changed(known, second, first) == changed(fresh, second, first)


@settings(deadline=None)
@given(programs, st.sampled_from(ANY_CHANGE), st.sampled_from(list(Case)))
def test_no_fix_delays_anything(program: list[Instruction], change: Change, case: Case) -> None:
    graph = Graph.from_trace(simulate(program).trace())
    assert (change.rewrite(graph, case).replay().time_ns <= graph.network.observed_ns).all()


@settings(deadline=None)
@given(st.lists(programs, min_size=2, max_size=4), st.sampled_from(ANY_CHANGE))
def test_a_price_is_ordered_and_within_the_step_and_a_host_fix_within_the_idle_time(
    steps: list[list[Instruction]], change: Change
) -> None:
    simulated = simulate([part for step in steps for part in (Step(), *step)] + [Step()])
    pricer = Pricer(Graph.from_trace(simulated.trace()), simulated.windows())
    price = pricer.price(change)
    if price.refused is None:
        assert price.low_ns <= price.gain_ns <= price.high_ns
        assert price.gain_ns <= price.step_ns
    assert pricer.price(change) == price or price.gain_ns == pricer.price(change).gain_ns
    busy = pricer.anchors.busy_ns(pricer.graph.replay())
    host = pricer.price(ScaleHost(Target(), 0.0))
    assert host.gain_ns <= max(host.step_ns - busy, 0)


def test_a_wait_in_a_device_bound_loop_is_worth_nothing_and_one_in_a_host_bound_loop_its_wait() -> None:
    def loop(host_ns: int, kernel_ns: int) -> Pricer:
        step = [Step(), Host(host_ns), *(Launch(kernel_ns) for _ in range(10)), Wait()]
        simulated = simulate([part for _ in range(20) for part in step] + [Step()])
        return Pricer(Graph.from_trace(simulated.trace()), simulated.windows())

    bound = loop(0, 1_000_000).price(RemoveSyncs())
    assert bound.gain_ns < 0.003 * bound.step_ns
    # 500 us of Python, ten launches of 6 us, kernels of 40 us: the host needs 560 of 500 + 404 + wait
    free = loop(500_000, 40_000).price(RemoveSyncs())
    assert free.new_step_ns == pytest.approx(560_000, rel=0.03)


def test_a_pinned_copy_runs_beside_the_kernel_before_it_and_still_precedes_the_next() -> None:
    trace = made(
        {
            API_CALLS: [
                call("cudaLaunchKernel", 0, 5, 1),
                call("cudaMemcpyAsync", 10, 180, 2),
                call("cudaLaunchKernel", 185, 190, 3),
            ],
            DEVICE_OPS: [
                op(10, 100, 1),
                op(
                    101,
                    178,
                    2,
                    kind="copy",
                    name="copy",
                    copy_kind="h2d",
                    src_memory="pageable",
                    dst_memory="device",
                    bytes=10**6,
                ),
                op(195, 300, 3),
            ],
        }
    )
    graph = Graph.from_trace(trace)
    exact = PinCopies(ratio=Range.exact(1.0))
    # launched at 10, the copy starts one launch latency later beside the first kernel and takes its 77 us
    first, copy, second = ends_us(exact.rewrite(graph))
    latency = graph.program.costs.latency_ns(np.array([1]))[0] / US
    assert (first, copy) == (100, 10 + latency + 77)
    assert second == max(copy, 100 + 1, 10 + 5 + 5 + latency) + 105


def test_fetches_wait_only_for_what_workers_cannot_hide() -> None:
    # a fetch of 300 us every 400 us; two workers make a batch in 150 us, of which 100 us pass between fetches
    calls = [call("cudaLaunchKernel", 400 * n + 300, 400 * n + 305, n) for n in range(5)]
    ops = [op(400 * n + 305, 400 * n + 310, n) for n in range(5)]
    ranges = [
        {**HOST, "name": "data", "kind": "push_pop", "depth": 0, "start": 400 * n, "end": 400 * n + 300}
        for n in range(5)
    ]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops, RANGES: ranges}))
    starts = FeedLoader(workers=2).rewrite(graph).replay().time_ns[graph.program.points.begin_of] / US
    assert np.diff(starts).tolist() == [150, 150, 150, 150]


def test_a_captured_step_is_one_launch_and_back_to_back_kernels() -> None:
    simulated = simulate(
        [part for _ in range(20) for part in (Step(), *(Launch(2_000) for _ in range(50)), Wait())] + [Step()]
    )
    pricer = Pricer(Graph.from_trace(simulated.trace()), simulated.windows())
    one = Range.exact(1.0)
    price = pricer.price(CaptureGraph(fixed_us=Range.exact(10.0), per_kernel_us=Range.exact(0.0), gap_us=one))
    # 50 launches of 6 us become 10 us; 50 kernels of 2 us and 1 us between them, a launch latency and the wait remain
    assert price.new_step_ns == pytest.approx(50 * 3_000 + 4_000 + 10_000, rel=0.05)


def test_neighbouring_kernels_become_the_longest_of_them() -> None:
    simulated = simulate([Launch(20_000, name="elementwise_kernel"), Launch(50_000, name="elementwise_kernel")])
    (change,) = parse_change("fuse_pointwise kernel:elementwise").changes(simulated.trace(), 0)
    # launched at 0 and after 4 us, the first keeps a tenth of its 20 us
    assert max(ends_us(change.rewrite(Graph.from_trace(simulated.trace())))) - 1_000 == pytest.approx(
        max(4 + 0.1 * 20, 4 + 4) + 50, abs=3
    )


def test_a_collective_on_its_own_stream_holds_nobody_but_slows_what_runs_beside_it() -> None:
    trace = made(
        {
            API_CALLS: [call("cudaLaunchKernel", 5 * n, 5 * n + 4, n) for n in range(3)],
            DEVICE_OPS: [op(10, 100, 0), op(101, 201, 1, name="ncclDevKernel_AllReduce"), op(202, 302, 2)],
        }
    )
    changed = OverlapCollectives(slowdown=Range.exact(0.25)).rewrite(Graph.from_trace(trace))
    assert ends_us(changed) == [100, 201, 100 + 25 + 100]


def test_a_recorded_event_wait_holds_the_waiting_stream() -> None:
    calls = [
        call("cudaLaunchKernel", 0, 4, 1), call("cudaEventRecord", 5, 6, 2), call("cudaStreamWaitEvent", 7, 8, 3),
        call("cudaLaunchKernel", 9, 12, 4),
    ]  # fmt: skip
    wait = {
        "rank": 0,
        "process": 1,
        "device": 0,
        "stream": 20,
        "waited_stream": 7,
        "record_correlation": 2,
        "correlation": 3,
        "start": 7,
    }
    ops = [op(5, 100, 1), op(100, 150, 4, stream=20)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops, EVENT_WAITS: [wait]}))
    assert (len(graph.program.events.source), bool(graph.program.events.inferred.any())) == (1, False)
    assert ends_us(ScaleKernels(Target("kernel", "k"), Range.exact(0.5)).rewrite(graph)) == [52.5, 77.5]
    unnamed = Graph.from_trace(
        made({API_CALLS: calls, DEVICE_OPS: ops, EVENT_WAITS: [{**wait, "record_correlation": -1}]})
    )
    assert unnamed.program.events.inferred.tolist() == [True]


def test_only_time_in_which_nothing_else_runs_shrinks_inside_a_graph_launch() -> None:
    ops = [op(10, 40, 1, name="edited"), op(30, 60, 1, name="other", stream=20), op(70, 80, 1, name="edited")]
    graph = Graph.from_trace(made({API_CALLS: [call("cudaGraphLaunch", 0, 20, 1)], DEVICE_OPS: ops}))
    changed = ScaleKernels(Target("kernel", "edited"), Range.exact(0.5)).rewrite(graph)
    # alone: 10 to 30 and 70 to 80, half of which goes
    assert ends_us(changed) == [80 - 15]


def test_a_worker_thread_and_the_thread_that_waits_for_it_are_one_chain() -> None:
    node = "autograd::engine::evaluate_function: MulBackward0"
    worker = {**HOST, "thread": 2}
    trace = made(
        {
            API_CALLS: [
                call("cudaLaunchKernel", 0, 5, 1), call("cudaLaunchKernel", 300, 305, 3),
                call("cudaLaunchKernel", 120, 125, 2, thread=2),
            ],
            HOST_OPS: [
                {**HOST, "name": "aten::mul", "start": 0, "end": 10},
                {**HOST, "name": "aten::add", "start": 290, "end": 310},
                {**worker, "name": node, "start": 100, "end": 280},
            ],
            DEVICE_OPS: [op(8, 20, 1), op(128, 140, 2), op(308, 320, 3)],
        }
    )  # fmt: skip
    graph = Graph.from_trace(trace)
    assert graph.program.bursts.worker.tolist() == [1]
    halved = ScaleHost(Target("op", "^autograd"), 0.5).rewrite(graph)
    launch = halved.replay().time_ns[halved.program.points.begin_of] / US
    # the worker's 180 us become 90: 20 + 155 halved before and after its launch; the rest stays
    assert launch[1] == 300 - 90


def test_changes_together_win_no_more_than_their_sum() -> None:
    simulated = simulate(
        [p for _ in range(6) for p in (Step(), Host(90_000), Launch(70_000), Wait(), Launch(50_000), Wait())] + [Step()]
    )
    pricer = Pricer(Graph.from_trace(simulated.trace()), simulated.windows())
    parts = (RemoveSyncs(), ScaleHost(Target(), 0.5))
    both = pricer.price(Together(parts))
    each = [pricer.price(part).gain_ns for part in parts]
    assert max(each) - 1 <= both.gain_ns <= sum(each) + 1


def test_explicit_windows_choose_host_time_without_a_name() -> None:
    graph = Graph.from_trace(simulate([Launch(10_000), Host(100_000), Launch(10_000)]).trace())
    windows = Target("windows", windows={(1, 1): Intervals.one(1_006_000, 1_106_000)})
    # the second kernel is queued behind the first, over at 1 014 000: 1 000 gap, 10 000 run, 5 000 to return
    assert ScaleHost(windows, 0.0).rewrite(graph).replay().time_ns.max() == 1_030_000


@pytest.mark.parametrize(
    "form", sorted({*change_names().values(), *(fix.form for fix in (*FIXES, *EDITS))} - VERBS.keys())
)
def test_every_form_of_the_grammar_is_a_change(form: str) -> None:
    text = form.partition(",")[0].partition(" |")[0].replace("[", "").replace("]", "").replace("TARGET", "")
    text = text.replace("REGEX", "gemm").replace("FACTOR", "0.5").replace("=N", "=4").replace(" N", " 4").strip()
    assert parse_change(text).label == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "unknown change"),
        ("speed-up kernel:x 2", "unknown change"),
        ("scale kernel:x", "a target and a factor"),
        ("scale kernel:x fast", "is not a factor"),
        ("scale kernel:x 2", "not between 0 and 1"),
        ("drop", "needs a target"),
        ("scale gemm 0.5", "names no part"),
        ("scale kernel:(( 0.5", "not a regular expression"),
        ("precision int3", "takes no target"),
        ("int3", "unknown change 'int3'"),
        ("loader_workers workers=0", "not a number of workers"),
        ("remove_sync 'op:x", "open quotation"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_change(text)
