"""Kinds of launches that public reports showed to be told wrongly, each with others of its kind."""

import pytest
from tests.measures.counters.kernel_counter_strategies import kernel

from timesink.measures.counters import limiter
from timesink.measures.counters.causes import figures_of, gain_ns, most_ns
from timesink.measures.counters.groups import launch_groups
from timesink.measures.counters.limiter import limits_of, why_unexplained
from timesink.measures.counters.resources import counts_one_way
from timesink.measures.counters.waste import Cause
from timesink.records import replace
from timesink.rules.ncu.causes import said_of

WAIT, BARRIER = (f"smsp__average_warps_issue_stalled_{of}_per_issue_active.ratio" for of in ("wait", "barrier"))
ADU, ALU, ISSUE = "sm__inst_executed_pipe_adu", "sm__pipe_alu_cycles_active", "sm__inst_executed"
ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
READ, WRITE = (f"dram__bytes_{way}.sum.pct_of_peak_sustained_elapsed" for way in ("read", "write"))


@pytest.mark.parametrize("wait", [10.5, 13.4, 13.9])
@pytest.mark.parametrize("busy", [{ALU: 70}, {ISSUE: 20}, {ALU: 46, BARRIER: 15}])
def test_unoptimized_code_is_compiled_first_and_its_price_is_a_bound(wait: float, busy: dict[str, float]) -> None:
    found = limits_of(kernel({**busy, WAIT: wait}))
    assert found is not None
    assert "Compile with optimization" in said_of(found)[1]
    assert gain_ns(found, found.limiter) == most_ns(found, found.limiter)


@pytest.mark.parametrize("wait", [1.4, 2.9, 4.9, 7.6, 9.9])
def test_optimized_code_is_not_told_to_compile(wait: float) -> None:
    found = limits_of(kernel({ALU: 70, WAIT: wait}))
    assert found is not None
    assert "Compile" not in said_of(found)[1]


@pytest.mark.parametrize(("barrier", "cause"), [(0.0, Cause.COMPUTE), (0.2, Cause.LATENCY), (9.0, Cause.LATENCY)])
@pytest.mark.parametrize("busy", [62, 88, 97])
def test_what_executes_barriers_also_loads_constants(barrier: float, cause: Cause, busy: float) -> None:
    """Where no warp ever waits at a barrier, its work is that of constants and branches."""
    found = limits_of(kernel({ADU + ELAPSED: busy, ISSUE: 40, WAIT: 2.7, BARRIER: barrier}))
    assert found is not None and found.limiter is cause
    assert found.top.is_of_barriers is (cause is Cause.LATENCY)


@pytest.mark.parametrize(
    ("threads", "is_of_lanes"), [(1, True), (4, True), (16, True), (31, False), (500, False), (129, False)]
)
def test_whole_warps_are_advised_where_their_lanes_are_what_is_empty(threads: int, is_of_lanes: bool) -> None:
    one = kernel({"sm__warps_active" + ".avg.pct_of_peak_sustained_active": 8, ISSUE: 7, "launch__sm_count": 68})
    found = limits_of(replace(one, block=(threads, 1, 1), grid=(265, 1, 1)))
    assert found is not None and found.limiter is Cause.OCCUPANCY
    assert ("whole warps" in said_of(found)[1]) is is_of_lanes


@pytest.mark.parametrize("percent", [62.2, 66.3, 75, 88, 95])
@pytest.mark.parametrize("way", [READ, WRITE])
def test_one_way_of_drams_traffic_is_the_least_of_it(way: str, percent: float) -> None:
    found = limits_of(kernel({way: percent}))
    assert found is not None and found.limiter is Cause.MEMORY
    assert found.roof_text.startswith("at least at ")
    assert found.most_share(Cause.MEMORY) == pytest.approx(1.0)
    both = limits_of(kernel({READ: percent / 2, WRITE: percent / 2}))
    assert both is not None and both.roof_text.startswith("at ") and not both.is_roof_least
    assert not counts_one_way(kernel({READ: percent, WRITE: 0}))


@pytest.mark.parametrize("missing", ["read", "write"])
def test_bytes_of_one_way_are_no_traffic(missing: str) -> None:
    one = kernel({f"dram__bytes_{way}.sum": 5e8 for way in ("read", "write") if way != missing})
    assert limits_of(replace(one, gpu="NVIDIA H100 80GB HBM3")) is None
    assert why_unexplained(one)


@pytest.mark.parametrize(("blocks", "sms"), [(6, 128), (1, 132), (17, 68), (64, 68), (10, 20)])
def test_a_page_of_levels_does_not_exclude_that_sms_stand_empty(
    blocks: int, sms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter, "_NAMED", len(Cause))
    one = replace(kernel({f"gpu__dram_throughput{ELAPSED}": 0.5, "launch__sm_count": sms}), grid=(blocks, 1, 1))
    found = limits_of(one)
    told = why_unexplained(one) if found is None else str([found.limiter, *found.others])
    assert "occupancy" in told


@pytest.mark.parametrize(
    ("block", "bits", "excess", "rows"),
    [
        ((3, 3, 1), 32, 80, True),
        ((16, 16, 1), 32, 33, True),
        ((16, 16, 1), 32, 70, False),
        ((16, 16, 1), 8, 70, True),
        ((8, 8, 8), 32, 49, True),
        ((8, 8, 8), 64, 67, False),
        ((32, 8, 1), 32, 80, False),
        ((9, 1, 1), 32, 80, False),
    ],
)
def test_rows_of_a_block_shorter_than_a_warp_are_named_for_what_they_waste(
    block: tuple[int, int, int], bits: int, excess: float, rows: bool
) -> None:
    """A row of 16 words is two sectors, or three: what wastes more are accesses that are no rows of the block."""
    sectors = {f"memory_l2_theoretical_sectors_global{of}": n for of, n in (("", 100.0), ("_ideal", 100.0 - excess))}
    sectors[f"smsp__sass_inst_executed_op_memory_{bits}b.sum"] = 1e6
    one = replace(kernel({"lts__t_sectors": 90, **sectors}), block=block)
    found = limits_of(one)
    assert found is not None
    assert (figures_of(found, Cause.UNCOALESCED)["variant"] == "rows") is rows
    assert found.limiter is not Cause.UNCOALESCED or ("first dimension a multiple" in said_of(found)[1]) is rows


@pytest.mark.parametrize("few", [1, 2, 4])
def test_launches_of_a_kernel_are_told_by_what_limits_most_of_them(few: int) -> None:
    of_dram = [kernel({"dram__cycles_active": 75, ISSUE: 20}) for _ in range(9)]
    waiting = [kernel({"dram__cycles_active": 35, ISSUE: 20}) for _ in range(few)]
    every = [one for one in map(limits_of, [*of_dram, *waiting]) if one is not None]
    assert {one.limiter for one in every} == {Cause.MEMORY, Cause.LATENCY}
    for cause in (Cause.MEMORY, Cause.LATENCY):
        (group,) = launch_groups(every, cause)
        assert group.longest.limiter is Cause.MEMORY
        assert group.behind <= 1 and (cause is Cause.LATENCY or group.behind == 1)


def test_no_cause_of_a_kernel_comes_before_its_limiter() -> None:
    sectors = {f"memory_l2_theoretical_sectors_global{of}": n for of, n in (("", 100.0), ("_ideal", 70.0))}
    found = limits_of(kernel({"lts__t_sectors": 90, **sectors}))
    assert found is not None and found.limiter is Cause.MEMORY
    (group,) = launch_groups([found], Cause.UNCOALESCED)
    (limiter,) = launch_groups([found], Cause.MEMORY)
    assert group.gain_ns > limiter.gain_ns and group.gain_ns * group.behind < limiter.gain_ns


@pytest.mark.parametrize(("reason", "is_code"), [("no_instruction", True), ("no_instructions", True), ("wait", False)])
@pytest.mark.parametrize("unit", [ALU, "sm__pipe_fmaheavy_cycles_active", ISSUE])
def test_what_reaches_the_roof_is_what_warps_wait_for(reason: str, is_code: bool, unit: str) -> None:
    waits = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    pct = "" if unit != "sm__pipe_fmaheavy_cycles_active" else ELAPSED
    found = limits_of(kernel({unit + pct: 78, waits: 6, WAIT: 2}))
    assert found is not None and found.limiter is Cause.COMPUTE
    assert ("Unroll less" in said_of(found)[1]) is is_code


@pytest.mark.parametrize(("sectors", "is_wide"), [(4, False), (8, False), (16, True), (15.5, True), (32, False)])
def test_loads_of_sixteen_bytes_are_not_told_to_be_wider(sectors: float, is_wide: bool) -> None:
    loads = {
        f"l1tex__t_{of}_pipe_lsu_mem_global_op_ld.sum": 1e6 * n for of, n in {"sectors": sectors, "requests": 1}.items()
    }
    found = limits_of(kernel({"dram__cycles_active": 80, WAIT: 2, **loads}))
    assert found is not None and found.limiter is Cause.MEMORY
    assert ("16-byte loads per lane" in said_of(found)[1]) is not is_wide


@pytest.mark.parametrize("reason", ["drain", "membar"])
@pytest.mark.parametrize(("atomics", "stores", "is_atomic"), [(1, 0, True), (9, 0, True), (8, 1, True), (1, 9, False)])
def test_a_warps_end_and_a_fence_wait_for_what_was_written(
    reason: str, atomics: float, stores: float, is_atomic: bool
) -> None:
    """Nothing is written but by atomics: it is them that the end of a warp waits for."""
    requests = {"ld": 4.0, "st": stores, "red": atomics, "atom": 0.0}
    values = {f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum": 1e6 * count for op, count in requests.items()}
    values[f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"] = 2400.0
    values |= {"lts__t_sectors": 1, ISSUE: 0.2, "dram__cycles_active": 0.5, "smsp__inst_executed_op_shared_atom.sum": 0}
    found = limits_of(kernel({**values, "sm__warps_active.avg.pct_of_peak_sustained_active": 100}))
    assert found is not None
    assert (found.limiter is Cause.ATOMICS) is is_atomic


@pytest.mark.parametrize("wait", ["lg_throttle", "long_scoreboard"])
@pytest.mark.parametrize(
    ("turns", "loads", "is_atomic"),
    [(32, 2.0, True), (32, 4.0, True), (24, 2.0, True), (16, 2.0, True), (1, 6.0, False)],
)
def test_lanes_that_take_turns_at_a_word_wait_for_the_atomic_and_not_for_the_loads(
    wait: str, turns: float, loads: float, is_atomic: bool
) -> None:
    """A request of atomics is `turns` of L2's sectors, one of loads is four; nothing is busy."""
    requests = {"ld": loads, "st": 0.0, "red": 1.0, "atom": 0.0}
    values = {f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum": 1e6 * count for op, count in requests.items()}
    values |= {"lts__t_sectors_srcunit_tex_op_red.sum": 1e6 * turns, "lts__t_sectors_srcunit_tex_op_atom.sum": 0.0}
    values |= {
        "lts__t_sectors_srcunit_tex.sum": 1e6 * (turns + 4 * loads),
        "smsp__inst_executed_op_shared_atom.sum": 0.0,
    }
    values[f"smsp__average_warps_issue_stalled_{wait}_per_issue_active.ratio"] = 1800.0
    values |= {"lts__t_sectors": 5, ISSUE: 0.3, "dram__cycles_active": 1.6}
    found = limits_of(kernel({**values, "sm__warps_active.avg.pct_of_peak_sustained_active": 100}))
    assert found is not None
    assert (found.limiter is Cause.ATOMICS) is is_atomic
