"""What each change makes of kernels, host time and copies, worked by hand with every coefficient other than zero."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.whatif.test_changes import DEVICE_OPS, US, call, ends_us, made, op

from timesink.fixes import precisions
from timesink.fixes import replays as made_of
from timesink.fixes.advised import FP32
from timesink.knowledge.assumptions import fixes, machines
from timesink.knowledge.op_class import COMMUNICATION
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICES, EVENT_WAITS, HOST_OPS, RANGES, SYNCS
from timesink.whatif import EVERYTHING, Case, Range, Selection, Target, Touches
from timesink.whatif import edit as of_edit
from timesink.whatif.changes import host as of_host
from timesink.whatif.changes import kernels as of_kernels
from timesink.whatif.changes import transfers as of_transfers
from timesink.whatif.changes.host import (
    CaptureGraph,
    DropCompiler,
    FeedLoader,
    KeepMemory,
    MergeExchanges,
    MergeUnits,
    RemoveSyncs,
    ScaleHost,
    _holding,
)
from timesink.whatif.changes.kernels import (
    EnterRegions,
    FuseOptimizer,
    ScaleKernels,
    ShortenKernels,
    UnderAutocast,
    shorten,
    together,
)
from timesink.whatif.changes.transfers import (
    DropExchanges,
    OverlapCollectives,
    PinCopies,
    _bridges,
    _last_computation_before,
)
from timesink.whatif.edit import Edit
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
    change = shorten(chosen(a=[2, 9], b=[5, 9], other=[7]), True, a=Range(0.8, 0.5, 0.4), b=Range(0.7, 0.6, 0.1))
    assert change.rows.tolist() == [2, 5, 7, 9]
    assert kept(change) == [[0.8, 0.7, 1.0, 0.7], [0.5, 0.6, 1.0, 0.5], [0.4, 0.1, 1.0, 0.1]]
    assert change.floored


def test_shares_that_kernels_keep_by_hand() -> None:
    best = chosen(best=[0.2, 0.5, 0.9], usual=[0.4, 0.6, 0.95])
    # aligned: 0.9 of the bound is reached, half of that gain is sure; not known: as other products
    aligned = made_of.align_products(chosen([], [0.2, NAN, 0.95], named=[2, 5], named_since_hopper=[9]))
    assert kept(aligned) == roughly([0.5 + 0.5 * 0.2 / 0.9, 0.8, 1.0], [0.2 / 0.9, 0.45, 1.0], [0.2, 0.3, 0.95])
    assert kept(made_of.spread_grids(best)) == roughly([0.7, 1.0, 1.0], [0.4, 1.0, 1.0], [0.2, 0.5, 0.9])
    overlapped = roughly([1 - 0.4 * 0.6, 1 - 0.4 * 0.4, 1 - 0.4 * 0.05], [0.4, 0.6, 0.95], [0.2, 0.5, 0.9])
    assert kept(made_of.overlap_streams(best)) == overlapped
    assert kept(made_of.half_the_way(best)) == roughly([1.0] * 3, [0.6, 0.75, 0.95], [0.2, 0.5, 0.9])
    assert kept(made_of.merge_tiny(best)) == roughly(
        [1 - 0.5 * 0.8, 1 - 0.5 * 0.5, 1 - 0.5 * 0.1], [1 - 0.75 * 0.8, 1 - 0.75 * 0.5, 1 - 0.75 * 0.1], [0.2, 0.5, 0.9]
    )
    reached = [0.2 / 0.7, 0.5 / 0.7, 1.0]
    assert kept(made_of.reach_bound(best)) == roughly([0.5 + 0.5 * one for one in reached], reached, [0.2, 0.5, 0.9])
    narrow = precisions.to_tf32(chosen(best=[0.2, NAN, 0.9]))
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


def test_converters_between_group_norms_take_longer_with_channels_last() -> None:
    """Kernels of 10, 10 and 30 us, one after another; the first and the last take `factor` times as long."""
    change = made_of.convert_groups(chosen(grouped=[0, 2], strided=[1]))
    assert (change.touches, change.rows.tolist()) == (Touches.BOTH, [0, 2])
    calls = [call("cudaLaunchKernel", at, at + 1, at) for at in range(3)]
    ops = [op(start, end, at) for at, (start, end) in enumerate([(5, 15), (15, 25), (25, 55)])]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    for case in Case:
        factor = fixes.LAYOUT_GROUPED.at(case)
        first = 5 + 10 * factor
        assert ends_us(change.rewrite(graph, case)) == pytest.approx([first, first + 10, first + 10 + 30 * factor])


def test_exchanges_go_and_what_they_slowed_keeps_its_usual_share() -> None:
    change = DropExchanges.of(chosen(exchange=[1]), chosen(usual=[0.4, 0.6, 0.8]))
    assert kept(change.kernels) == [[0.0], [0.0], [0.0]]
    assert change.kernels.beside is not None
    assert kept(change.kernels.beside) == roughly([0.7, 0.8, 0.9], [0.4, 0.6, 0.8], [0.4, 0.6, 0.8])


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
    change = ShortenKernels((0, 0), np.array([0, 1]), keep, floored=True)
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
    [(None, Case.EXPECTED, 15), (None, Case.CAUTIOUS, 200), (2, Case.CAUTIOUS, 90), (1, Case.EXPECTED, 200)],
)  # fmt: skip
def test_what_is_left_of_a_fetch(workers: int | None, case: Case, left: float) -> None:
    """Fetches of 300 us every 400 us: 0.05 of each stays, cautiously 0.3 and no less than with one worker, which hides
    the 100 us between them."""
    graph = worked([(400 * n + 320, 400 * n + 325) for n in range(3)], ranges=FETCHES)
    begins = begins_us(FeedLoader(Target("range", "data"), workers).rewrite(graph, case))
    assert np.diff(begins).tolist() == pytest.approx([100 + left, 100 + left])


@pytest.mark.parametrize("fetch_us", [0.0, 10.0, 40.0, 200.0, 420.0])
@pytest.mark.parametrize("case", list(Case))
def test_a_batch_of_a_worker_takes_at_least_what_it_took(fetch_us: float, case: Case) -> None:
    """As above, where that was measured: a share of 300 us, or more; maybe longer than to load it."""
    graph = worked([(400 * n + 320, 400 * n + 325) for n in range(3)], ranges=FETCHES)
    change = FeedLoader(Target("range", "data"), fetch_us=Range(2 * fetch_us, fetch_us, fetch_us / 2))
    left = max(change.fetch_us.at(case), (200, 15, 0)[case.value])
    assert np.diff(begins_us(change.rewrite(graph, case))).tolist() == pytest.approx(2 * [100 + left])


@pytest.mark.parametrize("case", list(Case))
def test_a_batch_of_a_worker_takes_longer_for_each_megabyte_that_is_copied(case: Case) -> None:
    """9 MB go to the device in three fetches, 3 MB each; what comes back, and a copy whose size is not told, are none
    of it."""
    calls = [call("cudaMemcpyAsync", 400 * n + 320, 400 * n + 325, n) for n in range(3)]
    calls += [call("cudaMemcpyAsync", 330, 335, 3), call("cudaMemcpyAsync", 340, 345, 4)]
    sizes = [("h2d", 2_000_000), ("h2d", 3_000_000), ("h2d", 4_000_000), ("d2h", 50_000_000), ("h2d", None)]
    ops = [op(1_500 + n, 1_501 + n, n, kind="copy", copy_kind=kind, bytes=size) for n, (kind, size) in enumerate(sizes)]
    host = {"rank": 0, "process": 1, "thread": 1, "kind": "push_pop", "depth": 0}
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops, RANGES: [{**host, **row} for row in FETCHES]}))
    fetch_us, megabyte_us = Range(20.0, 10.0, 5.0), Range(80.0, 40.0, 20.0)
    change = FeedLoader(Target("range", "data"), 3, fetch_us=fetch_us, megabyte_us=megabyte_us)
    begins = begins_us(change.rewrite(graph, case))
    left = fetch_us.at(case) + 3 * megabyte_us.at(case)
    assert change._taken_ns(3, graph, case) == pytest.approx(left * US, rel=1e-12)
    assert begins[-1] - begins[-2] == pytest.approx(100 + left)


def test_a_loader_that_fetches_nothing_has_nothing_to_feed() -> None:
    graph = worked([(0, 5), (400, 405)])
    assert begins_us(FeedLoader(Target("range", "data")).rewrite(graph)) == [0, 400]


@pytest.mark.parametrize("case", list(Case))
def test_host_time_is_scaled_by_the_factor_of_the_case(case: Case) -> None:
    host, factor = {(1, 1): Intervals.one(100 * US, 300 * US)}, Range(0.9, 0.7, 0.2)
    begins = begins_us(ScaleHost(Target("windows", windows=host), factor).rewrite(worked([(0, 5), (400, 405)]), case))
    assert begins == pytest.approx([0, 400 - (1 - factor.at(case)) * 200])


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
    ("blocks", "multiprocessors", "first", "case", "kept"),
    [
        (132, 132, 0, Case.EXPECTED, 70), (120, 132, 0, Case.EXPECTED, 70), (132, 132, 2, Case.EXPECTED, 68),
        (132, 132, 0, Case.CAUTIOUS, 70), (132, 132, 0, Case.HOPEFUL, 10), (64, 132, 0, Case.EXPECTED, 20),
        (264, 132, 0, Case.EXPECTED, 20), (132, None, 0, Case.EXPECTED, 20), (132, 132, 30, Case.EXPECTED, 40),
    ],
)  # fmt: skip
def test_an_exchange_beside_a_product_on_every_multiprocessor_is_not_hidden(
    blocks: int, multiprocessors: int | None, first: int, case: Case, kept: int
) -> None:
    """Exchange, perhaps a kernel of `first` us, a product of 100 us, one of 30 us, an exchange of 100 us, a kernel."""
    grid = {"grid_x": 2, "grid_y": blocks // 4, "grid_z": 2}
    at = [begin + first for begin in (60, 160, 170, 200, 300, 310)]
    ops = [
        op(0, 50, 0, name="ncclX_AllGather"), op(at[0], at[1], 2, **grid), op(at[2], at[3], 3),
        op(at[3], at[4], 4, name="ncclX_AllGather"), op(at[4], at[5], 5),
    ]  # fmt: skip
    ops += [op(55, 55 + first, 1)] if first else []
    calls = [call("cudaLaunchKernel", n - 10, n - 9, n) for n in range(6) if first or n != 1]
    device = {"rank": 0, "device": 0, "name": "", "sm_count": multiprocessors}
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops, DEVICES: [device]}))
    changed = OverlapCollectives().rewrite(graph, case)
    ends = ends_us(changed)
    assert ends[-1] - 10 - ends[-3] == pytest.approx(kept)


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


@pytest.mark.parametrize(
    ("blocking", "target", "goes"),
    [
        ("cudaStreamSynchronize", EVERYTHING, True), ("cudaFree", EVERYTHING, False), ("hipFree", EVERYTHING, False),
        ("cudaFreeHost", EVERYTHING, False), ("cudaFree", Target("call", "cudaFree"), True),
    ],
)  # fmt: skip
def test_calls_that_free_memory_go_on_waiting_unless_they_are_named(blocking: str, target: Target, goes: bool) -> None:
    """The second kernel is launched behind the call that waits for the first, and ends at 140 us."""
    calls = [call("cudaLaunchKernel", 0, 5, 1), call(blocking, 10, 105, 2), call("cudaLaunchKernel", 120, 125, 3)]
    trace = made({API_CALLS: calls, DEVICE_OPS: [op(10, 100, 1), op(130, 140, 3)]})
    assert (ends_us(RemoveSyncs(target).rewrite(Graph.from_trace(trace)))[1] < 139) is goes


Stroke = tuple[str, tuple[Any, ...], dict[str, Any]]


def strokes_of(module: Any, patch: pytest.MonkeyPatch, only: str) -> list[Stroke]:
    """What changes of this module ask of an edit from now on, by the one kind of stroke."""
    found: list[Stroke] = []

    class Noted(Edit):
        def __getattribute__(self, name: str) -> Any:
            stroke = super().__getattribute__(name)
            if name != only:
                return stroke
            return lambda *given, **more: (found.append((name, given, more)), stroke(*given, **more))[1]

    for place in (module, of_edit):
        patch.setattr(place, "Edit", Noted)
    return found


def test_what_changes_keep_save_and_are_called_by_hand() -> None:
    eager = chosen(other=[2, 7], longest=[5], alone=[9])
    gone, shorter = made_of.compiled(eager)
    assert (kept(gone), kept(shorter)) == ([[0.3] * 2, [0.0] * 2, [0.0] * 2], [[1.0, 1.0], [0.8, 1.0], [0.6, 1.0]])
    saved = [[change.launches_saved.at(case) for case in Case] for change in (gone, shorter)]
    assert saved == [[0.2, 0.5, 0.9], [-0.1, 0.0, 0.3]]
    assert [one.launches_saved.hopeful for one in made_of.compiled(eager, launches=False)] == [0.0, 0.0]
    wide = FP32.change(chosen(fp64=[3]))
    assert (kept(wide), wide.floored) == ([[0.7], [0.48], [0.3]], True)
    roles = chosen(tf32=[1], fp32=[2], misaligned=[3], streaming=[4])
    assert kept(precisions.autocast(roles).kernels) == [
        [0.9, 0.3, 1.0, 1.0],
        [0.6, 0.17, 1.0, 0.9],
        [0.35, 0.05, 0.5, 0.4],
    ]
    assert kept(precisions.autocast(roles, True).kernels)[1] == [0.45, 0.1, 1.0, 0.85]
    assert precisions.autocast(roles).kernels.floored
    assert not ShortenKernels((0, 0), wide.rows, wide.keep).floored
    work = made_of.drop_work(chosen(any=[1, 2]))
    assert (kept(work), work.launches_saved) == ([[0.0, 0.0]] * 3, Range(0.5, 1.0, 1.0))


def test_changes_together_multiply_what_is_kept_also_beside_them() -> None:
    def change(share: float, floored: bool, *rows: int, beside: ShortenKernels | None = None) -> ShortenKernels:
        keep = tuple(np.full(len(rows), share) for _ in Case)
        return ShortenKernels((0, 3), np.array(rows), keep, floored, beside=beside)

    beside = change(0.5, False, 8)
    both = together([change(0.5, True, 1, 4, beside=beside), change(0.6, False, 4, 6)])
    assert (both.rows.tolist(), kept(both)) == ([1, 4, 6], [[0.5, 0.3, 0.6]] * 3)
    assert (both.device, both.floored) == ((0, 3), True)
    assert both.beside is not None
    assert both.beside.rows.tolist() == [8]
    alone = together([change(0.5, False, 1)])
    assert (alone.beside, alone.floored) == (None, False)


def test_time_that_goes_is_a_whole_number_of_ns_and_none_below_the_floor() -> None:
    """A kernel of 10 us keeps a third, 3,333.3 ns, so 6,666 go; one of 3 us keeps no less than the floor of 1 us."""
    trace = made({DEVICE_OPS: [op(10, 20, 1), op(60, 63, 2), *(op(100 + n, 101 + n, 3 + n) for n in range(5))]})
    keep = tuple(np.array([1 / 3, 0.001]) for _ in Case)
    change = ShortenKernels((0, 0), np.array([0, 1]), keep, floored=True)
    saved = change.saved(trace, Case.EXPECTED)
    assert (saved.start_ns.tolist(), saved.end_ns.tolist()) == ([13_334, 61_000], [20_000, 63_000])
    every = ShortenKernels((0, 0), np.arange(7), tuple(np.zeros(7) for _ in Case))
    assert every.longest(trace) == (0, 1, 2, 3, 4)


def test_what_of_a_collective_is_transfer_at_most_by_hand() -> None:
    times = [(10, 50, "A"), (60, 160, "A"), (170, 220, "A"), (230, 260, "B"), (270, 270, "B"), (280, 290, "C")]
    graph = Graph.from_trace(made({DEVICE_OPS: [op(a, b, n, name=name) for n, (a, b, name) in enumerate(times)]}))
    shares = of_kernels._transfer_share(graph, np.arange(6) < 5)
    assert shares.tolist() == pytest.approx([1.0, 0.4, 0.8, 1 / 30_000, 1.0, 0.0], abs=1e-9)
    assert shares[3] * 30_000 == pytest.approx(1.0)


def test_what_is_captured_of_launches_around_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches at 0, 20 and 645; a wait from 6 to 18 between the first two, and a call in the 620 us before the last.

    An op that nothing is known to have launched is in no capture.
    """
    calls = [
        call("cudaLaunchKernel", 0, 5, 1), call("cudaStreamSynchronize", 6, 18, 9), call("cudaLaunchKernel", 20, 25, 2),
        call("cudaEventRecord", 300, 305, 8), call("cudaLaunchKernel", 645, 650, 3),
    ]  # fmt: skip
    ops = [op(6, 7, 1), op(30, 31, 2), op(655, 656, 3), op(660, 661, 77)]
    wait = {"rank": 0, "process": 1, "device": 0, "stream": 7, "kind": "stream", "start": 6, "end": 18,
            "correlation": 9}  # fmt: skip
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops, SYNCS: [wait]}))
    replaced = strokes_of(of_host, monkeypatch, "replace_launches")
    CaptureGraph().rewrite(graph)
    (_, (windows, launching, fixed, each), more) = replaced[0]
    (part,) = windows.values()
    assert (part.start_ns // US).tolist() == [0, 18]
    assert (part.end_ns // US).tolist() == [6, 25]
    assert (launching.tolist(), fixed, each, more) == ([True, False, True, False, True], 12.0, 0.6, {"least": 2})
    closed = strokes_of(of_host, monkeypatch, "close_gaps")
    CaptureGraph().rewrite(graph)
    assert closed[0][1][0].tolist() == [True, True, False, False]


def test_of_operators_that_read_a_value_those_with_a_wait_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first holds a copy that is waited for; the second a launch, and none of the other thread holds a wait."""
    calls = [
        call("cudaLaunchKernel", 0, 5, 1), call("cudaMemcpyAsync", 20, 30, 2),
        call("cudaStreamSynchronize", 35, 90, 9), call("cudaLaunchKernel", 120, 125, 3),
        call("cudaLaunchKernel", 40, 45, 4, thread=2),
    ]  # fmt: skip
    read = copy_row(80, 85, 2, "device", 8, copy_kind="d2h", dst_memory="pageable")
    item = {"rank": 0, "process": 1, "name": "aten::item"}
    host = [{**item, "thread": 1, "start": 15, "end": 110}, {**item, "thread": 1, "start": 115, "end": 130},
            {**item, "thread": 2, "start": 30, "end": 50}]  # fmt: skip
    wait = {"rank": 0, "process": 1, "device": 0, "stream": 7, "kind": "stream", "start": 35, "end": 90,
            "correlation": 9}  # fmt: skip
    ops = [op(10, 80, 1), read, op(130, 140, 3), op(200, 210, 4)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops, HOST_OPS: host, SYNCS: [wait]}))
    saved = strokes_of(of_host, monkeypatch, "save_host")
    RemoveSyncs().rewrite(graph)
    shares = {given[1] for _, given, _ in saved}
    parts = [part for _, (windows, _), _ in saved for part in windows.values() if len(part)]
    assert shares == {1.0}
    assert [(part.start_ns // US).tolist() for part in parts] == [[15, 30, 45]]  # what launches need is kept
    assert [(part.end_ns // US).tolist() for part in parts] == [[20, 40, 110]]
    awaited = Graph.from_trace(made({API_CALLS: calls[:3], DEVICE_OPS: [ops[0], op(81, 85, 2)], SYNCS: [wait]}))
    assert not of_host._values_read(awaited, np.ones(3, bool)).any()  # a kernel is no copy


def test_which_copies_are_pageable_and_by_how_much_their_time_changes() -> None:
    """Of 2 MiB in 100 us and one byte more than is rated in 50 us, pinned; a tenth less than the better rate counts."""
    rated, staged = 1 << 20, 1 << 16
    back: dict[str, object] = {"copy_kind": "d2h", "src_memory": "device"}
    ops = [
        copy_row(10, 110, 0, "pinned", 2 * rated), copy_row(210, 260, 1, "pinned", 2 * rated),
        copy_row(300, 301, 2, "pinned", rated), copy_row(410, 610, 3, "pageable", 2 * rated),
        copy_row(710, 810, 4, "pageable", staged), copy_row(810, 910, 5, "pageable", 2 * rated, copy_kind=None),
        copy_row(910, 990, 6, "x", 2 * rated, src_memory=None),
        copy_row(1000, 1080, 7, "x", rated, **back, dst_memory="pageable"),
    ]  # fmt: skip
    graph = Graph.from_trace(made({DEVICE_OPS: ops}))
    pageable, factor = PinCopies()._copies(graph, Case.EXPECTED)
    assert np.flatnonzero(pageable).tolist() == [3, 4]
    rate = 2 * rated * (0.9 / 50 + 0.1 / 100)  # bytes a us, at nine tenths of the way between two rates
    assert factor[[3, 4]].tolist() == pytest.approx([2 * rated / rate / 200, 1.0])
    pageable, factor = PinCopies(direction="d2h")._copies(graph, Case.EXPECTED)
    assert (np.flatnonzero(pageable).tolist(), factor[7]) == ([7], 0.5)


def test_calls_of_moved_copies_take_what_a_launch_usually_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of 5, 7 and 9 us: calls of 140 us keep 7, one of 4 stays. The copies follow one another at once.

    Where there is no other launch they take no time at all.
    """
    calls = [
        call("cudaLaunchKernel", 0, 5, 1), call("cudaMemcpyAsync", 10, 150, 2), call("cudaMemcpyAsync", 160, 164, 3),
        call("cudaLaunchKernel", 170, 177, 4), call("cudaLaunchKernel", 180, 189, 5),
    ]  # fmt: skip
    copies = [copy_row(150, 160, 2, "pageable", 10**6), copy_row(165, 175, 3, "pageable", 10**6)]
    ops = [op(10, 140, 1), *copies, op(180, 190, 4), op(191, 200, 5)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    saved = strokes_of(of_transfers, monkeypatch, "save_calls")
    PinCopies().rewrite(graph)
    (_, (own, start, end, share), _) = saved[0]
    assert (own.tolist(), (start // US).tolist(), (end // US).tolist()) == ([1, 2], [10, 160], [150, 164])
    assert share.tolist() == pytest.approx([1 - 7 / 140, 0.0])
    added = strokes_of(of_transfers, monkeypatch, "add")
    PinCopies().rewrite(graph)
    program = graph.program
    nodes = [(int(src[0]), int(dst[0])) for _, (_, src, dst, _), _ in added]
    assert nodes == [(program.end_node(0), program.start_node(3)), (program.end_node(1), program.start_node(2))]
    assert [np.ravel(weight).tolist() for _, (*_, weight), _ in added] == [[program.costs.gap_ns], [0]]
    only = made({API_CALLS: [calls[1], call("cudaMemcpyAsync", 160, 160, 3)], DEVICE_OPS: copies})
    saved = strokes_of(of_transfers, monkeypatch, "save_calls")
    PinCopies().rewrite(Graph.from_trace(only))
    assert saved[-1][1][3].tolist() == [1.0, 1.0]


def test_a_gap_that_was_seen_between_what_stays_is_not_made_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels 300 ns apart but for a copy of no length: they stay so, where others show gaps of 1 us."""
    calls = [call("cudaLaunchKernel", 0, 5, 1), call("cudaMemcpyAsync", 6, 7, 2), call("cudaLaunchKernel", 8, 9, 3)]
    ops = [op(10, 50, 1), copy_row(50, 50, 2, "pageable", 8), op(50, 60, 3)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    added = strokes_of(of_transfers, monkeypatch, "add")
    PinCopies().rewrite(graph)
    assert np.ravel(added[0][1][3]).tolist() == [0]


def test_the_last_of_all_ops_may_follow_moved_ones() -> None:
    before, after = np.array([2, -1, 1]), np.array([-1, 2, 0])
    assert _bridges([2], before, after).tolist() == [[1], [0]]


def blocks_of(classes: list[int], times: list[tuple[int, int]]) -> Any:
    start, end = np.array(times).T
    blocks = SimpleNamespace(op=np.arange(len(classes)), start_ns=start, end_ns=end)
    return SimpleNamespace(program=SimpleNamespace(ops=SimpleNamespace(op_class=np.array(classes)), blocks=blocks))


def test_the_last_computation_that_was_over_by_hand() -> None:
    """Computation from 10 to 50, 12 to 30 and 60 to 80; collectives from 50, 29, 85 and 100."""
    times = [(10, 50), (12, 30), (50, 55), (29, 90), (60, 80), (85, 88), (100, 101)]
    graph = blocks_of([0, 0, COMMUNICATION, COMMUNICATION, 0, COMMUNICATION, COMMUNICATION], times)
    assert _last_computation_before(graph, np.array([2, 3, 5, 6])).tolist() == [0, -1, 4, 4]
    none = blocks_of([COMMUNICATION, COMMUNICATION], times[:2])
    assert _last_computation_before(none, np.array([0, 1])).tolist() == [-1, -1]


def test_what_followed_collectives_on_their_stream_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collective, kernel, two collectives, kernel; another stream; and a collective at the end of the first."""
    ops = [
        op(10, 20, 0, name="ncclX_AllReduce"), op(20, 50, 1), op(50, 90, 2, name="ncclX_AllReduce"),
        op(90, 150, 3, name="ncclX_AllReduce"), op(150, 160, 4), op(155, 156, 5, stream=20),
        op(160, 170, 6, name="ncclX_AllReduce"),
    ]  # fmt: skip
    calls = [call("cudaLaunchKernel", n, n + 1, n) for n in range(7)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    disabled, added = (strokes_of(of_transfers, monkeypatch, only) for only in ("disable", "add"))
    OverlapCollectives().rewrite(graph)
    (_, (_, src, dst, delay), _) = added[0]
    assert (src.tolist(), dst.tolist()) == ([graph.program.end_node(1)], [graph.program.start_node(4)])
    assert delay.tolist() == [20 * US]  # a fifth of 40 and 60 us
    disabled = strokes_of(of_transfers, monkeypatch, "disable")
    OverlapCollectives().rewrite(graph)
    freed = [graph.program.start_node(1), graph.program.start_node(4)]
    assert np.flatnonzero(disabled[0][2]["into"]).tolist() == sorted(freed)


@pytest.mark.parametrize("first", [True, False])
def test_what_waited_for_a_collective_goes_on_after_the_computation_before_it(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [
        call("cudaLaunchKernel", 0, 4, 1), call("cudaEventRecord", 5, 6, 2), call("cudaStreamWaitEvent", 7, 8, 3),
        call("cudaLaunchKernel", 9, 12, 4), call("cudaLaunchKernel", -9, -8, 7),
    ]  # fmt: skip
    wait = {"rank": 0, "process": 1, "device": 0, "stream": 20, "waited_stream": 7, "record_correlation": 2,
            "correlation": 3, "start": 7}  # fmt: skip
    ops = [op(5, 105, 1, name="ncclX_AllReduce"), op(106, 150, 4, stream=20)]
    if first:
        ops.append(op(-5, 3, 7, stream=30))
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops, EVENT_WAITS: [wait]}))
    added = strokes_of(of_transfers, monkeypatch, "add")
    OverlapCollectives().rewrite(graph)
    (_, (_, src, dst, delay), _) = added[1]
    program = graph.program
    wanted = ([program.end_node(0)], [program.start_node(2)], [20 * US]) if first else ([], [], [])
    assert (src.tolist(), dst.tolist(), delay.tolist()) == wanted


def test_launches_that_go_with_attention_and_with_calls_in_a_row() -> None:
    attention = chosen(product=[1], between=[2])
    assert made_of.fuse_attention(attention).launches_saved == Range(0.0, 0.0, 0.0)
    saved = Range(*(fixes.ATTENTION_LAUNCHES.at(case) for case in Case))
    assert made_of.fuse_attention(attention, launches=True).launches_saved == fixes.ATTENTION_LAUNCHES
    assert saved.hopeful > 0
    calls = Selection((0, 0), {"again": np.array([2, 5])}, usual=np.array([0.5, 0.9]), best=np.array([0.2, 0.9]))
    row = made_of.batch_calls(calls)
    assert (kept(row), row.launches_saved) == ([[0.75, 0.95], [0.5, 0.9], [0.2, 0.9]], Range(0.5, 1.0, 1.0))
    assert made_of.keep_layout(chosen(converter=[1])).launches_saved == Range(0.0, 0.0, 0.0)
    assert not made_of.keep_layout(chosen(grouped=[1])).rows.size
    saved = made_of.keep_layout(chosen(converter=[1]), launches=True).launches_saved
    assert (saved.cautious, saved.expected, saved.hopeful) == pytest.approx((0.4, 0.7, 0.95))


def test_casts_beside_each_product() -> None:
    """Of a model that nobody trains: 18 for eight products; six for three of training; one less compiled; of training
    convolutions one and a half, and three more where gradients are checked."""
    roles = chosen(tf32=[1], fp32=[2], streaming=[4])
    assert precisions.autocast(roles).products.tolist() == [1, 2]
    untrained = chosen(tf32=[1], fp32=[2], streaming=[4], inferred=[1, 2])
    eager, compiled = (
        [precisions.autocast(it, made).casts.tolist() for it in (untrained, roles)] for made in (False, True)
    )
    assert (eager, compiled) == ([[2.25, 2.25], [2, 2]], [[1.25, 1.25], [1, 1]])
    assert precisions.autocast(roles, checked=True).casts.tolist() == [5, 5]
    assert precisions.autocast(untrained, checked=True).casts.tolist() == [2.25, 2.25]
    assert precisions.autocast(chosen(tf32=[1], fp32=[2], convolution=[2])).casts.tolist() == [2, 1.5]
    assert precisions.autocast(chosen(emulated=[1], fp16=[2])).casts.tolist() == [0, 2]  # in 16 bits before
    assert [fixes.AUTOCAST_CASTS.at(case) for case in Case] == [1.1, 0.8, 0.4]


def test_compiled_layers_are_entered_at_the_price_of_launches() -> None:
    """Where nobody trains a layer takes four launches more, with its gradient twelve: of launches of 5 and 15 us, mean
    10, 40 and 120 us, and cautiously 100 and 280."""
    calls = [call("cudaLaunchKernel", 1_000, 1_005, 0), call("cudaLaunchKernel", 1_010, 1_020, 1)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: [op(1_006, 1_007, 0), op(1_021, 1_022, 1)]}))
    before = graph.network.edges.weight_ns.sum()
    more = [
        EnterRegions((0, 0), np.array([1]), trains).rewrite(graph, case).network.edges.weight_ns.sum() - before
        for trains in (False, True)
        for case in (Case.EXPECTED, Case.CAUTIOUS)
    ]
    assert more == pytest.approx([40_000, 100_000, 120_000, 280_000], rel=0.01)
    measured = EnterRegions((0, 0), np.array([1]), True, Range(90.0, 60.0, 30.0))
    times = [measured.rewrite(graph, case).network.edges.weight_ns.sum() - before for case in Case]
    assert times == pytest.approx([90_000, 60_000, 30_000], rel=0.01)


def test_of_exchanges_in_a_row_one_stays_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four a quarter; cautiously half of the CPU's gain, and each byte takes its time on the GPU."""
    host = {(1, 1): Intervals.one(0, 90 * US)}
    change = MergeExchanges.rows(host, 4.0)
    assert change.kept == Range(0.625, 0.25, 0.25)
    assert MergeExchanges.rows(host, 0.5).kept == Range(1.0, 1.0, 1.0)
    names = ["ncclX_AllGather", "k", "ncclX_AllGather", "ncclX_AllGather"]
    calls = [call("cudaLaunchKernel", 10 * n + (60 if n == 3 else 0), 10 * n + 1 + (60 if n == 3 else 0), n)
             for n in range(4)]  # fmt: skip
    ops = [op(100 * n + 100, 100 * n + 140, n, name=name) for n, name in enumerate(names)]
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: ops}))
    scaled = strokes_of(of_host, monkeypatch, "scale_ops")
    change.rewrite(graph, Case.CAUTIOUS)
    assert scaled == []
    change.rewrite(graph, Case.HOPEFUL)
    assert [(ops.tolist(), share) for _, (ops, share), _ in scaled] == [([True, False, True, False], 0.25)]
    closed = strokes_of(of_host, monkeypatch, "close_gaps")
    change.rewrite(graph)
    assert [(ops.tolist(), gap) for _, (ops, gap), _ in closed] == [([True, True, True, False], 0)]


def test_calls_that_take_memory_in_the_target_do_not_happen_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 10 to 51 us of thread 1: one call inside, one that reaches in by 1 ns, one that ends as it begins, a launch;
    on thread 2 nothing."""
    calls = [
        call("cudaMalloc", 5, 10, 1), call("cudaLaunchKernel", 12, 14, 2), call("cudaMalloc", 20, 30, 3),
        call("cudaFree", 51, 60, 4), call("cudaMalloc", 21, 29, 5, thread=2),
    ]  # fmt: skip
    graph = Graph.from_trace(made({API_CALLS: calls, DEVICE_OPS: [op(40, 50, 2)]}))
    target = Target("windows", windows={(1, 1): Intervals.one(10 * US, 51 * US + 1)})
    dropped = strokes_of(of_host, monkeypatch, "drop_waits")
    KeepMemory(target).rewrite(graph)
    ((_, (gone,), _),) = dropped
    assert sorted((graph.program.calls.start_ns[gone] // US).tolist()) == [20, 51]
    saved = strokes_of(of_host, monkeypatch, "save_host")
    KeepMemory(target).rewrite(graph)
    assert [share for _, (_, share), _ in saved] == [1.0]


def test_what_goes_what_is_shortened_and_whose_launches_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = tuple(np.array([0.0, 0.2]) for _ in Case)
    change = ShortenKernels((0, 0), np.array([0, 1]), keep, launches_saved=Range(0.1, 0.4, 0.8))
    dropped = strokes_of(of_kernels, monkeypatch, "drop_ops")
    change.rewrite(two_kernels())
    assert [ops.tolist() for _, (ops,), _ in dropped] == [[True, False]]
    scaled = strokes_of(of_kernels, monkeypatch, "scale_ops")
    change.rewrite(two_kernels())
    (_, (ops, share), _) = scaled[0]
    assert (ops.tolist(), share[1]) == ([False, True], 0.2)
    launches = strokes_of(of_kernels, monkeypatch, "save_launches")
    change.rewrite(two_kernels())
    ShortenKernels((0, 0), np.array([0, 1]), keep, False, Range.exact(0.5), np.array([1])).rewrite(two_kernels())
    assert [(ops.tolist(), share, more) for _, (ops, share), more in launches] == [
        ([True, True], 0.4, {"since_launch": False}), ([False, True], 0.5, {"since_launch": True}),
    ]  # fmt: skip


def test_a_kernel_shorter_than_the_floor_keeps_its_time() -> None:
    keep = tuple(np.array([0.3]) for _ in Case)
    change = ShortenKernels((0, 0), np.array([0]), keep, floored=True)
    assert change._kept(Case.EXPECTED, np.array([0]), np.array([500])).tolist() == [1.0]


def test_under_autocast_each_product_pays_for_its_casts(monkeypatch: pytest.MonkeyPatch) -> None:
    slowed = strokes_of(of_kernels, monkeypatch, "slow_launches")
    none = shorten(chosen(a=[0, 1]), a=Range.exact(0.9))
    change = UnderAutocast(none, np.array([1]), np.array([2.5]))
    change.rewrite(two_kernels())
    ((_, (own, times, alike), _),) = slowed
    assert (own.tolist(), times.tolist(), alike.tolist()) == (
        [False, True], [0.0, 2.5 * fixes.AUTOCAST_CASTS.at(Case.EXPECTED)], [True, False],
    )  # fmt: skip


def test_measured_casts_take_the_host_what_they_took_by_the_kind_of_product(monkeypatch: pytest.MonkeyPatch) -> None:
    delayed = strokes_of(of_kernels, monkeypatch, "delay_launches")
    none, both, casts = shorten(chosen(a=[0, 1]), a=Range.exact(0.9)), np.array([0, 1]), np.array([1.5, 2.0])
    costs = Range(9.0, 6.0, 3.0), Range(4.0, 2.0, 1.0)
    for case in Case:
        UnderAutocast(none, both, casts, np.array([True, False]), *costs).rewrite(two_kernels(), case)
    assert [times.tolist() for _, (_, times), _ in delayed] == [[6.0, 18.0], [3.0, 12.0], [1.5, 6.0]]
    slowed = strokes_of(of_kernels, monkeypatch, "slow_launches")
    UnderAutocast(none, both, casts, None, *costs).rewrite(two_kernels())
    for only in ({"cast_us": costs[0]}, {"convolved_us": costs[1]}):
        UnderAutocast(none, both, casts, np.array([True, False]), **only).rewrite(two_kernels())
    assert (len(slowed), len(delayed)) == (3, 3)


def test_kernels_of_a_fused_optimizer_follow_each_other_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = strokes_of(of_kernels, monkeypatch, "close_gaps")
    FuseOptimizer.of(chosen(unfused=[1])).rewrite(two_kernels())
    assert [(ops.tolist(), gap) for _, (ops, gap), _ in closed] == [([False, True], 0)]


def test_what_of_rows_of_exchanges_is_not_hidden_by_hand() -> None:
    """On device 0 a row of 40 us, a product of 100 on all multiprocessors beside 10 of others, a row of 50 and of 0 us;
    on device 1 nothing computes. Nothing is known before the first row, which is hidden."""
    grid = {"grid_x": 132, "grid_y": 1, "grid_z": 1}
    times = [(0, 40, "ncclX"), (40, 140, "gemm"), (140, 150, "k"), (150, 200, "ncclX"), (200, 200, "ncclX")]
    ops = [
        op(a, b, n, name=f"{name}_AllGather" if name == "ncclX" else name, **(grid if name == "gemm" else {}))
        for n, (a, b, name) in enumerate(times)
    ] + [op(20, 60, 9, name="ncclX_AllGather", device=1)]  # fmt: skip
    devices = [{"rank": 0, "device": n, "name": "", "sm_count": 132} for n in range(2)]
    graph = Graph.from_trace(made({DEVICE_OPS: ops, DEVICES: devices}))
    order = np.argsort(graph.program.ops.start_ns, kind="stable")
    left = of_transfers._not_hidden_ns(graph, graph.program.ops.op_class == COMMUNICATION)
    assert left[order].tolist() == [0, 0, 0, 0, 40 * US, 0]
