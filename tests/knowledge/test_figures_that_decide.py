"""Assumed figures at which an answer changes, each met from both sides: planted faults seldom come so near to them."""

from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import polars as pl
import pytest
from tests.cluster.jobs_by_hand import collectives, job_of
from tests.strategies import frame
from tests.tables import trace_of

from timesink.measures import compile as graphs
from timesink.measures.communication import clocks, links, pipelines, stage_traces
from timesink.measures.communication.matching import TokenSequence, align_sequences, match_collectives
from timesink.measures.communication.pipelines import Schedule
from timesink.measures.counters import bounds
from timesink.measures.counters.resources import Resource
from timesink.measures.idle.blame import is_effective
from timesink.measures.idle.lasting_calls import os_time
from timesink.measures.idle.pieces import ordinary_gap_ns
from timesink.measures.kernels import fusion
from timesink.measures.kernels.small_grids import tiny_kernels, unused_lanes
from timesink.measures.memory import classes
from timesink.measures.ranks import lateness, worth
from timesink.measures.steps import loops, spikes
from timesink.measures.steps import marks as mark
from timesink.measures.steps.spikes import Spike
from timesink.model.arrays import Int64Array
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.communication import ranks as rules_on_ranks
from timesink.whatif import Case, Touches, device
from timesink.whatif.changes import host, kernels, transfers
from timesink.whatif.graph import Program
from timesink.whatif.pricing import Pricer

H200: Final = "NVIDIA H200"

SECOND_NS = 10**9


@dataclass
class Copies:
    """Copies as the change of a graph sees them."""

    row: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array

    def __len__(self) -> int:
        return int(self.row.size)


def drift(calls: int, span_ns: int, per_ns: float, scatter_ns: int = 0) -> float:
    """The drift that is found in the ends of so many collectives."""
    start = np.linspace(0, span_ns, calls).astype(np.int64)
    apart = per_ns * start + scatter_ns * np.where(np.arange(calls) % 2, 1, -1)
    return clocks._fit_line(start, apart.astype(np.int64), 0, is_reference=False).drift_ratio


def test_a_drift_is_fitted_over_twelve_calls_and_a_second() -> None:
    assert drift(12, SECOND_NS, 1e-4) == pytest.approx(1e-4, rel=1e-3)
    assert drift(11, SECOND_NS, 1e-4) == 0
    assert drift(12, SECOND_NS - 1000, 1e-4) == 0


def test_two_clocks_drift_apart_by_five_parts_in_ten_thousand_at_most() -> None:
    assert drift(30, SECOND_NS, 6e-4) == 5e-4


@pytest.mark.parametrize(("times", "kept"), [(4.4, True), (3.6, False)])
def test_a_drift_rises_four_times_above_the_scatter(times: float, kept: bool) -> None:
    run_ns = SECOND_NS * 40 / 59  # from the middle of the first third of 60 calls to that of the last
    assert (drift(60, SECOND_NS, 1e-4, round(1e-4 * run_ns / times)) != 0) is kept


def launch_cost(values: list[int]) -> int:
    """The low quantile of the latencies of one group."""
    found = np.array(values, np.int64)
    return int(device._quantiles_by(np.zeros(found.size, np.int32), found, 1, (0.1,))[0][0])


def test_a_latency_is_taken_from_five_launches_and_from_fewer_at_most_twenty_microseconds() -> None:
    assert launch_cost([30_000] * 5) == 30_000
    assert launch_cost([30_000] * 4) == 20_000
    assert launch_cost([]) == 6_000


@pytest.mark.parametrize(("scatter", "shift"), [(22, 1), (17, 0)])
def test_a_shift_is_taken_where_its_ends_agree_twice_as_well(scatter: int, shift: int) -> None:
    """Calls of one kind, whose distances scatter, so that the ends of the plain shift do; those of the next by 5."""
    random = np.random.default_rng(7)
    plain = np.cumsum(1000 + np.rint(scatter * random.standard_normal(40))).astype(np.int64)
    ours = TokenSequence(np.zeros(40, np.int64), plain)
    theirs = TokenSequence(np.zeros(39, np.int64), plain[1:] + 5 * random.permutation([-1, 0, 1] * 13))
    reference, _ = align_sequences(ours, theirs)
    assert int(reference[0]) == shift


@pytest.mark.parametrize(("shift", "found"), [(10, True), (11, False)])
def test_a_shift_covers_half_of_the_shorter_sequence(shift: int, found: bool) -> None:
    """Twenty calls of one kind, of which the other rank has the last ten, or nine, and goes on."""
    ends = np.cumsum(1000 + np.random.default_rng(7).integers(0, 500, 40)).astype(np.int64)
    kinds = np.zeros(20, np.int64)
    reference, _ = align_sequences(TokenSequence(kinds, ends[:20]), TokenSequence(kinds, ends[shift : shift + 20]))
    assert (int(reference[0]) == shift) is found


def test_a_step_stands_out_by_a_fifth_among_four() -> None:
    def out(*periods: int) -> list[int]:
        return spikes._standing_out(np.array(periods, np.int64)).tolist()

    assert out(1000, 1000, 1000, 1210) == [3]
    assert out(1000, 1000, 1000, 1190) == []
    assert out(1000, 1000, 1210) == []


@pytest.mark.parametrize(("times", "stands_out"), [(6.3, True), (5.7, False)])
def test_a_step_stands_out_by_six_deviations(times: float, stands_out: bool) -> None:
    usual = [10_000 - 1000, 10_000 + 1000] * 20
    slow = 10_000 + times * 1.4826 * 1000
    found = spikes._standing_out(np.array([*usual, 10_000, 10_000, round(slow)], np.int64))
    assert bool(found.size) is stands_out


def test_rounds_are_regular_where_three_in_four_are_within_a_quarter_of_the_usual_distance() -> None:
    def regular(*distances: int) -> bool:
        return loops._is_regular(np.cumsum([0, *distances]).astype(np.int64))

    assert regular(100, 100, 100, 124, 76, 100, 100, 100)
    assert regular(100, 100, 100, 100, 100, 100, 130, 130)
    assert not regular(100, 100, 100, 100, 100, 130, 130, 130)


def test_a_collective_follows_the_one_that_ended_twenty_microseconds_before() -> None:
    def holder(after_ns: int) -> int:
        arrival, end = np.array([0, 100 + after_ns], np.int64), np.array([100, 90_000], np.int64)
        return int(lateness._find_holders(arrival, end, np.zeros(2, np.int64), np.array([5, 6], np.int64))[1])

    assert (holder(20_000), holder(20_001)) == (5, -1)


@pytest.mark.parametrize(("held", "found"), [(11, [3]), (9, [])])
def test_a_collective_held_up_half_of_its_ranks(held: int, found: list[int]) -> None:
    calls = pl.DataFrame(
        {"instance": [3] * 20, "holds": [True] * held + [False] * (20 - held), "complete": [True] * 20}
    )
    assert lateness._find_anchors(calls).tolist() == found


@pytest.mark.parametrize(("alike", "found"), [(4, True), (3, False)])
def test_four_blocks_of_one_size_are_a_cache(alike: int, found: bool) -> None:
    yes, no = np.ones(alike, bool), np.zeros(alike, bool)
    lives = SimpleNamespace(persists=yes, size=np.full(alike, 4096), shown={"known": yes, "module": no, "data": no})
    assert bool(classes._alike(lives, yes).any()) is found


def test_no_kernel_takes_less_than_a_microsecond_when_its_operands_are_narrowed() -> None:
    change = kernels.ShortenKernels((0, 0), np.arange(2), (np.full(2, 0.1),) * 3, floored=True)
    kept = change._kept(Case.EXPECTED, np.arange(2), np.array([2_000, 100_000], np.int64))
    assert kept.tolist() == [0.5, 0.1]


def copied(sizes: list[int], pinned: list[int], rates: list[float]) -> list[float]:
    """The factor of pageable copies of these bytes, beside pinned ones of others at so many bytes a nanosecond."""
    size = np.array([*sizes, *pinned], np.int64)
    length = np.array([*sizes, *(part / rate for part, rate in zip(pinned, rates, strict=True))], np.int64)
    memory = ["pageable"] * len(sizes) + ["pinned"] * len(pinned)
    rows = np.arange(size.size)
    frame = pl.DataFrame({"copy_kind": ["h2d"] * size.size, "src_memory": memory, "dst_memory": memory, "bytes": size})
    ops = Copies(rows, np.zeros(size.size, np.int64), length)
    graph = SimpleNamespace(
        program=SimpleNamespace(ops=ops), tables={DEVICE_OPS: frame}, once=lambda _, work_out: work_out()
    )
    return transfers.PinCopies()._copies(graph, Case.EXPECTED)[1][: len(sizes)].tolist()  # type: ignore[arg-type]


def test_copies_over_64_kib_are_pinned_and_those_over_a_mebibyte_show_the_rate() -> None:
    assert copied([65_537, 65_536], [], []) == [0.5, 1.0]
    assert copied([100_000], [1_048_577], [4.0]) == pytest.approx([0.25], rel=1e-3)
    assert copied([100_000], [1_048_576], [4.0]) == [0.5]


def test_the_rate_of_a_link_is_the_ninetieth_percentile_of_its_pinned_copies() -> None:
    (factor,) = copied([10**6], [2 * 10**6] * 11, [1.0] * 9 + [4.0, 8.0])
    assert factor == pytest.approx(0.25, rel=1e-3)


def exchanged(measure: Any, groups: int, transfers_each: int, length_ns: int, size_bytes: int = 1 << 20) -> Any:
    """A measure of links, of all-reduces among so many groups of two H200s of one host."""
    calls = [
        (rank, "allreduce", 0, length_ns, group * 100 + number, size_bytes, 2, length_ns)
        for group in range(groups)
        for number in range(transfers_each)
        for rank in (2 * group, 2 * group + 1)
    ]
    names = ("rank", "kind", "start_ns", "end_ns", "instance", "bytes", "size", "exposed_transfer_ns")
    frame = pl.DataFrame(calls, schema=list(names), orient="row").with_columns(complete=pl.lit(True))
    frame = frame.with_columns(
        pl.col("rank").cast(pl.Int32), device=pl.col("rank").cast(pl.Int32), stream=pl.lit(0, pl.Int64)
    )
    members = pl.DataFrame(
        {"rank": range(2 * groups), "clock": [0] * 2 * groups}, {"rank": pl.Int32, "clock": pl.Int64}
    ).with_columns(device_name=pl.lit(H200), host=pl.lit("one"))
    found = SimpleNamespace(calls=frame, pairs=frame.clear(), job=SimpleNamespace(members=members))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(links, "collective_waits", lambda trace: found)
        return measure.__wrapped__(Trace("none", {}, ()))


def linked(groups: int, transfers_each: int, length_ns: int) -> int:
    """Links that are compared among so many groups of two."""
    return int(exchanged(links.links, groups, transfers_each, length_ns).frame.height)


def test_links_are_compared_where_three_have_five_transfers_of_a_tenth_of_a_millisecond() -> None:
    assert linked(3, 5, 100_000) == 3
    assert linked(2, 5, 100_000) == linked(3, 4, 100_000) == linked(3, 5, 99_999) == 0


def test_eight_megabytes_show_whether_nvlink_is_taken() -> None:
    (group,) = exchanged(links.beside_nvlink, 1, 5, 400_000, 9_000_000)  # 22.5 of 450 GB/s
    assert group.bus_share == pytest.approx(0.05)
    assert exchanged(links.beside_nvlink, 1, 5, 400_000, 7_000_000) == ()
    assert exchanged(links.beside_nvlink, 1, 4, 400_000, 9_000_000) == ()


@pytest.mark.parametrize(("sends", "found"), [(11, [0]), (9, [])])
def test_ranks_that_mostly_send_are_stages(sends: int, found: list[int]) -> None:
    kinds = ["send"] * sends + ["allreduce"] * (20 - sends)
    zeros = dict.fromkeys(("rank", "device", "process", "thread", "group", "stream"), [0] * 20)
    assert list(pipelines._stage_ranks(pl.DataFrame({"kind": kinds, **zeros}))) == found


@pytest.mark.parametrize(
    ("kind", "excess"),
    [(Spike.CLOCKS, 0.2), (Spike.UNEXPLAINED, 1.0), (Spike.CHECKPOINT, 0.5)],
)
def test_how_much_longer_a_step_must_be_depends_on_what_names_it(kind: Spike, excess: float) -> None:
    assert spikes._LEAST_EXCESS.get(kind, spikes.assumed.SPIKE_PAUSE).value == excess


def clocked(*factors: float) -> bool:
    """Whether kernels that take so many times the usual were slowed by one clock."""
    usual = np.full(len(factors), 1_000_000, np.int64)
    slow = np.rint(usual * np.array(factors)).astype(np.int64)

    def step(length: Int64Array) -> SimpleNamespace:
        starts = np.zeros(length.size, np.int64)
        return SimpleNamespace(
            ops=SimpleNamespace(start_ns=starts, finish_ns=length), op_class=np.full(length.size, spikes.COMPUTE)
        )

    return spikes._one_factor(step(slow), step(usual), SimpleNamespace(pair=np.arange(len(factors))))  # type: ignore[arg-type]


def test_a_clock_slows_four_in_five_kernels_by_one_factor_within_a_tenth() -> None:
    assert clocked(1.5, 1.5, 1.5, 1.5, 1.0)
    assert not clocked(1.5, 1.5, 1.5, 1.0, 1.0)
    assert clocked(1.5, 1.5, 1.5, 1.5 * 1.09, 1.0)
    assert not clocked(1.5, 1.5, 1.5, 1.5 * 1.11, 1.0)


def saved(slow_bytes: int, usual_bytes: int) -> bool:
    """Whether a step that copies so much to the host, and is longer by several kinds of time, saves one."""
    step, usual = SimpleNamespace(to_host_bytes=slow_bytes), SimpleNamespace(to_host_bytes=usual_bytes)
    causes = defaultdict(int, dict.fromkeys(("sync", "os_call", "unrecorded_code", "copy"), 25))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spikes, "_one_factor", lambda *parts: False)
        patched.setattr(spikes, "_causes", lambda *steps: causes)
        return spikes._kind(step, usual, None, 100)[0] is Spike.CHECKPOINT  # type: ignore[arg-type]


def test_a_checkpoint_copies_a_mebibyte_and_eight_times_what_a_usual_step_does() -> None:
    assert saved(1_048_576, 4)
    assert not saved(1_048_575, 4)
    assert saved(8 << 20, 1 << 20)
    assert not saved((8 << 20) - 1, 1 << 20)


def test_a_replay_that_leaves_a_twentieth_of_the_step_unexplained_is_no_price() -> None:
    def refused(residual: float) -> bool:
        pricer = SimpleNamespace(anchors=SimpleNamespace(windows=[1]), residual_ratio=residual)
        return Pricer.unreplayable.fget(pricer) is not None  # type: ignore[attr-defined]

    assert (refused(0.051), refused(0.049)) == (True, False)


def test_a_step_of_which_half_is_profiling_prices_no_change_of_the_host() -> None:
    def refused(slowdown: float) -> bool:
        pricer = SimpleNamespace(graph=SimpleNamespace(slowdown=slowdown))
        return Pricer._slowed(pricer, SimpleNamespace(touches=Touches.HOST)) is not None  # type: ignore[arg-type]

    assert (refused(2.05), refused(1.95)) == (True, False)


def test_device_memory_is_full_at_nineteen_twentieths_of_its_cycles() -> None:
    def used(busy: float) -> float:
        return bounds.used(SimpleNamespace(busy=busy, resource=Resource.DRAM))  # type: ignore[arg-type]

    assert used(0.76) == pytest.approx(0.8)
    assert used(0.96) == 1.0


def test_a_compiler_leaves_half_of_what_nobody_knows_and_kernels_bound_by_latency_as_they_are() -> None:
    def fused(*lengths_us: float) -> float:
        length = [round(1000 * us) for us in lengths_us]
        calls = pl.DataFrame({"length": length, "call": [0] * len(length), "row": range(len(length))})
        known = np.array([np.nan, *[1.0] * (len(length) - 1)])
        return float(graphs._fused((0, 0), calls, known).usual[0])

    assert fused(20.0, 12.0) == pytest.approx(26 / 32)
    assert fused(6.1, 6.0) == pytest.approx((6.1 + 0.5 * 6) / 12.1)
    assert fused(5.9, 5.9) == pytest.approx(0.5)


@pytest.mark.parametrize(("before", "length", "blocked"), [(900, 51, 1), (899, 51, 0), (900, 50, 0)])
def test_a_launch_behind_nine_hundred_others_that_takes_five_times_as_long_was_blocked(
    before: int, length: int, blocked: int
) -> None:
    """Launches of 10 ns, the last of `length`; blocks end while it waits."""
    count = before + 1
    start = np.arange(count, dtype=np.int64) * 10
    lengths = np.append(np.full(before, 10, np.int64), length)
    call = np.arange(count)
    calls = SimpleNamespace(start_ns=start, end_ns=start + lengths, lengths_ns=lengths)
    blocks = SimpleNamespace(call=call, end_ns=start[-1] + 1 + np.arange(count))
    program = SimpleNamespace(calls=calls, blocks=blocks, releases=SimpleNamespace(blocking=np.zeros(count, bool)))
    found, _, usual = Program._full_queue(program)  # type: ignore[arg-type]
    assert (found.size, usual) == (blocked, 10)


def loop(rounds: int, home: float, exact: float = 1.0) -> loops.OperationLoop:
    return loops.OperationLoop(np.arange(rounds, dtype=np.int64), home, exact)


def outermost(monkeypatch: pytest.MonkeyPatch, *found: loops.OperationLoop) -> int | None:
    """The rounds of the loop that is taken of those found, most rounds first."""
    monkeypatch.setattr(loops, "loops", lambda kinds: list(found))
    monkeypatch.setattr(loops, "_begun", lambda kinds, gaps_ns, starts: starts)
    best = loops.outermost_loop(np.zeros(100, np.int64))
    return None if best is None else int(best.starts.size)


def test_a_loop_has_most_kinds_at_home_in_nearly_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outermost(monkeypatch, loop(10, 0.86)) == 10
    assert outermost(monkeypatch, loop(10, 0.84)) is None
    assert outermost(monkeypatch, loop(10, 0.9, exact=0.84)) is None


def test_of_paces_alike_the_faster_and_of_close_ones_the_more_exact_is_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert outermost(monkeypatch, loop(40, 0.931), loop(10, 0.95)) == 40
    assert outermost(monkeypatch, loop(40, 0.929), loop(10, 0.95)) == 10
    assert outermost(monkeypatch, loop(30, 0.95, exact=0.9), loop(21, 0.95)) == 21
    assert outermost(monkeypatch, loop(30, 0.95, exact=0.9), loop(19, 0.95)) == 30
    assert len(loops.candidates(np.zeros(100, np.int64))) == 2


@pytest.mark.parametrize(("home", "kept"), [(0.61, 2), (0.59, 1)])
def test_a_loop_nearly_as_much_at_home_is_still_one_to_choose(
    monkeypatch: pytest.MonkeyPatch, home: float, kept: int
) -> None:
    monkeypatch.setattr(loops, "loops", lambda kinds: [loop(40, home), loop(10, 0.9)])
    assert len(loops.candidates(np.zeros(100, np.int64))) == kept


@pytest.mark.parametrize(("offset_us", "one"), [(20, True), (21, False)])
def test_clocks_that_are_twenty_microseconds_apart_are_one(offset_us: int, one: bool) -> None:
    members = pl.DataFrame({"rank": [0, 1], "host": [None, None], "device": [0, 1], "visible_devices": [2, 2]})
    clock = SimpleNamespace(consistent=True, error_ns=10**6, offset_ns=1000 * offset_us)
    assert clocks._on_one_host(members, SimpleNamespace(clocks=(clock, clock))) is one  # type: ignore[arg-type]


def test_a_copy_of_a_page_hands_over_a_value_that_somebody_waits_for() -> None:
    def read(moved: int) -> bool:
        program = SimpleNamespace(
            ops=SimpleNamespace(row=[0], block=np.array([0])), blocks=[0],
            releases=SimpleNamespace(block=np.array([0]), call=np.array([0])),
        )  # fmt: skip
        graph = SimpleNamespace(
            program=program,
            tables={DEVICE_OPS: pl.DataFrame({"copy_kind": ["d2h"], "bytes": [moved]})},
            once=lambda _, work_out: work_out(),
        )
        return bool(host._values_read(graph, np.array([True]))[0])  # type: ignore[arg-type]

    assert (read(4096), read(4097)) == (True, False)


@pytest.mark.parametrize(("uneven", "marks"), [(2, "round"), (3, None)])
def test_ranges_that_keep_their_pace_two_times_in_three_mark_steps(uneven: int, marks: str | None) -> None:
    start = np.cumsum([0, 100, 100, 100, 100, *[1000] * uneven])
    rows = pl.DataFrame({"thread": 1, "stem": "round", "domain": None, "depth": 0, "start_ns": start})
    families = mark._families(rows.with_columns(end_ns=pl.col("start_ns") + 50)).filter("steady")
    assert families["stem"].to_list() == ([marks] if marks else [])


@pytest.mark.parametrize(("gain_ns", "root"), [(151, True), (149, False)])
def test_waits_are_the_root_where_half_of_the_time_after_them_goes_with_them(gain_ns: int, root: bool) -> None:
    assert is_effective(gain_ns, 300) is root


def test_writes_up_to_two_milliseconds_apart_are_one_piece_of_work() -> None:
    found = os_time(
        trace_of("""
    | os_calls | name  | thread | start_us | end_us |
    | first    | write |      1 |        0 |   1000 |
    | near     | write |      1 |     3000 |   3100 |
    | far      | write |      1 |     5101 |   5200 |
    """)
    )
    assert (found.until_ns // 1000).tolist() == [3000, 3100, 5200]


def test_gaps_before_queued_work_are_ordinary_up_to_three_to_ten_microseconds_by_the_late_ones_of_a_trace() -> None:
    assert [ordinary_gap_ns(late_ns) for late_ns in (1_000, 5_000, 30_000)] == [3_000, 5_000, 10_000]


@pytest.mark.parametrize(("between", "found"), [(8, 9), (9, -1)])
def test_eight_kernels_fit_between_a_softmax_and_its_product(between: int, found: int) -> None:
    product = np.arange(between + 2) == between + 1
    assert fusion._product_at(0, 1, np.zeros(between + 2, np.int64), product, ~product) == found


def test_kernels_under_ten_microseconds_are_tiny() -> None:
    (device,) = tiny_kernels(
        trace_of("""
    | device_ops | name | start_us | end_us |
    | tiny       | relu |        0 |    9.9 |
    | not        | relu |       50 |   60.1 |

    | ranges | name           | start_us | end_us |
    | step   | ProfilerStep#0 |        0 |    100 |
    """)
    )
    assert (device.per_step, device.of_per_step) == (1.0, 2.0)


def test_a_block_of_part_of_a_warp_keeps_at_best_its_share_of_a_usual_one() -> None:
    (lanes,) = unused_lanes(
        trace_of("""
    | device_ops | name | start_us | end_us | grid_x | grid_y | grid_z | block_x | block_y | block_z |
    | half       | fold |        0 |    100 |     10 |      1 |      1 |      16 |       1 |       1 |
    """)
    )
    assert (lanes.usual.tolist(), lanes.best.tolist()) == ([16 / 32], [16 / 256])


def test_a_generated_kernel_moves_32_bytes_a_thread_where_shapes_are_not_recorded() -> None:
    kernel = {"rank": 0, "device": 0, "process": 1, "context": 1, "stream": 7, "kind": "kernel", "name": "triton_poi"}
    sizes = {f"{of}_{axis}": 10 if axis == "x" else 1 for of in ("grid", "block") for axis in "xyz"}
    trace = Trace("test", {DEVICE_OPS: frame(DEVICE_OPS, [kernel | sizes | {"start_ns": 0, "end_ns": 10}])})
    calls = pl.DataFrame({"row": [0], "host_op": [-1]})
    assert graphs._memory_ns(trace, calls, bytes_per_s=1e9).tolist() == [100 * 32]


def test_clocks_that_seem_to_be_one_are_off_by_fifty_microseconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = collectives([[0, 500], [10_000, 10_100]], [1000, 2000])
    monkeypatch.setattr(clocks, "_on_one_host", lambda members, clocks: True)
    found = clocks.align_clocks(match_collectives(calls).calls, job_of(calls).members)
    assert found.worst_error_ns == 50_000


def test_four_micro_batches_a_stage_make_the_bubble_small(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dict.fromkeys((2, 4, 8), (40e6, 40e6))
    figures = (("trains", True), ("depths", None), ("waiting_slowdown", 1.0), ("cut_stages_ns", whole))
    for name, value in figures:
        monkeypatch.setattr(rules_on_ranks, name, lambda *given, value=value: value)
    line = SimpleNamespace(ranks=(0, 1))
    better = rules_on_ranks._better(None, line, Schedule((40e6, 40e6), 80e6, 1, 1, ""))  # type: ignore[arg-type]
    assert ": 8 micro-batches" in better.advice
    assert better.gain_ns[1] == pytest.approx(80e6 - 40e6 * (1 + 1 / 8))


@pytest.mark.parametrize(("layer_ns", "moves"), [(0.0, True), (19e6, True), (20e6, False), (45e6, False)])
def test_half_of_what_stages_are_uneven_by_is_expected_to_be_won_where_a_layer_is_less(
    monkeypatch: pytest.MonkeyPatch, layer_ns: float, moves: bool
) -> None:
    plan = Schedule((60e6, 40e6), 70e6, 8, 1, "1F1B")
    monkeypatch.setattr(rules_on_ranks, "cut_stages_ns", lambda *given: dict.fromkeys(given[-1], plan.stage_ns))
    monkeypatch.setattr(rules_on_ranks, "layer_ns", lambda *given: layer_ns)
    better = rules_on_ranks._better(None, SimpleNamespace(ranks=(0, 1)), plan)  # type: ignore[arg-type]
    assert plan.uneven_ns == pytest.approx(10e6 * 7 / 8)
    assert ("Even out the stages" in better.advice) is moves
    if moves:
        assert better.gain_ns == pytest.approx((0, plan.uneven_ns / 2, plan.uneven_ns))
    else:
        assert better.gain_ns[1] < plan.uneven_ns / 2


def test_a_schedule_that_nothing_shortens_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Schedule((40e6, 40e6), 90e6, 8, 1, "1F1B")
    monkeypatch.setattr(rules_on_ranks, "cut_stages_ns", lambda *given: dict.fromkeys(given[-1], plan.stage_ns))
    monkeypatch.setattr(rules_on_ranks, "layer_ns", lambda *given: 10e6)
    kept = rules_on_ranks._better(None, SimpleNamespace(ranks=(0, 1)), plan)  # type: ignore[arg-type]
    assert kept.gain_ns[:2] == (0, 0) and kept.gain_ns[2] > 0
    assert kept.advice.startswith("Keep 8 micro-batches")


@pytest.mark.parametrize(("score", "serial"), [(0.04, True), (0.06, False)])
def test_stages_that_overlap_by_a_twentieth_go_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, score: float, serial: bool
) -> None:
    stages = tuple(pipelines.PipelineStage(name, 40e6) for name in "ab")
    line = pipelines.Pipeline((0, 1), pipelines.OverlapScore(stages, 80e6 - score * 40e6), 4, labelled=True)
    monkeypatch.setattr(pipelines, "pipeline", lambda trace: line)
    monkeypatch.setattr(pipelines, "_order", lambda *given: "")
    plan = pipelines.schedule(Trace("test", {}))
    assert plan is not None and plan.items == 4
    assert plan.is_serial is serial


@pytest.mark.parametrize(("share", "hold"), [(0.79, False), (0.81, True)])
def test_ranges_that_hold_most_of_the_computation_are_the_stage(
    monkeypatch: pytest.MonkeyPatch, share: float, hold: bool
) -> None:
    steps = pl.DataFrame({"rank": [0, 0, 0], "compute_ns": [100.0, 100.0, 100.0]})
    monkeypatch.setattr(stage_traces, "job", lambda trace: SimpleNamespace(steps=steps))
    rank = SimpleNamespace(rank=0, items=pl.DataFrame({"stage_ns": [100 * share] * 3}))
    assert stage_traces._hold_the_work(None, [rank]) is hold  # type: ignore[arg-type, list-item]


@pytest.mark.parametrize(("own_ns", "more_ns"), [(260, 60), (190, 0)])
def test_a_profiler_slows_one_host_twice_as_much_as_another_at_most(
    monkeypatch: pytest.MonkeyPatch, own_ns: int, more_ns: int
) -> None:
    hosts = {rank: [SimpleNamespace(host_ns=ns)] * 3 for rank, ns in enumerate((own_ns, 100, 80))}
    monkeypatch.setattr(worth, "deflated_pricers", lambda trace: hosts)
    assert worth._own_host_ns(None, 0) == more_ns  # type: ignore[arg-type]
