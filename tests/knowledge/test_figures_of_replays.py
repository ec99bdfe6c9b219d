"""Assumed figures of replays and prices, each met from both sides, as test_figures_that_decide.py does for the rest."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from tests.whatif.programs import Host, Launch, Step, simulate

from timesink.fixes import precisions
from timesink.fixes import replays as kernels
from timesink.knowledge.calls import call_kinds
from timesink.model.intervals import Intervals
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, FRAMES, HOST_OPS, RANGES
from timesink.whatif import Case, Selection, device, unprofiled, waits
from timesink.whatif import host as threads
from timesink.whatif.changes.kernels import FuseOptimizer
from timesink.whatif.graph import Graph
from timesink.whatif.pricing import Pricer


class Calls(SimpleNamespace):
    """Calls as costs are measured from."""

    def __len__(self) -> int:
        return len(self.start_ns)


def test_in_bf16_fp32_products_keep_an_eighth_and_a_merged_kernel_three_quarters_of_what_it_can_lose() -> None:
    one = np.arange(1)
    assert [float(keep[0]) for keep in precisions.to_bf16(Selection((0, 0), {"fp32": one})).keep] == [0.3, 0.12, 0.05]
    merged = kernels.merge_tiny(Selection((0, 0), {"tiny": one}, best=np.array([0.4])))
    assert [float(keep[0]) for keep in merged.keep] == pytest.approx([0.7, 0.55, 0.4])


@pytest.mark.parametrize(
    ("role", "compiled", "kept"),
    [
        ("misaligned", False, [1.0, 1.0, 0.5]),
        ("tf32", False, [0.9, 0.6, 0.35]),
        ("fp32", False, [0.3, 0.17, 0.05]),
        ("streaming", False, [1.0, 0.9, 0.4]),
        ("fp16", False, [0.5, 0.4, 0.15]),
        ("emulated", False, [0.5, 0.2, 0.1]),
        ("tf32", True, [0.75, 0.45, 0.35]),
        ("fp32", True, [0.2, 0.1, 0.05]),
        ("streaming", True, [1.0, 0.85, 0.5]),
    ],
)
def test_what_kernels_keep_under_autocast(role: str, compiled: bool, kept: list[float]) -> None:
    change = precisions.autocast(Selection((0, 0), {role: np.arange(1)}), compiled)
    assert [float(keep[0]) for keep in change.kernels.keep] == kept


def test_of_a_compiled_run_most_of_the_longest_kernel_stays_and_half_of_the_launches_of_others_goes() -> None:
    roles = {"longest": np.array([1]), "other": np.array([0]), "alone": np.array([2])}
    gone, kept = kernels.compiled(Selection((0, 0), roles))
    assert [float(keep[0]) for keep in gone.keep] == [0.3, 0.0, 0.0]
    assert [keep.tolist() for keep in kept.keep] == [[1.0, 1.0], [0.8, 1.0], [0.6, 1.0]]
    assert [kept.launches_saved.at(case) for case in Case] == [-0.1, 0.0, 0.3]
    assert [gone.launches_saved.at(case) for case in Case] == [0.2, 0.5, 0.9]


def test_in_fp32_fused_attention_leaves_its_products_and_of_its_launches_three_tenths() -> None:
    roles = {"product_wide": np.array([0]), "between": np.array([1])}
    change = kernels.fuse_attention(Selection((0, 0), roles), launches=True)
    assert [keep.tolist() for keep in change.keep] == [[1.0, 0.2], [0.95, 0.0], [0.4, 0.0]]
    assert [change.launches_saved.at(case) for case in Case] == [0.3, 0.7, 0.9]


def test_updates_over_lists_take_nine_tenths_of_the_kernel_time() -> None:
    change = FuseOptimizer.over_lists(Selection((0, 0), {"unfused": np.arange(1)}))
    assert [float(keep[0]) for keep in change.kernels.keep] == [1.0, 0.9, 0.6]


@pytest.mark.parametrize(("slowest", "late"), [(30_000, 20_000), (18_000, 16_830)])
def test_a_late_launch_takes_four_times_the_usual_at_most(slowest: int, late: int) -> None:
    launch = np.arange(10, dtype=np.int64) * 100_000
    start = launch + np.array([5_000] * 9 + [slowest])
    each = np.arange(10)  # every launch a block of its own: no replay of a graph
    ops = SimpleNamespace(
        stream=np.zeros(10, np.int32), op_class=np.zeros(10), call=each, block=each, start_ns=start, end_ns=start + 1
    )
    assert int(device.measure_costs(ops, Calls(start_ns=launch)).latency_of_group[2][0]) == late  # type: ignore[arg-type]


def works_for(work: list[tuple[int, int]], other: list[tuple[int, int]], proven: bool) -> bool:
    """Whether a thread that did `work` acts in the silences of one that did `other`."""
    activity = dict(enumerate(Intervals.union_of(*zip(*spans, strict=True)) for spans in (work, other)))
    return threads._best_owner(0, [1], activity, proven) is not None


@pytest.mark.parametrize(("inside", "known"), [(985, True), (975, False)])
def test_a_worker_acts_in_silences_but_for_a_fiftieth_of_its_time(inside: int, known: bool) -> None:
    assert works_for([(10, 10 + inside), (1_995, 1_995 + 1_000 - inside)], [(0, 5), (2_000, 3_000)], True) is known


@pytest.mark.parametrize(("within", "known"), [(26, True), (24, False)])
def test_of_a_worker_a_quarter_is_seen_within_all_that_its_owner_did(within: int, known: bool) -> None:
    assert works_for([(0, 100 - within), (210, 210 + within)], [(200, 205), (300, 305)], True) is known


@pytest.mark.parametrize(("bursts", "known"), [(3, True), (2, False)])
def test_three_bursts_in_silences_are_no_coincidence(bursts: int, known: bool) -> None:
    other = [(100 * at, 100 * at + 40) for at in range(5)]
    assert works_for([(100 * at + 50, 100 * at + 90) for at in range(bursts)], other, False) is known


@pytest.mark.parametrize(("late_ns", "waited"), [(1_000, True), (1_001, False)])
def test_work_that_ends_a_microsecond_after_other_began_was_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, late_ns: int, waited: bool
) -> None:
    none = np.empty(0, np.int64)
    monkeypatch.setattr(waits, "_recorded", lambda *parts: (np.array([0]), np.array([1]), none))
    monkeypatch.setattr(waits, "_by_pattern", lambda *parts: (none, none))
    blocks = SimpleNamespace(start_ns=np.array([0, 5_000]), end_ns=np.array([5_000 + late_ns, 20_000]))
    calls = SimpleNamespace(kind=none, correlation=none)
    edges = waits.find_event_edges(None, 0, calls, None, blocks, None)  # type: ignore[arg-type]
    assert bool(edges.source.size) is waited


def recorded_us(*tables: Table, name: str = "aten::mm") -> float:
    """What recording one row of each table cost the host, as is expected."""
    one = dict.fromkeys(tables, pl.DataFrame({"rank": [0], "process": [0], "name": [name]}))
    return unprofiled.recording_us(lambda table: one.get(table, table.empty()), 0)[Case.EXPECTED.value]


def test_recording_a_call_an_operator_a_frame_a_stack_a_range_and_a_step_costs_this() -> None:
    assert recorded_us(API_CALLS) == pytest.approx(2.7)
    assert recorded_us(API_CALLS, HOST_OPS) == pytest.approx(1.8 + 1.8)
    assert recorded_us(HOST_OPS, FRAMES) == pytest.approx(1.8 + 1.5 + 0.4)
    assert recorded_us(HOST_OPS, RANGES) == pytest.approx(1.8 + 12)
    assert recorded_us(HOST_OPS, RANGES, name="ProfilerStep#1") == pytest.approx(1.8 + 12 + 60)


def launches(*quick_us: float, rank: int = 0, name: str = "cudaLaunchKernel_v7000") -> pl.DataFrame:
    """Launches of these lengths, as a table of calls."""
    end = [int(1000 * us) for us in quick_us]
    return pl.DataFrame({"rank": rank, "process": 0, "name": name, "start_ns": 0, "end_ns": end}, strict=False)


@pytest.mark.parametrize(("quick_us", "slowness"), [(3.0, 1.0), (3.5, 1.0), (7.0, 2.0), (8.75, 2.5), (30.0, 2.5)])
def test_a_host_is_as_slow_as_its_quick_launches_up_to_two_and_a_half_times(quick_us: float, slowness: float) -> None:
    calls = launches(*[quick_us] * 5, *[1_000.0] * 5)
    assert unprofiled.host_slowness(calls, 0) == pytest.approx(slowness)


def test_four_launches_those_of_graphs_and_those_of_other_ranks_do_not_say_how_slow_a_host_is() -> None:
    assert unprofiled.host_slowness(launches(*[9.0] * 4), 0) == 1.0
    assert unprofiled.host_slowness(launches(*[9.0] * 9, name="cudaGraphLaunch"), 0) == 1.0
    assert unprofiled.host_slowness(launches(*[9.0] * 9), 1) == 1.0


@pytest.mark.parametrize(("case", "times"), list(zip(Case, (2**0.5, 2**1.75, 2**2.5), strict=True)))
def test_recording_costs_a_host_of_half_the_speed_this_many_times_as_much(case: Case, times: float) -> None:
    def recorded(calls: pl.DataFrame) -> float:
        return unprofiled.recording_us(lambda table: calls if table is API_CALLS else table.empty(), 0)[case.value]

    assert recorded(launches(*[7.0] * 9)) == pytest.approx(times * recorded(launches(*[3.5] * 9)))


def test_a_host_keeps_all_beside_what_it_records() -> None:
    """Steps of a call of 3 us and 1 ms of Python, of which recording may have slowed 30 us on each side of the call."""
    steps = [part for _ in range(12) for part in (Step(), Host(1_000_000), Launch(500, call_ns=3_000))]
    simulated = simulate([Launch(500), *steps, Step()])
    graph = unprofiled.deflate(Graph.from_trace(simulated.trace()))[Case.EXPECTED.value]
    step_us = Pricer(graph, simulated.windows()).step_ns / 1000
    assert step_us == pytest.approx(1003 - 2.7, abs=0.1)


BOTH = ("cudaMalloc", "cudaFree_v3020")
SEEN = (50.0, 50.0, *[210.0] * 8)


@pytest.mark.parametrize(
    ("names", "lengths_us", "waited"),
    [
        (BOTH, SEEN, True),
        (BOTH, (50.0, 50.0, *[190.0] * 8), False),  # not four times the quick ones
        (BOTH, (2.0, 2.0, *[210.0] * 8), False),  # small blocks that are kept, large ones that are unmapped
        (BOTH, (50.0, 50.0, *[12_400.0] * 8), False),  # longer than seen
        (("cudaFree",), SEEN, False),  # a lock would keep both waiting
        (("cudaMalloc",), SEEN, False),
        (("hipMalloc", "hipFree"), SEEN, False),
        (("cudaMallocHost", "cudaFreeHost"), SEEN, False),
        (("cuMemCreate", "cuMemUnmap"), SEEN, False),
        (("cudaHostAlloc", "cudaFree"), SEEN, False),
    ],
)
def test_calls_wait_for_a_lock_only_where_that_was_measured(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], lengths_us: tuple[float, ...], waited: bool
) -> None:
    saved: list[int] = []
    edit = SimpleNamespace(save_calls=lambda chosen, *parts: saved.extend(chosen), done=lambda: saved)
    monkeypatch.setattr(unprofiled, "Edit", lambda graph: edit)
    called = pl.Series("name", [name for name in names for _ in lengths_us])
    length = np.tile((1_000 * np.array(lengths_us)).astype(np.int64), len(names))
    calls = SimpleNamespace(
        row=np.arange(length.size), kind=call_kinds(called), lengths_ns=length, start_ns=length, end_ns=length
    )

    def graph(operators: int) -> SimpleNamespace:
        tables = {HOST_OPS: pl.DataFrame({"name": ["aten::mm"] * operators}), API_CALLS: called.to_frame()}
        return SimpleNamespace(program=SimpleNamespace(calls=calls), table=tables.get)

    shorter = unprofiled._without_contention(graph(operators=1))  # type: ignore[arg-type]
    assert (shorter is saved) is waited
    assert len(saved) == (20 if waited else 0) or shorter is not saved
    alone = graph(operators=0)
    assert unprofiled._without_contention(alone) is alone  # type: ignore[arg-type,comparison-overlap]
