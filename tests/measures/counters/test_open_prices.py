"""Where counters are missing, what is said to take the time and what is said to be won are of what is advised."""

import re

import pytest
from benchmarks.kernels.score import unpacked
from tests.measures.counters.kernel_counter_strategies import kernel
from tests.measures.counters.test_prices_of_advice import ALU, ISSUE, LSU, PASSES, SECTORS, SETS, measured
from tests.measures.counters.test_what_counters_allow import KERNELS, NO_SHARED, basic

from timesink.measures.counters import KernelCounters, kernel_counters
from timesink.measures.counters.bounds import bound_without, is_fp32_product
from timesink.measures.counters.causes import OPTIMIZE, advised_bound, as_it_is, figures_of, most_ns, to_roof, told_most
from timesink.measures.counters.groups import launch_groups
from timesink.measures.counters.limiter import KernelLimits, limits_of
from timesink.measures.counters.resources import Resource, leaves
from timesink.measures.counters.sheet import told_speedup
from timesink.measures.counters.waste import Cause
from timesink.readers import read
from timesink.records import replace
from timesink.rules.ncu.causes import _figures, _row, said_of
from timesink.units import times_text

FMA, TENSOR, DRAM = "sm__pipe_fma_cycles_active", "sm__pipe_tensor_cycles_active", "dram__cycles_active"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
LSU_INSTRUCTIONS, ADU = "sm__inst_executed_pipe_lsu", "sm__inst_executed_pipe_adu.avg.pct_of_peak_sustained_elapsed"
SHARED = {"launch__shared_mem_per_block_static": 4096, "launch__sm_count": 80}
FULL_SMS = {"sm__cycles_active.avg": 100, "sm__cycles_elapsed.max": 100}


def page(**values: float) -> dict[str, float]:
    """Units of a basic set: nobody counted accesses, lanes or waits."""
    units = {LSU: 8, LSU_INSTRUCTIONS: 8, PASSES: 7, SECTORS: 3, DRAM: 1, ISSUE: 12, FMA: 9, ALU: 6, WARPS: 90}
    return {**SHARED, **FULL_SMS, **units, **values}


def of_page(values: dict[str, float], chip: tuple[int, int] = (8, 6)) -> KernelLimits:
    found = limits_of(replace(kernel(values), compute_capability=chip, grid=(800, 1, 1)))
    assert found is not None
    return found


def said(one: KernelLimits) -> str:
    (group,) = launch_groups([one], one.limiter)
    return str(_row(group, one.limiter, _figures(one.limiter, one), None).figures["then"])


def saved(one: KernelLimits) -> float:
    return most_ns(one, one.limiter) / (one.kernel.duration_ns or 1.0)


@pytest.mark.parametrize("busy", [62, 66, 71, 77, 83, 91])
@pytest.mark.parametrize("fma", [10, 17, 30])
def test_less_work_is_not_priced_as_other_work(busy: float, fma: float) -> None:
    """Moved to tensor cores it might win nearly all of its time; loads that are fewer leave the arithmetic."""
    one = of_page(page(**{LSU: busy, LSU_INSTRUCTIONS: busy, PASSES: busy / 2, FMA: fma}))
    assert one.limiter is Cause.MEMORY and one.others
    assert to_roof(one, one.limiter) is None and "up to the roof" not in said_of(one)[1]
    assert saved(one) <= max(1 - fma / 100, 1 - busy / 100) + 1e-6
    assert told_most(one, one.limiter) == pytest.approx(max(saved(one), busy / 100), abs=0.01)
    told = f"as fast with less work, and {times_text(1 / one.roof[1])} with the same"
    assert (told in said(one)) is (saved(one) > 1.01 - one.roof[1])


@pytest.mark.parametrize("busy", [21, 35, 43, 50, 56])
def test_what_hidden_waits_win_is_told_beside_what_fewer_do(busy: float) -> None:
    one = of_page(page(**{ALU: busy, ISSUE: busy / 2, FMA: busy / 8}))
    assert one.limiter is Cause.LATENCY and one.others
    assert as_it_is(one, one.limiter) == pytest.approx(1 / one.top.busy)
    assert f"as fast with fewer waits, and {times_text(1 / one.top.busy)} with its waits hidden" in said(one)


@pytest.mark.parametrize("busy", [22, 35, 48, 55])
def test_but_of_the_unit_of_barriers_nobody_knows_whether_it_works(busy: float) -> None:
    one = of_page(page(**{ADU: busy}))
    assert one.limiter is Cause.LATENCY and one.top.is_of_barriers
    assert as_it_is(one, one.limiter) is None
    assert told_most(one, one.limiter) == one.most_share(one.limiter)


@pytest.mark.parametrize("folder", SETS)
def test_of_basic_sets_latency_takes_no_less_at_most_than_the_full_set_has(folder: str) -> None:
    for full, _ in measured(folder):
        one = limits_of(basic(full.kernel))
        if one is not None and one.others and one.limiter is Cause.LATENCY:
            assert told_most(one, Cause.LATENCY) >= full.shares[Cause.LATENCY] - 0.01, full.kernel.function


@pytest.mark.parametrize("warps", [6, 15, 32, 40])
@pytest.mark.parametrize("busy", [1, 4, 9])
def test_more_warps_win_no_more_than_there_are_places(warps: float, busy: float) -> None:
    units = dict.fromkeys((LSU, LSU_INSTRUCTIONS, PASSES, ALU, FMA, ISSUE, SECTORS, DRAM), busy / 2)
    limits = {"launch__occupancy_limit_blocks": 4, "launch__occupancy_limit_warps": 12}
    theory = {"sm__maximum_warps_per_active_cycle_pct": warps + 1}
    one = of_page(page(**{**units, ISSUE: busy, WARPS: warps, **limits, **theory}))
    assert one.limiter is Cause.OCCUPANCY and one.others
    assert saved(one) <= 1 - warps / 100 + 1e-6


@pytest.mark.parametrize("tensor", [12, 30, 43, 54])
@pytest.mark.parametrize("busy", [67, 73, 82])
def test_fewer_integers_leave_tensor_cores_their_work(tensor: float, busy: float) -> None:
    waits = {
        f"smsp__average_warps_issue_stalled_{of}_per_issue_active.ratio": n
        for of, n in (("wait", 2), ("math_pipe_throttle", 9))
    }
    one = of_page({**page(**{ALU: busy, TENSOR: tensor}), **NO_SHARED, **waits})
    assert one.limiter is Cause.COMPUTE and one.top.resource is Resource.ALU
    assert to_roof(one, one.limiter) is None
    assert saved(one) <= 1 - tensor / 100 + 1e-6


@pytest.mark.parametrize("folder", SETS)
def test_of_basic_sets_prices_hold_as_they_did_by_the_next_ceiling(folder: str) -> None:
    """What the planted fix won is no more than the price, where it was no more than the ceiling without its limiter."""
    for full, won in measured(folder):
        one = limits_of(basic(full.kernel))
        if one is None or not one.others:
            continue
        ceiling = 1 - 1 / one.bounds[one.limiter]
        assert won <= saved(one) + 1e-6 or won > ceiling, full.kernel.function


@pytest.mark.parametrize("busy", [(62, 88), (88, 62), (65, 70, 75), (62, 62), (77, 63, 89)])
@pytest.mark.parametrize("fma", [9, 25])
def test_what_several_launches_win_is_no_more_than_what_is_said_of_them(busy: tuple[float, ...], fma: float) -> None:
    every = [of_page(page(**{LSU: of, LSU_INSTRUCTIONS: of, PASSES: of / 2, FMA: fma * of / 62})) for of in busy]
    (group,) = launch_groups(every, Cause.MEMORY)
    row = _row(group, Cause.MEMORY, _figures(Cause.MEMORY, group.longest), None)
    factor = re.search(r"at most ([\d.]+)× as fast", str(row.figures["then"]))
    share = re.search(r"spends at most ([\d.]+) %", str(row.figures["spends"]))
    assert share is not None and row.stated is not None
    most = row.stated.value / (group.total_ns / 1e6)
    assert most <= float(share[1]) / 100 + 0.005
    assert factor is None or most == pytest.approx(1 - 1 / float(factor[1]), abs=0.01)


QUICK = ("reports/coalescing", "unseen8/reports/cuda", "unseen9/reports/cuda")


@pytest.mark.parametrize("report", QUICK)
def test_figures_of_an_open_verdict_agree(report: str) -> None:
    """The advice is not to be quicker with the same work where nobody knows whether that work is needed, what is told
    of both ways is in this order, and a share of work is no more than its unit may be busy."""
    with unpacked(KERNELS / f"{report}.ncu-rep.xz") as path:
        launches = kernel_counters(read(path, cache=False))
    narrow = [one for one in map(limits_of, map(basic, launches)) if one is not None and one.others]
    assert narrow
    for one in narrow:
        cause = one.limiter
        assert "up to the roof" not in said_of(one)[1]
        assert one.least_share(cause) <= told_most(one, cause) <= one.most_share(cause) + 1e-9
        speedup = told_speedup(one)  # of the table: what its share of the time leaves
        assert speedup is None or told_most(one, one.limiter) >= 1 - 1 / speedup - 1e-9
        kept, bound = as_it_is(one, cause), min(one.bounds[cause], advised_bound(one, cause))
        assert kept is None or kept <= bound * 1.01 or cause is not Cause.MEMORY
        assert most_ns(one, cause) <= told_most(one, cause) * (one.kernel.duration_ns or 0.0) * 1.01
        if cause is Cause.MEMORY and not is_fp32_product(one.kernel) and not one.is_roof_least:
            assert bound <= max(bound_without(cause, one.leaves, one.waste), one.roof_speedup or 1.0) + 1e-9


TURING = {
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 58.7,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 58.7,
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": 35.4,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 3.4,
}


def levels(l1: float, active: float) -> KernelCounters:
    busy = {"l1tex__throughput.avg.pct_of_peak_sustained_active": l1}
    return kernel({**TURING, **busy, "sm__cycles_active.avg": active, "gpc__cycles_elapsed.max": 1000})


@pytest.mark.parametrize(("l1", "active"), [(81.3, 975), (90.6, 993), (77, 900), (98, 999), (70, 1000)])
def test_a_page_says_of_l1_what_fills_it_where_the_summary_of_memory_lacks_that(l1: float, active: float) -> None:
    """Compute capability 7.5 moves 64 bytes a cycle: its level is up to twice what the summary has."""
    (busy,) = (
        leaf.busy
        for leaf in leaves(replace(levels(l1, active), compute_capability=(7, 5)))
        if leaf.resource is Resource.L1
    )
    assert busy == pytest.approx(l1 / 100 * active / 1000)


@pytest.mark.parametrize(("l1", "chip"), [(81.3, (8, 0)), (90.6, (9, 0)), (63, (7, 5)), (64, (8, 6)), (59, (12, 0))])
def test_elsewhere_it_is_no_more_than_that_summary(l1: float, chip: tuple[int, int]) -> None:
    (busy,) = (
        leaf.busy for leaf in leaves(replace(levels(l1, 990), compute_capability=chip)) if leaf.resource is Resource.L1
    )
    assert busy == pytest.approx(min(l1, 58.7) / 100)


@pytest.mark.parametrize("wait", [10.5, 13.4, 13.7, 13.9])
@pytest.mark.parametrize(("requests", "wasted"), [(40, 0.4), (75, 0.6)])
def test_spills_of_unoptimized_code_are_compiled_away_first(wait: float, requests: float, wasted: float) -> None:
    local = {
        "smsp__inst_executed.sum": 1000,
        "smsp__sass_inst_executed_op_local_ld.sum": 1000 * wasted,
        "smsp__sass_inst_executed_op_local_st.sum": 0,
        "l1tex__t_output_wavefronts_pipe_lsu_mem_local_op_ld.sum": 900 * wasted,
        "l1tex__data_pipe_lsu_wavefronts.sum": 1000,
        LSU: requests,
        PASSES: requests,
    }
    waits = {"smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": wait}
    for one, is_slow in ((kernel({**local, **waits}), True), (kernel({**local, waits.popitem()[0]: 2.0}), False)):
        found = limits_of(one)
        assert found is not None
        figures = figures_of(found, Cause.REGISTER_SPILLS)
        assert (figures.get("advice") == OPTIMIZE) is is_slow
