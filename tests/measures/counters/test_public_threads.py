"""What kernels of public threads are limited by: the answer of each thread, and four kernels more of its kind."""

import pytest
from tests.measures.counters.kernel_counter_strategies import kernel

from timesink.measures.counters import limiter
from timesink.measures.counters.limiter import KernelLimits, limits_of, why_unexplained
from timesink.measures.counters.waste import Cause
from timesink.records import replace
from timesink.rules.ncu.causes import said_of

WARPS, THEORY = "sm__warps_active.avg.pct_of_peak_sustained_active", "sm__maximum_warps_per_active_cycle_pct"
FMA, ALU, TENSOR = "sm__pipe_fma_cycles_active", "sm__pipe_alu_cycles_active", "sm__pipe_tensor_cycles_active"
DRAM, L2, ISSUE = "dram__cycles_active", "lts__t_sectors", "sm__inst_executed"
L1, LSU = "l1tex__data_pipe_lsu_wavefronts", "sm__inst_executed_pipe_lsu"
SHARED, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"
SECTORS, FEWEST = "memory_l2_theoretical_sectors_global", "memory_l2_theoretical_sectors_global_ideal"
CYCLES, ACTIVE = "sm__cycles_elapsed.max", "sm__cycles_active.avg"


def found_of(values: dict[str, float], **waits: float) -> KernelLimits:
    stalls = {f"smsp__average_warps_issue_stalled_{of}_per_issue_active.ratio": cycles for of, cycles in waits.items()}
    found = limits_of(kernel({**values, **stalls}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("busy", "waits"),
    [
        ({TENSOR: 24, L1: 21, DRAM: 9, WARPS: 6.2}, {"no_instruction": 2.6, "long_scoreboard": 1.1, "wait": 0.9}),
        ({ALU: 52, DRAM: 2, WARPS: 34}, {"no_instruction": 3.9, "wait": 1.1, "math_pipe_throttle": 0.6}),
        ({FMA: 60, ALU: 30, DRAM: 0.5, WARPS: 37}, {"no_instruction": 4.0, "wait": 1.2, "math_pipe_throttle": 0.3}),
        ({FMA: 71, DRAM: 1, WARPS: 50}, {"no_instruction": 5.0, "wait": 1.5}),
        ({ISSUE: 45, L2: 12, DRAM: 3, WARPS: 90}, {"no_instructions": 8.0, "wait": 2.0, "long_scoreboard": 1.0}),
    ],
)
def test_code_beyond_the_instruction_caches(busy: dict[str, float], waits: dict[str, float]) -> None:
    """NVIDIA's forum 178225 and 70424, its blog on the instruction cache: unroll less, before anything of the pipes."""
    found = found_of(busy, **waits)
    assert found.limiter is Cause.LATENCY
    assert said_of(found)[1].startswith("Unroll less")


@pytest.mark.parametrize("busy", [76, 86, 97])
def test_a_full_pipe_is_told_first_whatever_warps_wait_for(busy: float) -> None:
    assert found_of({FMA: busy, DRAM: 1, WARPS: 50}, no_instruction=5.0, wait=1.0).limiter is Cause.COMPUTE


@pytest.mark.parametrize("passes", [32, 16, 8, 4, 14.3])
def test_bank_conflicts(passes: float) -> None:
    """NVIDIA's forum 115731: full queues of shared memory."""
    values = {L1: 88, LSU: 9, ISSUE: 12, DRAM: 38, L2: 40, WARPS: 80, SHARED: 1e6 * passes, IDEAL: 1e6}
    values |= {
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 1e6 * passes,
        "launch__shared_mem_per_block_static": 4096,
    }
    values |= {"l1tex__cycles_elapsed.avg": 1e4 * passes, "launch__sm_count": 108, "smsp__inst_executed.sum": 8e6}
    found = found_of(values, mio_throttle=9, short_scoreboard=12, long_scoreboard=4, barrier=2, wait=1)
    assert found.limiter is Cause.BANK_CONFLICTS
    assert "Pad or swizzle" in said_of(found)[1]


@pytest.mark.parametrize("excess", [8.0, 4.0, 3.2, 6.0, 2.7])
def test_lanes_that_are_apart(excess: float) -> None:
    """NVIDIA's blog on analysis-driven optimization, its sample of double3."""
    values = {DRAM: 74, L2: 60, L1: 40, LSU: 4, WARPS: 95, SECTORS: 16e6 * excess, FEWEST: 16e6}
    values |= {"lts__t_sectors.sum": 14e6 * excess, "dram__bytes_read.sum": 4e8 * excess, "dram__bytes_write.sum": 1e7}
    loads = {"sectors": 16e6 * excess, "requests": 4e6}
    values |= {f"l1tex__t_{of}_pipe_lsu_mem_global_op_ld.sum": number for of, number in loads.items()}
    found = found_of(values, long_scoreboard=60, lg_throttle=8, barrier=3, wait=1)
    assert found.limiter is Cause.UNCOALESCED
    assert "adjacent" in said_of(found)[1]


@pytest.mark.parametrize(("waves", "idle"), [(1.1, 0.42), (1.03, 0.45), (2.05, 0.3), (1.2, 0.38), (1.01, 0.48)])
def test_a_last_wave(waves: float, idle: float) -> None:
    """NVIDIA's forum 148448."""
    values = {ISSUE: 40, DRAM: 20, WARPS: 95, THEORY: 100, CYCLES: 1e6, ACTIVE: 1e6 * (1 - idle)}
    values |= {"launch__waves_per_multiprocessor": waves, "launch__sm_count": 100}
    stalls = {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 5.0}
    found = limits_of(replace(kernel({**values, **stalls}, duration_ns=3e5), grid=(int(100 * 8 * waves), 1, 1)))
    assert found is not None and found.limiter is Cause.OCCUPANCY
    assert "last wave" in said_of(found)[0]


@pytest.mark.parametrize("busy", [{ALU: 49}, {TENSOR: 54, ALU: 9}, {ISSUE: 16, LSU: 12}, {FMA: 30}, {L1: 16, LSU: 9}])
def test_a_page_without_memory_and_waits_names_no_latency(
    busy: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of the section of compute alone: memory may be what is waited for, and nobody looked."""
    monkeypatch.setattr(limiter, "_NAMED", len(Cause))
    one = kernel(busy)
    assert limits_of(one) is None
    assert "latency" in why_unexplained(one) and "memory" in why_unexplained(one)
    assert limits_of(kernel({**busy, DRAM: 3, WARPS: 100})) is not None


@pytest.mark.parametrize(
    "busy", [{TENSOR: 61}, {FMA: 70, ISSUE: 40}, {ALU: 66}, {TENSOR: 74, ALU: 9}, {FMA: 63, ALU: 60}]
)
def test_a_full_pipe_leads_though_memory_was_not_measured(busy: dict[str, float]) -> None:
    found = limits_of(kernel(busy))
    assert found is not None and found.limiter is Cause.COMPUTE
    assert Cause.MEMORY in found.others
