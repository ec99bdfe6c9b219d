"""What each change makes of kernels, host time and copies, worked by hand with every coefficient other than zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.whatif.test_changes import DEVICE_OPS, US, call, ends_us, made, op

from timesink.knowledge.assumptions import machines
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.whatif.change import Case, Range, Selection, Target, Touches
from timesink.whatif.changes import (
    CaptureGraph,
    DropOperator,
    FeedLoader,
    PinCopies,
    RemoveSyncs,
    ScaleHost,
    ScaleKernels,
)
from timesink.whatif.changes import kernels as made_of
from timesink.whatif.changes.host import DropCompiler, MergeUnits, _holding
from timesink.whatif.changes.kernels import FuseOptimizer, KernelFix, ShortenKernels, shorten
from timesink.whatif.changes.transfers import DropExchanges, OverlapCollectives, _bridges
from timesink.whatif.graph import Graph

NAN = float("nan")


def chosen(usual: list[float] | None = None, best: list[float] | None = None, **groups: list[int]) -> Selection:
    rows = {role: np.array(rows, np.int64) for role, rows in (groups or {"all": [2, 5, 9]}).items()}
    return Selection((0, 0), rows, np.array(usual or []), np.array(best or []))


def kept(change: ShortenKernels) -> list[list[float]]:
    return [part.tolist() for part in change.keep]


def roughly(*cases: list[float]) -> Any:
    return [pytest.approx(case, nan_ok=True) for case in cases]


def test_a_row_of_several_roles_keeps_the_smallest_share() -> None:
    change = shorten("x", chosen(a=[2, 9], b=[5, 9], other=[7]), True, a=Range(0.8, 0.5, 0.4), b=Range(0.7, 0.6, 0.1))
    assert change.rows.tolist() == [2, 5, 7, 9]
    assert kept(change) == [[0.8, 0.7, 1.0, 0.7], [0.5, 0.6, 1.0, 0.5], [0.4, 0.1, 1.0, 0.1]]
    assert change.floored


def test_shares_that_kernels_keep_by_hand() -> None:
    best = chosen(best=[0.2, 0.5, 0.9], usual=[0.4, 0.6, 0.95])
    # aligned: 0.9 of the bound is reached, half of that gain is sure; not known: as other products
    aligned = made_of.align_products(chosen([], [0.2, NAN, 0.95], named=[2, 5], named_since_hopper=[9]))
    assert kept(aligned) == roughly([0.5 + 0.5 * 0.2 / 0.9, 0.8, 1.0], [0.2 / 0.9, 0.45, 1.0], [0.2, 0.3, 0.95])
    assert kept(made_of.spread_grids(best)) == roughly([0.7, 1.0, 1.0], [0.4, 1.0, 1.0], [0.2, 0.5, 0.9])
    assert made_of.fill_device(best).label == "fill-device"
    overlapped = roughly([1 - 0.4 * 0.6, 1 - 0.4 * 0.4, 1 - 0.4 * 0.05], [0.4, 0.6, 0.95], [0.2, 0.5, 0.9])
    assert kept(made_of.overlap_streams(best)) == overlapped
    assert (kept(made_of.on_streams(best, 3)), made_of.on_streams(best, 3).label) == (overlapped, "streams 3")
    assert kept(made_of.full_clock(best)) == roughly([1.0] * 3, [0.6, 0.75, 0.95], [0.2, 0.5, 0.9])
    assert kept(made_of.merge_tiny(best)) == roughly(
        [1 - 0.5 * 0.8, 1 - 0.5 * 0.5, 1 - 0.5 * 0.1], [1 - 0.75 * 0.8, 1 - 0.75 * 0.5, 1 - 0.75 * 0.1], [0.2, 0.5, 0.9]
    )
    reached = [0.2 / 0.7, 0.5 / 0.7, 1.0]
    assert kept(made_of.reach_bound(best)) == roughly([0.5 + 0.5 * one for one in reached], reached, [0.2, 0.5, 0.9])
    narrow = made_of.to_tf32(chosen(best=[0.2, NAN, 0.9]))
    assert kept(narrow) == roughly([0.6, 0.45, 1.0], [0.23, 0.1725, 1.0], [0.12, 0.09, 0.54])
    assert (narrow.floored, narrow.touches) == (True, Touches.DEVICE)


def test_graphs_that_are_joined_save_what_comes_after_a_break() -> None:
    entries = np.array([5], np.int64)
    change = made_of.join_graphs(chosen(usual=[0.4, 0.6, 0.8], best=[0.2, 0.5, 0.9]), entries, 0.3)
    assert kept(change) == roughly([0.7, 0.8, 0.9], [0.4, 0.6, 0.8], [0.3, 0.55, 0.8])
    assert change.launches_saved == Range(0.15, 0.3, 0.3)
    assert (change.touches, change.entries) == (Touches.BOTH, entries)


def test_kernels_beside_keep_the_smaller_of_both_shares() -> None:
    beside = chosen(best=[0.2, NAN, 0.6], convolution=[2, 5], other=[9])
    whole = Selection(
        (0, 0), {"strided": np.array([1]), "packed": np.array([3]), "converter": np.array([4])}, beside=beside
    )
    change = made_of.keep_layout(whole)
    assert kept(change) == [[0.6, 1.0, 0.6], [0.05, 1.0, 0.3], [0.0, 0.05, 0.05]]
    assert change.beside is not None
    assert kept(change.beside) == roughly([0.6, 1.0, 0.8], [0.2, 1.0, 0.6], [0.2, 0.8, 0.6])
    assert made_of.keep_layout(chosen(strided=[1])).beside is None


def test_exchanges_go_and_what_they_slowed_keeps_its_usual_share() -> None:
    change = DropExchanges.of(chosen(exchange=[1]), chosen(usual=[0.4, 0.6, 0.8]))
    assert kept(change.kernels) == [[0.0], [0.0], [0.0]]
    assert change.kernels.beside is not None
    assert kept(change.kernels.beside) == roughly([0.7, 0.8, 0.9], [0.4, 0.6, 0.8], [0.4, 0.6, 0.8])
    assert change.label == "drop-exchanges"


def two_kernels(**more: Any) -> Graph:
    """Launched at 0 and at 10, each for 5; they run from 10 to 50 and from 60 to 160."""
    calls = [call("cudaLaunchKernel", 0, 5, 1), call("cudaLaunchKernel", 10, 15, 2)]
    return Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: [op(10, 50, 1), op(60, 160, 2)], **more}))


def lengths_us(graph: Graph) -> list[float]:
    times = graph.replay().time_ns
    blocks = np.arange(len(graph.program.blocks))
    return ((times[graph.program.end_node(blocks)] - times[graph.program.start_node(blocks)]) / US).tolist()


def test_kernels_are_shortened_and_those_of_share_zero_go() -> None:
    keep = (np.array([0.5, 0.2]), np.array([0.0, 0.2]), np.array([0.0, 0.001]))
    change = ShortenKernels("x", (0, 0), np.array([0, 1]), keep, floored=True)
    assert lengths_us(change.rewrite(two_kernels(), Case.CAUTIOUS)) == [20, 20]
    assert lengths_us(change.rewrite(two_kernels()))[1] == 20
    assert ends_us(change.rewrite(two_kernels()))[0] <= 10  # not run at all
    assert lengths_us(change.rewrite(two_kernels(), Case.HOPEFUL))[1] == pytest.approx(machines.KERNEL_FLOOR_US.ns / US)
    trace = made({DEVICE_OPS: [op(10, 50, 1), op(60, 160, 2)]})
    saved = change.saved(trace, Case.CAUTIOUS)
    assert (saved.start_ns.tolist(), saved.end_ns.tolist()) == ([30 * US, 80 * US], [50 * US, 160 * US])
    assert change.whole(trace).total_ns == 140 * US
    assert change.longest(trace) == (1, 0)
    assert change.longest(trace, 1) == (1,)


def test_collectives_shrink_to_the_shortest_of_their_name() -> None:
    """40, 100 and 50 us at a factor of 0.3: no shorter than 40; another name alone keeps its time."""
    names = ["ncclA", "ncclA", "ncclA", "ncclB", "gemm"]
    times = [(10, 50), (60, 160), (170, 220), (230, 260), (270, 280)]
    ops = [op(a, b, n, name=f"{name}_AllReduce" if "nccl" in name else name)
           for n, (name, (a, b)) in enumerate(zip(names, times, strict=True))]  # fmt: skip
    calls = [call("cudaLaunchKernel", n, n + 1, n) for n in range(5)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    change = ScaleKernels(Target("collective", ""), Range.exact(0.3))
    assert lengths_us(change.rewrite(graph)) == pytest.approx([40, 40, 40, 30, 10])
    half = ScaleKernels(Target("collective", ""), Range.exact(0.6))
    assert lengths_us(half.rewrite(graph)) == pytest.approx([40, 60, 40, 30, 10])
    assert (change.touches, ScaleKernels(Target("kernel", "x"), Range.exact(0.5)).touches) == (
        Touches.COMMUNICATION, Touches.DEVICE,
    )  # fmt: skip
    assert change.label == "scale collective: 0.3"


def begins_us(graph: Graph) -> list[float]:
    return (graph.replay().time_ns[graph.program.points.begin_of] / US).tolist()


def worked(calls: list[tuple[int, int]], **tables: list[dict[str, object]]) -> Graph:
    """Launches at these times of kernels that take 1 us, and what the host says it does."""
    host = {"rank": 0, "process": 1, "thread": 1}
    found: Any = {
        API_CALLS: [call("cudaLaunchKernel", a, b, n) for n, (a, b) in enumerate(calls)],
        DEVICE_OPS: [op(b + 5, b + 6, n) for n, (_, b) in enumerate(calls)],
    }
    if "ranges" in tables:
        found[RANGES] = [{**host, "kind": "push_pop", "depth": 0, **row} for row in tables["ranges"]]
    if "ops" in tables:
        found[HOST_OPS] = [{**host, **row} for row in tables["ops"]]
    return Graph.from_trace(made(found))


FETCHES = [{"name": "data", "start": 400 * n, "end": 400 * n + 300} for n in range(3)]


@pytest.mark.parametrize(
    ("workers", "case", "left"),
    [(None, Case.EXPECTED, 15), (None, Case.CAUTIOUS, 90), (2, Case.CAUTIOUS, 90), (1, Case.EXPECTED, 200)],
)  # fmt: skip
def test_what_is_left_of_a_fetch(workers: int | None, case: Case, left: float) -> None:
    """Fetches of 300 us every 400 us: 0.05 of each stays, cautiously 0.3; one worker hides the 100 us between them."""
    graph = worked([(400 * n + 320, 400 * n + 325) for n in range(3)], ranges=FETCHES)
    begins = begins_us(FeedLoader(Target("range", "data"), workers).rewrite(graph, case))
    assert np.diff(begins).tolist() == pytest.approx([100 + left, 100 + left])


def test_units_that_are_merged_cost_the_host_less_often() -> None:
    host = {(1, 1): Intervals.one(100 * US, 300 * US)}
    assert MergeUnits.of(host, 5e6).kept == Range(0.6, 0.2, 0.1)
    assert MergeUnits.of(host, 5e8).kept == Range(1.0, 1.0, 1.0)
    assert MergeUnits.of(host, None).kept == Range(0.625, 0.25, 0.125)
    graph = worked([(0, 5), (400, 405)])
    assert begins_us(MergeUnits.of(host, 5e6).rewrite(graph)) == pytest.approx([0, 400 - 0.8 * 200])
    assert begins_us(MergeUnits.of(host, 5e6).rewrite(graph, Case.CAUTIOUS)) == pytest.approx([0, 400 - 0.4 * 200])
    scaled = ScaleHost(Target("windows", windows=host), 0.7).rewrite(graph)
    assert begins_us(scaled) == pytest.approx([0, 400 - 0.3 * 200])


def test_a_compiler_goes_and_hopefully_its_trials() -> None:
    ops = [{"name": "compile", "start": 100, "end": 200}, {"name": "trial", "start": 220, "end": 250}]
    graph = worked([(0, 5), (230, 235), (300, 305)], ops=ops)
    change = DropCompiler(Target("op", "compile"), Target("op", "trial"))
    assert begins_us(change.rewrite(graph)) == [0, 130, 200]
    # of the 225 us before the trial's launch 125 are left, and of those the 10 in the trial are worth their share
    assert begins_us(change.rewrite(graph, Case.HOPEFUL))[2] == pytest.approx(300 - 100 - 20 - 10 * 125 / 225, abs=0.01)
    assert DropOperator(Target("op", "trial")).label == "drop op:trial"


def test_intervals_that_hold_a_time() -> None:
    held = _holding(Intervals.union_of([0, 10, 20, 30], [5, 15, 25, 35]), np.array([31, 10, 5, 25]))
    assert (held.start_ns.tolist(), held.end_ns.tolist()) == ([10, 30], [15, 35])


def test_launches_far_apart_or_with_a_wait_between_are_not_captured_together() -> None:
    """Launches of 5 us at 0, 20 and 40 are one capture: 12 + 3 x 0.6 us; the one 600 us later stays as it is."""
    graph = worked([(0, 5), (20, 25), (40, 45), (645, 650)])
    begins = begins_us(CaptureGraph().rewrite(graph))
    assert begins[3] == pytest.approx(645 - 45 + 13.8, abs=0.01)
    near = begins_us(CaptureGraph().rewrite(worked([(0, 5), (20, 25), (40, 45), (545, 550)])))
    assert near[3] < 100  # 500 us is the most that may lie between


def test_a_fused_optimizer_costs_a_fixed_part_and_one_for_each_former_launch() -> None:
    """Twenty launches 30 us apart within 600 us become 150 + 20 x 0.6 us; their kernels keep 0.35."""
    graph = worked(
        [(30 * n + 10, 30 * n + 15) for n in range(21)], ranges=[{"name": "Optimizer.step#A", "start": 0, "end": 600}]
    )
    change = FuseOptimizer.of(Selection((0, 0), {"unfused": np.arange(20)}), Target("range", "Optimizer"))
    assert begins_us(change.rewrite(graph))[20] == pytest.approx(610 - 600 + 162, abs=0.5)
    assert lengths_us(change.rewrite(graph))[0] == pytest.approx(0.35, abs=0.01)
    assert (change.label, FuseOptimizer.of(chosen()).label) == ("fuse-optimizer range:Optimizer", "fuse-optimizer")
    assert KernelFix("streams", Target("kernel", "a"), 3).label == "streams kernel:a 3"


def copy_row(start: int, end: int, correlation: int, memory: str, size: int, **more: object) -> dict[str, object]:
    kind = {
        "kind": "copy",
        "name": "copy",
        "copy_kind": "h2d",
        "src_memory": memory,
        "dst_memory": "device",
        "bytes": size,
    }
    return op(start, end, correlation, **{**kind, **more})


def test_a_copy_from_pinned_memory_takes_the_best_rate_that_is_seen() -> None:
    """Pinned copies of 2 and 4 MB in 100 us: their ninth tenth is 38,000 bytes a us, so 1.9 MB take 50 of 100 us."""
    calls = [call("cudaMemcpyAsync", 200 * n, 200 * n + 150, n) for n in range(5)]
    ops = [
        copy_row(10, 110, 0, "pinned", 2_000_000), copy_row(210, 310, 1, "pinned", 4_000_000),
        copy_row(410, 510, 2, "pageable", 1_900_000), copy_row(610, 710, 3, "pageable", 60_000),
        copy_row(810, 910, 4, "pageable", 8_000_000),
    ]  # fmt: skip
    lengths = lengths_us(PinCopies().rewrite(Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))))
    assert lengths == pytest.approx([100, 100, 50, 100, 100], abs=0.01)
    only = Graph.from_trace(made({API_CALLS: calls[2:4], DEVICE_OPS: ops[2:4]}))
    assert lengths_us(PinCopies().rewrite(only)) == [50, 100]  # half of its time, where none is pinned
    assert lengths_us(PinCopies().rewrite(only, Case.CAUTIOUS)) == [80, 100]
    assert lengths_us(PinCopies(direction="d2h").rewrite(only)) == [100, 100]
    assert (PinCopies().label, PinCopies(Target("op", "x"), "d2h").label) == ("pin-copies", "pin-copies d2h op:x")


def test_what_preceded_moved_ops_still_precedes_what_followed_them() -> None:
    before, after = np.array([-1, 0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 5, -1])
    assert _bridges([1, 2, 4], before, after).tolist() == [[0, 3], [3, 5]]
    assert _bridges([0, 5], before, after).tolist() == [[], []]


def test_a_collective_passed_over_delays_by_its_slowdown_each() -> None:
    """Kernel, two collectives of 40 and 60 us, kernel: the second kernel begins 0.2 x 100 us after the first."""
    ops = [
        op(10, 50, 0),
        op(50, 90, 1, name="ncclX_AllReduce"),
        op(90, 150, 2, name="ncclX_AllReduce"),
        op(150, 160, 3),
    ]
    calls = [call("cudaLaunchKernel", n, n + 1, n) for n in range(4)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    assert ends_us(OverlapCollectives().rewrite(graph))[3] == pytest.approx(50 + 20 + 10)
    assert ends_us(OverlapCollectives().rewrite(graph, Case.CAUTIOUS))[3] == pytest.approx(50 + 40 + 10)


@pytest.mark.parametrize(
    ("size", "case", "goes"), [(4096, Case.EXPECTED, True), (4097, Case.EXPECTED, False), (8, Case.CAUTIOUS, False)]
)
def test_a_value_that_is_only_read_goes_with_its_wait(size: int, case: Case, goes: bool) -> None:
    """A copy of up to 4,096 bytes to the host, and the operator around it, are there for nothing but the wait."""
    calls = [
        call("cudaLaunchKernel", 0, 5, 1),
        call("cudaMemcpyAsync", 20, 90, 2),
        call("cudaLaunchKernel", 120, 125, 3),
    ]
    read = copy_row(80, 85, 2, "device", size, copy_kind="d2h", dst_memory="pageable")
    item = {"rank": 0, "process": 1, "thread": 1, "name": "aten::item", "start": 15, "end": 110}
    trace = made({API_CALLS: calls, DEVICE_OPS: [op(10, 80, 1), read, op(130, 140, 3)], HOST_OPS: [item]})
    changed = RemoveSyncs().rewrite(Graph.from_trace(trace), case)
    assert (lengths_us(changed)[1] == 0) is goes
    assert RemoveSyncs().touches is Touches.HOST
