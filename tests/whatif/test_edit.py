"""The strokes of which changes are made, worked by hand with every coefficient other than zero."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.whatif.test_changes import call, made, op

from timesink import _native
from timesink.knowledge.assumptions import fixes
from timesink.model.tables import API_CALLS, DEVICE_OPS, SYNCS
from timesink.whatif import Case, Touches
from timesink.whatif.changes.host import RemoveSyncs
from timesink.whatif.edit import Drawn, Edit, Together
from timesink.whatif.graph import Graph

US = 1_000


def saved(least: int) -> list[float]:
    """Thread 3 has windows of 100, 300 and 40 us, in which 2, 3 and 1 marked calls begin."""
    starts = np.array([0, 60, 100, 150, 399, 400, 30, 20]) * US
    thread = np.array([3, 3, 3, 3, 3, 3, 9, 3])
    marked = np.array([1, 1, 1, 1, 1, 1, 1, 0], dtype=bool)  # the last is another call
    window_start, window_end = np.array([0, 100, 400]) * US, np.array([100, 400, 440]) * US
    part = SimpleNamespace(start_ns=window_start, end_ns=window_end, lengths_ns=window_end - window_start)
    shares: list[float] = []

    def save_host_parts(number: int, start_ns: Any, end_ns: Any, share: Any) -> None:
        assert number == 3
        assert (start_ns == window_start).all()
        assert (end_ns == window_end).all()
        shares.extend(share.tolist())

    calls = SimpleNamespace(start_ns=starts, thread=thread)
    edit = SimpleNamespace(graph=SimpleNamespace(program=SimpleNamespace(calls=calls)), save_host_parts=save_host_parts)
    given: dict[str, Any] = {"fixed_us": 10.0, "per_launch_us": 35.0, "least": least}
    Edit.replace_launches(edit, {3: part}, marked, **given)  # type: ignore[arg-type, dict-item]
    return shares


def test_a_window_costs_a_fixed_part_and_a_part_for_each_launch() -> None:
    # 10 + 2 x 35 = 80 of 100 us; 10 + 3 x 35 = 115 of 300 us; 10 + 1 x 35 = 45 of 40 us: no more than it did
    assert saved(least=0) == pytest.approx([0.2, 185 / 300, 0.0])


def test_a_window_with_too_few_launches_keeps_its_cost() -> None:
    assert saved(least=3) == pytest.approx([0.0, 185 / 300, 0.0])
    assert saved(least=2) == pytest.approx([0.2, 185 / 300, 0.0])


class Calls(SimpleNamespace):
    """Calls as (thread, start, end) in us."""

    def __init__(self, *times: tuple[int, int, int]) -> None:
        thread, start, end = np.array(times).T
        super().__init__(thread=thread, start_ns=start * US, end_ns=end * US)

    def __len__(self) -> int:
        return int(self.thread.size)


@pytest.mark.parametrize(("more", "first"), [({}, [0, 12, 30, 45]), ({"since_launch": True}, [0, 5, 30, 45])])
def test_what_a_launch_costs_the_host_begins_at_the_launch_or_wait_before_it(
    more: dict[str, bool], first: list[int]
) -> None:
    """On thread 3 launches at 0 and 20, between them a wait until 12 and a call that does neither; on thread 9 one at
    40 inside that from 30 to 60.
    """
    every = Calls((3, 0, 5), (3, 10, 12), (3, 14, 15), (3, 20, 25), (9, 30, 60), (9, 40, 45))
    launches = np.array([True, False, False, True, True, True])
    waits = SimpleNamespace(blocking=np.arange(6) == 1)
    program = SimpleNamespace(calls=every, launching=lambda _=None: launches, releases=waits)
    found: list[list[float]] = []

    def save_calls(calls: Any, start_ns: Any, end_ns: Any, share: Any) -> None:
        found.extend([calls.tolist(), (start_ns // US).tolist(), (end_ns // US).tolist(), share.tolist()])

    graph = SimpleNamespace(program=program, once=lambda _, work_out: work_out())
    edit: Any = SimpleNamespace(graph=graph, save_calls=save_calls)
    edit.launch_windows = lambda ops, **more: Edit.launch_windows(edit, ops, **more)
    Edit.save_launches(edit, np.ones(4, bool), 0.4, **more)
    assert found == [[0, 3, 4, 5], first, [5, 25, 60, 45], [0.4] * 4]


def test_only_launches_of_the_ops_that_are_meant_are_found_and_both_of_two_changes_are_kept() -> None:
    edit = Edit(three_kernels(stream=20))
    every, start, _ = edit.launch_windows()
    own, begun, _ = edit.launch_windows(np.array([False, True, False]))
    assert every.size > own.size == 1
    assert begun.tolist() == start[every == own[0]].tolist()


@pytest.mark.parametrize(("limit", "left"), [(192, 3), (191, 2), (128, 2), (64, 1), (0, 1)])
def test_of_what_was_drawn_the_latest_is_kept_as_far_as_there_is_room(
    limit: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timesink.whatif.edit._KEPT_BYTES", limit)
    kept, changes = Drawn(), [RemoveSyncs() for _ in range(3)]
    for change in changes:
        kept.keep(change, Case.EXPECTED, [(Edit._explain, (np.zeros(8, np.int64),))])
    assert [kept.strokes_of(change, Case.EXPECTED) is not None for change in changes] == [False] * (3 - left) + [
        True
    ] * left


def test_intervals_of_calls_are_saved_on_the_thread_of_each() -> None:
    every = Calls((3, 0, 5), (9, 10, 12), (3, 20, 25))
    found = {}

    def save_host_parts(thread: int, start_ns: Any, end_ns: Any, share: Any) -> None:
        found[thread] = (start_ns.tolist(), end_ns.tolist(), share.tolist())

    graph = SimpleNamespace(program=SimpleNamespace(calls=every))
    edit: Any = SimpleNamespace(graph=graph, save_host_parts=save_host_parts)
    Edit.save_calls(edit, np.arange(3), np.array([1, 2, 3]), np.array([4, 5, 6]), np.array([0.1, 0.2, 0.3]))
    assert found == {3: ([1, 3], [4, 6], [0.1, 0.3]), 9: ([2], [5], [0.2])}


def test_a_window_without_launches_or_length_costs_its_fixed_part() -> None:
    part = SimpleNamespace(start_ns=np.array([0, 9]), end_ns=np.array([1_000, 9]), lengths_ns=np.array([1_000, 0]))
    shares: list[float] = []
    calls = SimpleNamespace(start_ns=np.array([5_000]), thread=np.array([3]))
    edit: Any = SimpleNamespace(
        graph=SimpleNamespace(program=SimpleNamespace(calls=calls)),
        save_host_parts=lambda thread, start, end, share: shares.extend(share.tolist()),
    )
    Edit.replace_launches(edit, {3: part}, np.array([True]), 0.25, 9.0)  # type: ignore[dict-item]
    Edit.replace_launches(edit, {3: part}, np.array([True]), 0.0, 9.0)  # type: ignore[dict-item]
    assert shares == [0.75, 0.0, 1.0, 1.0]
    short = SimpleNamespace(start_ns=np.array([0]), end_ns=np.array([1]), lengths_ns=np.array([1]))
    Edit.replace_launches(edit, {3: short}, np.array([True]), 0.0005, 9.0)  # type: ignore[dict-item]
    assert shares[4:] == [0.5]  # half a nanosecond


def test_an_edge_saves_what_is_saved_between_its_ends() -> None:
    """Half of 0-100 and all of 200-220, as the docstring draws it, half as long again of 300 to 302, a ns at 310."""
    edges = [
        (50, 210),
        (0, 2),
        (100, 200),
        (0, 250),
        (220, 290),
        (301, 303),
        (300, 302),
        (302, 310),
        (310, 311),
        (9, 9),
    ]
    start, end = np.array([0, 200, 300, 310]) + 7_000, np.array([100, 220, 302, 311]) + 7_000
    begin, until = (np.array(edges) + 7_000).T
    shorter, share = _native.savings(np.arange(10) + 40, begin, until, start, end, np.array([0.5, 1.0, -0.5, 1.0]))
    assert shorter.tolist() == [40, 41, 43, 45, 46, 48]
    assert share.tolist() == pytest.approx([35 / 160, 1 / 2, 70 / 250, -0.5 / 2, -1 / 2, 1])


def savings_from_now_on(patch: pytest.MonkeyPatch) -> list[Any]:
    """(start, end, share) of the intervals that are saved. Edges are given that any of them meets, and all of each
    interval is in them."""
    found: list[Any] = []

    def saved(edges: Any, begin: Any, end: Any, start_ns: Any, end_ns: Any, share: Any) -> Any:
        met = np.minimum(end[:, None], end_ns) - np.maximum(begin[:, None], start_ns)
        assert (met > 0).any(axis=1).all()
        assert (np.maximum(met, 0).sum(axis=0) == end_ns - start_ns).all()
        found.append((start_ns, end_ns, share))
        return np.empty(0, np.int64), np.empty(0)

    patch.setattr(_native, "savings", saved)
    return found


def test_what_is_launched_with_others_or_not_at_all_slows_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph launch takes 7 us, and one before it 5: half of a mean launch more is 3 us for the marked of its ops.

    The other op of the graph would take more, as the op nobody is known to have launched.
    """
    calls = [call("cudaLaunchKernel", 0, 5, 1), call("cudaGraphLaunch", 6, 12, 2)]
    ops = [op(20, 30, 1), op(40, 50, 2, name="a"), op(55, 60, 2, name="b", stream=20), op(70, 80, 99)]
    edit = Edit(Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops})))
    found = savings_from_now_on(monkeypatch)
    edit.slow_launches(np.array([False, True, False, True]), np.array([9.0, 0.5, 9.0, 7.0]), np.zeros(4, bool))
    assert [[(part / US).tolist() for part in given[:2]] for given in found] == [[[5], [12]]]
    assert found[0][2].tolist() == [pytest.approx(-3 / 7)]


def test_launches_are_delayed_by_microseconds_whatever_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second launch takes 7 us with what comes before it, and 3 us more are so many sevenths of that."""
    calls = [call("cudaLaunchKernel", 0, 5, 1), call("cudaLaunchKernel", 6, 12, 2)]
    edit = Edit(Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: [op(20, 30, 1), op(40, 50, 2)]})))
    found = savings_from_now_on(monkeypatch)
    edit.delay_launches(np.array([False, True]), np.array([9.0, 3.0]))
    assert [[(part / US).tolist() for part in given[:2]] for given in found] == [[[5], [12]]]
    assert found[0][2].tolist() == [pytest.approx(-3 / 7)]


def test_an_op_that_nobody_is_known_to_have_launched_says_of_no_launch_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Launches take 5 and 7 us; what the second one launched is gone, so a mean launch takes 5."""
    calls = [call("cudaLaunchKernel", 0, 5, 1), call("cudaLaunchKernel", 6, 12, 2)]
    edit = Edit(Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: [op(20, 30, 1), op(40, 50, 2), op(70, 80, 99)]})))
    edit.drop_ops(np.array([False, True, False]))
    found = savings_from_now_on(monkeypatch)
    edit.slow_launches(np.array([True, False, False]), np.full(3, 0.5), np.zeros(3, bool))
    assert [share.tolist() for *_, share in found] == [[pytest.approx(-0.5)]]


def test_a_launch_and_an_op_of_a_nanosecond_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 us more are 3,000 times a launch of 1 ns; half of it more is half, as its op of 1 ns runs."""
    launch = {**call("cudaLaunchKernel", 0, 0, 1), "start_ns": 10, "end_ns": 11}
    kernel = {**op(0, 0, 1), "start_ns": 20, "end_ns": 21}
    short = [{key: value for key, value in row.items() if key not in ("start", "end")} for row in (launch, kernel)]
    edit = Edit(Graph.from_trace(made({API_CALLS: short[:1], DEVICE_OPS: short[1:]})))
    found = savings_from_now_on(monkeypatch)
    edit.delay_launches(np.array([True]), np.array([3.0]))
    edit.slow_launches(np.array([True]), np.array([0.5]), np.zeros(1, bool))
    assert [share.tolist() for *_, share in found] == [[pytest.approx(-3_000)], [pytest.approx(-0.5)]]


@pytest.mark.parametrize(("longer_us", "share"), [(0, -0.5), (1, 0.0)])
def test_what_takes_longer_than_launches_do_is_no_launching(
    monkeypatch: pytest.MonkeyPatch, longer_us: int, share: float
) -> None:
    end = fixes.CAPTURED_WITHIN_US.ns // US + longer_us
    launched = {API_CALLS: [call("cudaLaunchKernel", 0, end, 1)], DEVICE_OPS: [op(end + 5, end + 9, 1)]}
    edit = Edit(Graph.from_trace(made(launched)))
    found = savings_from_now_on(monkeypatch)
    edit.slow_launches(np.array([True]), np.array([0.5]), np.zeros(1, bool))
    assert found[0][2].tolist() == [pytest.approx(share)]


@pytest.mark.parametrize(
    ("sides", "both"),
    [((Touches.HOST,), Touches.HOST), ((Touches.DEVICE, Touches.DEVICE), Touches.DEVICE),
     ((Touches.HOST, Touches.DEVICE), Touches.BOTH), ((Touches.COMMUNICATION, Touches.HOST), Touches.BOTH)],
)  # fmt: skip
def test_changes_together_touch_one_side_only_where_all_do(sides: tuple[Touches, ...], both: Touches) -> None:
    changes: Any = tuple(SimpleNamespace(touches=side) for side in sides)
    assert Together(changes).touches is both


def three_kernels(**streams: int) -> Graph:
    """Launched at 0, 1 and 2 us; they run from 10 to 20, 30 to 40 and 60 to 70."""
    calls = [call("cudaLaunchKernel", n, n + 1, n) for n in range(3)]
    ops = [op(10, 20, 0), op(30, 40, 1, **streams), op(60, 70, 2)]
    return Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))


def test_promptly_started_kernels_leave_the_graph_that_they_come_from_as_it_is() -> None:
    graph = three_kernels()
    before = graph.network.edges.unexplained_ns.tolist()
    edit = Edit(graph)
    for _ in range(2):
        edit.start_promptly(np.ones(graph.network.observed_ns.size, bool))
    assert not edit.done().network.edges.unexplained_ns.any()
    assert any(before)
    assert graph.network.edges.unexplained_ns.tolist() == before


def starts_us(graph: Graph) -> list[float]:
    times = graph.replay().time_ns
    return (times[graph.program.start_node(np.arange(len(graph.program.blocks)))] / US).tolist()


def test_gaps_before_the_marked_kernels_alone_close() -> None:
    """The second kernel follows after 3 us; the third keeps its distance of 20 us to the second."""
    edit = Edit(three_kernels())
    edit.close_gaps(np.array([False, True, False]), 3 * US)
    assert starts_us(edit.done()) == [10, 21, 51]  # a gap between kernels is 1 us, which is less


def test_a_dropped_kernel_starts_as_it_is_launched() -> None:
    edit = Edit(three_kernels(stream=20))
    edit.drop_ops(np.array([False, True, False]))
    assert starts_us(edit.done())[:2] == [10, 1]


def test_a_wait_that_goes_costs_nothing() -> None:
    calls = [call("cudaLaunchKernel", 0, 5, 1), call("cudaStreamSynchronize", 6, 18, 9),
             call("cudaLaunchKernel", 20, 25, 2)]  # fmt: skip
    wait = {"rank": 0, "process": 1, "device": 0, "stream": 7, "kind": "stream", "start": 6, "end": 18,
            "correlation": 9}  # fmt: skip
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: [op(6, 15, 1), op(30, 31, 2)], SYNCS: [wait]}))
    edit = Edit(graph)
    assert (edit.launch_windows()[1] / US).tolist() == [0, 18]
    edit.drop_waits(np.array([False, True, False]))
    freed = edit.done().replay().time_ns
    assert (freed[graph.program.points.begin_of] / US).tolist() == [0, 6, 8]


def test_a_graph_launch_of_no_length_stays_one() -> None:
    ops = [op(10, 10, 1, name="a"), op(10, 10, 1, name="b", stream=20), op(30, 40, 2)]
    calls = [call("cudaGraphLaunch", 0, 5, 1), call("cudaLaunchKernel", 6, 7, 2)]
    edit = Edit(Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops})))
    edit.scale_ops(np.array([True, False, False]), 0.5)
    changed = edit.done()
    assert starts_us(changed) == [10, 30]
    assert (changed.network.edges.weight_ns >= 0).sum() == (edit.graph.network.edges.weight_ns >= 0).sum()


def test_launches_slow_down_by_mean_launches_of_what_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches take 5, 20 and 50 us of thread 1, and 10 and 120 of thread 2, of which 30 are saved: a mean of 35.

    Half of that more is 17.5 us: of the first a share of 3.5, of the third of 0.35, and of the last, of 90, of 7 / 36.
    Once the kernel of the longest is gone, the mean is 85 / 4, and the first gets 10.625 us more; but 25 if those of
    its kind take 50.
    """
    times = [(1, 1_000, 1_005), (1, 1_020, 1_025), (1, 1_070, 1_075), (2, 1_100, 1_110), (2, 1_200, 1_230)]
    calls = [call("cudaLaunchKernel", a, b, n, thread=thread) for n, (thread, a, b) in enumerate(times)]
    ops = [op(end + 5, end + 6, n) for n, (*_, end) in enumerate(times)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    edit = Edit(graph)
    edit.save_calls(np.array([4]), np.array([1_200 * US]), np.array([1_230 * US]), np.array([1.0]))
    every, start, _ = edit.launch_windows()
    assert (every.tolist(), (start // US).tolist()) == ([0, 1, 2, 3, 4], [1_000, 1_005, 1_025, 1_100, 1_110])
    assert (edit._taken_ns() / US).tolist() == [5, 20, 50, 10, 90]
    found = savings_from_now_on(monkeypatch)
    no, third, half = np.zeros(5, bool), np.arange(5) == 2, np.full(5, 0.5)
    edit.slow_launches(np.array([True, False, True, False, True]), half, no)
    assert [(begun // US).tolist() for begun, _, _ in found] == [[1_000, 1_025], [1_110]]
    assert [share.tolist() for *_, share in found] == [pytest.approx([-3.5, -0.35]), pytest.approx([-7 / 36])]
    edit.drop_ops(np.array([False, False, False, False, True]))
    edit.slow_launches(np.arange(5) == 0, half, no)
    edit.slow_launches(np.arange(5) == 0, half, third)
    assert [given[-1].tolist() for given in found[2:]] == [pytest.approx([-2.125]), pytest.approx([-5.0])]
    edit.drop_ops(np.ones(5, bool))
    edit.slow_launches(np.arange(5) == 0, half, no)
    assert found[-1][-1].tolist() == [0.0]  # nothing is launched that could say how long it takes


def test_rows_of_launches_begin_after_what_was_launched_or_awaited_before_if_that_is_soon() -> None:
    """Launches of thread 1 at 10, 30, 50 and 2,000 us, of which the first is not meant; thread 2 waits until 1,100.

    One row begins at the end of the launch before it, and the other, 900 us after the wait, with itself.
    """
    times = [(1, 10, 14), (1, 30, 34), (1, 50, 54), (1, 2_000, 2_004)]
    calls = [call("cudaLaunchKernel", a, b, n, thread=thread) for n, (thread, a, b) in enumerate(times)]
    ops = [op(end + 5, end + 6, n) for n, (*_, end) in enumerate(times)]
    wait = call("cudaDeviceSynchronize", 900, 1_100, 9, thread=2)
    graph = Graph.from_trace(made({API_CALLS: [*calls, wait], DEVICE_OPS: ops}))
    part = Edit(graph).launch_rows(np.array([False, True, True, True, False]))[0]
    assert (part.start_ns // US).tolist() == [14, 2_000]
    assert (part.end_ns // US).tolist() == [54, 2_004]


def test_rows_end_where_too_much_time_or_another_launch_comes_between() -> None:
    """On thread 1 a launch that is not meant, three in a row, one a microsecond too late to be of it, another that is
    not meant, and one as late after that as may be; on thread 2 the first launch of all. Thread 3 waits now and then.
    """
    within = round(fixes.CAPTURED_WITHIN_US.value)
    begin = 1_000_000 + np.cumsum([0, 5, 20, 20, 4 + within, 4 + within + 1, 10, 4 + within])
    marked = np.array([True, False, True, True, True, True, False, True])
    times = [(2 if n == 0 else 1, int(at), int(at) + 4) for n, at in enumerate(begin)]
    calls = [call("cudaLaunchKernel", a, b, n, thread=thread) for n, (thread, a, b) in enumerate(times)]
    ops = [op(end + 5, end + 6, n) for n, (*_, end) in enumerate(times)]
    waits = [
        call("cudaDeviceSynchronize", int(at) + 6, int(at) + 9, 20 + n, thread=3) for n, at in enumerate(begin[2:4])
    ]
    graph = Graph.from_trace(made({API_CALLS: [*calls, *waits], DEVICE_OPS: ops}))
    every = graph.program.calls
    meant = np.isin(every.start_ns, begin[marked] * US)
    found = Edit(graph).launch_rows(meant)
    rows = sorted(
        (start // US, end // US)
        for part in found.values()
        for start, end in zip(part.start_ns, part.end_ns, strict=True)
    )
    assert rows == [
        (begin[0], begin[0] + 4), (begin[1] + 4, begin[4] + 4), (begin[5], begin[5] + 4), (begin[6] + 4, begin[7] + 4),
    ]  # fmt: skip


def test_of_two_kernels_of_a_graph_only_time_of_the_marked_one_alone_shrinks() -> None:
    """Half of 10 to 30 goes: the block takes 40 instead of 50 us, and what follows comes 10 sooner."""
    ops = [op(10, 40, 1, name="a"), op(30, 60, 1, name="b", stream=20), op(70, 80, 2)]
    calls = [call("cudaGraphLaunch", 0, 5, 1), call("cudaLaunchKernel", 6, 7, 2)]
    edit = Edit(Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops})))
    edit.scale_ops(np.array([True, False, False]), 0.5)
    assert starts_us(edit.done()) == [10, 60]


def test_a_dropped_kernel_leaves_no_gap_on_its_stream() -> None:
    edit = Edit(three_kernels())
    edit.drop_ops(np.array([False, True, False]))
    assert starts_us(edit.done())[:2] == [10, 20]
