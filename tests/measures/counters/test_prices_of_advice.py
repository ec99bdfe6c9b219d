"""A price is that of what is advised: of less work, of whole waves and even blocks, of launches that become one."""

import json
from collections.abc import Iterator
from functools import cache

import pytest
from benchmarks.kernels.score import faults_in, unpacked
from tests.measures.counters.kernel_counter_strategies import kernel
from tests.measures.counters.test_what_counters_allow import KERNELS

from timesink.measures.counters import kernel_counters
from timesink.measures.counters.bounds import fused_bound
from timesink.measures.counters.causes import gain_ns, is_tiny, may_be_scattered, most_ns, to_roof, wins_by_less_work
from timesink.measures.counters.groups import launch_groups
from timesink.measures.counters.limiter import KernelLimits, kernel_limits, limits_of
from timesink.measures.counters.waste import Cause
from timesink.readers import read
from timesink.records import replace
from timesink.rules.ncu.causes import _stated, said_of

WAITS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
ISSUE, ALU, LSU = "sm__inst_executed", "sm__pipe_alu_cycles_active", "l1tex__lsuin_requests"
PASSES, SECTORS = "l1tex__data_pipe_lsu_wavefronts", "lts__t_sectors"
SETS = ("", "unseen", "unseen3", "unseen8", "unseen9")


@cache
def measured(folder: str) -> list[tuple[KernelLimits, float]]:
    """Planted faults that are no chains of tiny launches, with the part of their time that the planted fix won."""
    reports = KERNELS / folder / "reports"
    times = json.loads((reports / "times.json").read_text(encoding="utf-8"))
    every = [pair for page in sorted(reports.glob("*.ncu-rep.xz")) for pair in faults_in(page)[0]]
    return [(one, 1 - times[of]["fix_us"] / times[of]["fault_us"]) for of, one in every if not is_tiny(one)]


def named(folder: str, cause: Cause) -> Iterator[tuple[KernelLimits, float]]:
    return ((one, won) for one, won in measured(folder) if one.limiter is cause)


@pytest.mark.parametrize("folder", SETS)
def test_what_less_work_wins_is_a_bound_and_the_way_to_the_roof_is_not_its_price(folder: str) -> None:
    for one, _ in measured(folder):
        for group in launch_groups([one], one.limiter):
            stated = _stated(group)
            if wins_by_less_work(one, one.limiter):
                assert "up to the roof" not in said_of(one)[1]
                assert stated.value == stated.high == pytest.approx(most_ns(one, one.limiter) / 1e6)


def test_of_eleven_planted_fixes_that_are_less_work_eight_won_more_than_the_way_to_the_roof() -> None:
    pairs = [(one, won) for of in SETS for one, won in measured(of) if wins_by_less_work(one, one.limiter)]
    beyond = [won > gain_ns(one, one.limiter) / (one.kernel.duration_ns or 1.0) for one, won in pairs]
    assert (len(pairs), sum(beyond)) == (11, 8)
    assert all(won * (one.kernel.duration_ns or 0.0) <= most_ns(one, one.limiter) for one, won in pairs)


@pytest.mark.parametrize(
    ("top", "wait", "is_bound"),
    [
        (LSU, "lg_throttle", True),
        (PASSES, "mio_throttle", True),
        (ALU, "math_pipe_throttle", True),
        (LSU, "long_scoreboard", False),
        (ALU, "wait", False),
        ("dram__cycles_active", "long_scoreboard", False),
    ],
)
@pytest.mark.parametrize("busy", [62, 71, 83, 89])
def test_with_a_full_queue_the_advice_is_less_work(top: str, wait: str, is_bound: bool, busy: float) -> None:
    one = limits_of(kernel({top: busy, ISSUE: 20, WAITS.format(wait): 12, WAITS.format("selected"): 1}))
    assert one is not None
    assert wins_by_less_work(one, one.limiter) is is_bound
    assert (to_roof(one, one.limiter) is None) is is_bound


@pytest.mark.parametrize(
    ("throttled", "ready", "is_bound"),
    [(4.3, 2.6, True), (2.0, 4.5, True), (0.2, 9.0, True), (1.2, 3.1, False), (4.3, 0.0, False), (0.0, 4.0, False)],
)
@pytest.mark.parametrize(("top", "is_pipe"), [(ALU, True), ("sm__inst_executed_pipe_xu", True), (LSU, False)])
def test_a_warp_that_is_ready_waits_for_the_pipe_as_one_in_its_queue_does(
    throttled: float, ready: float, is_bound: bool, top: str, is_pipe: bool
) -> None:
    """Other waits take 5 cycles. What a ready warp does not wait for is memory."""
    waits = {"math_pipe_throttle": throttled, "not_selected": ready, "wait": 3.0, "long_scoreboard": 2.0}
    one = limits_of(kernel({top: 71, ISSUE: 40, **{WAITS.format(name): cycles for name, cycles in waits.items()}}))
    assert one is not None
    assert wins_by_less_work(one, one.limiter) is (is_bound and is_pipe)


@pytest.mark.parametrize(("busy", "is_bound"), [(83, True), (89.9, True), (90.1, False), (97, False)])
def test_at_its_roof_the_price_is_what_the_roof_leaves(busy: float, is_bound: bool) -> None:
    one = limits_of(kernel({LSU: busy, ISSUE: 20, WAITS.format("lg_throttle"): 12}))
    assert one is not None and wins_by_less_work(one, one.limiter) is is_bound


@pytest.mark.parametrize("requests", [66, 78, 84, 87, 88])
@pytest.mark.parametrize("passes", [1.1, 1.9])
def test_who_counts_requests_is_not_relieved_by_coalescing(requests: float, passes: float) -> None:
    """A basic page of a GeForce kernel with shared memory: its accesses are not known, but as many requests stay."""
    values = {
        "launch__shared_mem_per_block_static": 4096, SECTORS: 10, "dram__cycles_active": 20, ISSUE: 30, LSU: requests,
        "sm__inst_executed_pipe_lsu": requests, PASSES: requests * passes / 2, "launch__sm_count": 80,
        "sm__cycles_active.avg": 98, "sm__cycles_elapsed.max": 100,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 66,
    }  # fmt: skip
    one = limits_of(replace(kernel(values), compute_capability=(8, 6)))
    assert one is not None and one.limiter is Cause.MEMORY and Cause.UNCOALESCED in one.others
    assert not may_be_scattered(one)
    assert "Coalesce" not in said_of(one)[1]


@pytest.mark.parametrize("busy", [66, 78, 87, 91, 98])
@pytest.mark.parametrize("top", ["dram__cycles_active", SECTORS])
def test_who_counts_bytes_may_be(top: str, busy: float) -> None:
    page = {
        "launch__shared_mem_per_block_static": 4096,
        PASSES: 30,
        LSU: 20,
        "sm__inst_executed_pipe_lsu": 20,
        ISSUE: 9,
    }
    one = limits_of(kernel({**page, top: busy}))
    assert one is not None and one.limiter is Cause.MEMORY
    assert may_be_scattered(one)


@pytest.mark.parametrize("folder", SETS)
def test_whole_waves_and_even_blocks_win_no_place_that_the_launch_itself_leaves_empty(folder: str) -> None:
    """No more than the places that its blocks leave of those that registers and shared memory allow it."""
    for one, won in named(folder, Cause.OCCUPANCY):
        occupancy, length = one.occupancy, one.kernel.duration_ns or 0.0
        said = said_of(one)[1]
        if not said.startswith(("Launch whole waves", "Start the longest", "Split the longest", "Use fewer, larger")):
            continue
        theory = occupancy.theoretical or 1.0
        filled = (1 - (occupancy.sm_idle or 0.0)) * min(1.0, (occupancy.achieved or 0.0) / theory)
        assert gain_ns(one, one.limiter) <= length * (1 - filled) + 1e-6, one.kernel.function
        assert won * length <= most_ns(one, one.limiter) + 1e-6


@pytest.mark.parametrize(
    ("idle", "achieved", "theory", "most"),
    [
        (0.272, 0.407, 0.5, 0.31),
        (0.3, 0.5, 0.5, 0.30),
        (0.4, 0.2, 0.25, 0.45),
        (0.5, 0.9, 1.0, 0.55),
        (0.3, 0.1, 0.125, 0.32),
    ],
)
def test_a_tail_is_priced_without_the_slots_that_registers_leave_empty(
    idle: float, achieved: float, theory: float, most: float
) -> None:
    values = {
        "sm__pipe_fma_cycles_active": 20, ISSUE: 15, "launch__waves_per_multiprocessor": 2.37, "launch__sm_count": 108,
        "sm__cycles_active.avg": 1000 * (1 - idle), "sm__cycles_elapsed.max": 1000,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 100 * achieved,
        "sm__maximum_warps_per_active_cycle_pct": 100 * theory, "launch__occupancy_limit_registers": 4,
        "launch__occupancy_limit_warps": 8, WAITS.format("long_scoreboard"): 11,
    }  # fmt: skip
    one = limits_of(replace(kernel(values, duration_ns=1e9), grid=(1024, 1, 1), block=(256, 1, 1)))
    assert one is not None and one.limiter is Cause.OCCUPANCY
    if "whole waves" in said_of(one)[1]:
        assert idle * 1e9 <= gain_ns(one, Cause.OCCUPANCY) <= most * 1e9 + 1
    assert gain_ns(one, Cause.OCCUPANCY) <= one.shares[Cause.OCCUPANCY] * 1e9 + 1


@pytest.mark.parametrize(
    ("blocks", "sms", "theory"), [(64, 132, 0.25), (20, 108, 0.5), (33, 80, 0.125), (4, 24, 0.375), (90, 132, 0.5)]
)
def test_more_blocks_win_the_empty_sms_and_the_places_that_registers_leave(
    blocks: int, sms: int, theory: float
) -> None:
    idle = 1 - blocks / sms
    values = {
        "sm__pipe_fma_cycles_active": 12, ISSUE: 9, "launch__waves_per_multiprocessor": blocks / sms / 2,
        "launch__sm_count": sms, "sm__cycles_active.avg": 1000 * (1 - idle), "sm__cycles_elapsed.max": 1000,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 100 * theory / 2,
        "sm__maximum_warps_per_active_cycle_pct": 100 * theory, "launch__occupancy_limit_registers": 2,
        "launch__occupancy_limit_warps": 8, WAITS.format("long_scoreboard"): 9,
    }  # fmt: skip
    one = limits_of(replace(kernel(values, duration_ns=1e6), grid=(blocks, 1, 1), block=(256, 1, 1)))
    assert one is not None and one.limiter is Cause.OCCUPANCY
    room = (theory / 2) / (1 - theory / 2)  # of the slots that are empty those that another block fits in
    rest = one.shares[Cause.OCCUPANCY] - idle
    assert gain_ns(one, Cause.OCCUPANCY) == pytest.approx(1e6 * (idle + rest * room), abs=1)


@pytest.mark.parametrize(
    ("blocks", "waves"), [(40, 0.4), (132, 1.0), (20, 0.97), (264, 0.5), (100, 0.12), (2048, 0.99)]
)
def test_blocks_that_all_start_at_once_are_not_put_in_order(blocks: int, waves: float) -> None:
    values = {
        "sm__pipe_fp64_cycles_active": 0.4, ISSUE: 0.1, "launch__waves_per_multiprocessor": waves,
        "launch__sm_count": 20, "sm__cycles_active.avg": 50, "sm__cycles_elapsed.max": 1000,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 2.1,
    }  # fmt: skip
    one = limits_of(replace(kernel(values, duration_ns=3e8), grid=(blocks, 1, 1), block=(256, 1, 1)))
    assert one is not None
    assert said_of(one)[1].startswith("Split the longest blocks")
    later = limits_of(replace(one.kernel, values={**one.kernel.values, "launch__waves_per_multiprocessor": 3.5}))
    assert later is not None and said_of(later)[1].startswith("Start the longest blocks first")


@pytest.mark.parametrize(
    ("lengths", "left"),
    [
        ([3.0, 3.0], 3.0),
        ([1.6, 1.5, 1.6, 1.5], 1.6),
        ([2.1, 3.7], 3.7),
        ([3e0] * 41, 3.0),
        ([2.5], 0.65),
        ([0.4, 0.3], 0.65),
    ],
)
def test_launches_that_become_one_take_as_long_as_the_longest(lengths: list[float], left: float) -> None:
    total = sum(lengths)
    assert total / fused_bound([1e3 * us for us in lengths]) == pytest.approx(
        max(left, 0.65) if total > 0.65 else total
    )


@pytest.mark.parametrize("folder", ["unseen", "unseen3", "unseen9"])
def test_no_chain_took_less_than_its_longest_launch(folder: str) -> None:
    reports = KERNELS / folder / "reports"
    times = json.loads((reports / "times.json").read_text(encoding="utf-8"))
    for page in sorted(reports.glob("*.ncu-rep.xz")):
        for pair, one in faults_in(page)[0]:
            assert not is_tiny(one) or times[pair]["fix_us"] * 1e3 >= (one.kernel.duration_ns or 0.0), pair


@pytest.mark.parametrize("page", ["unseen8/reports/cuda", "unseen9/reports/cuda", "reports/occupancy"])
def test_every_launch_has_a_price_within_its_bound(page: str) -> None:
    with unpacked(KERNELS / f"{page}.ncu-rep.xz") as path:
        trace = read(path, cache=False)
    assert len(kernel_counters(trace)) == len(kernel_limits(trace))
    for one in (one for one in kernel_limits(trace) if one is not None):
        for cause in Cause:
            assert 0.0 <= gain_ns(one, cause) <= most_ns(one, cause) + 1e-6, (one.kernel.function, cause)
