"""Why SMs have no block: a grid too small, a last wave, or blocks of unequal length; on reports of known plants."""

from pathlib import Path

import pytest
from benchmarks.kernels.score import faults_in, unpacked
from tests.measures.counters.kernel_counter_strategies import kernel

from timesink.measures.counters.causes import gain_ns
from timesink.measures.counters.limiter import KernelLimits, kernel_limits, limits_of
from timesink.measures.counters.waste import Cause
from timesink.readers import read
from timesink.records import replace
from timesink.rules.ncu.causes import said_of

KERNELS = Path(__file__).parents[3] / "benchmarks" / "kernels"

PLANTED = {
    "reports/occupancy": {"last_wave": "last wave", "small_grid": "enough blocks"},
    "unseen/reports/cuda": {"dearest_last": "unequal", "sorted_items": "unequal"},
    "unseen2/reports/cuda": {"uneven_rows": "unequal", "growing_rows": "unequal"},
    "unseen3/reports/cuda": {"long_sequence": "unequal"},
    "unseen4/reports/cuda": {"second_wave": "last wave", "causal_rows": "unequal"},
    "unseen5/reports/cuda": {"hub_last": "unequal", "popular_expert": "unequal"},
    "unseen6/reports/triton": {"deep_product": "enough blocks"},
    "unseen8/reports/cuda": {"wave_and_a_bit": "last wave"},
}


@pytest.fixture(scope="module")
def launches() -> dict[str, KernelLimits]:
    return {name: one for path in PLANTED for name, one in faults_in(KERNELS / f"{path}.ncu-rep.xz")[0]}


@pytest.mark.parametrize(("name", "words"), [pair for names in PLANTED.values() for pair in names.items()])
def test_the_advice_is_for_what_was_planted(name: str, words: str, launches: dict[str, KernelLimits]) -> None:
    said = said_of(launches[name])
    assert launches[name].limiter is Cause.OCCUPANCY
    assert words in " ".join(said)


@pytest.mark.parametrize("name", ["last_wave", "second_wave", "wave_and_a_bit"])
def test_a_last_wave_is_priced_as_what_it_leaves_empty(name: str, launches: dict[str, KernelLimits]) -> None:
    """Equal blocks in whole waves take as much less time as the last wave leaves empty, to a tenth."""
    one = launches[name]
    tail = one.occupancy.tail
    assert tail is not None and one.kernel.duration_ns is not None
    assert gain_ns(one, Cause.OCCUPANCY) / one.kernel.duration_ns == pytest.approx(tail, rel=0.1)


EQUAL = {
    "reports/arithmetic": "many_exponentials_fix",
    "reports/divergence": "first_lane_only_fix",
    "reports/atomics": "global_histogram_fix",
    "reports/latency": "fence_each_store_fix",
}


@pytest.mark.parametrize(("path", "function"), EQUAL.items())
def test_what_any_launch_leaves_empty_is_no_word_on_its_blocks(path: str, function: str) -> None:
    """Launches of 5 to 16 us whose blocks are equal: SMs stand empty for 2 to 4 us of them, as they begin and end."""
    with unpacked(KERNELS / f"{path}.ncu-rep.xz") as report:
        launches = [one for one in kernel_limits(read(report, cache=False)) if one and one.kernel.function == function]
    assert launches
    for one in launches:
        said = said_of(one)
        assert one.limiter is not Cause.OCCUPANCY or "unequal" not in " ".join(said)
        assert "last wave" not in " ".join(said)


@pytest.mark.parametrize(
    ("us", "blocks", "waves", "idle", "words"),
    [
        (7.6, 2048, 0.97, 0.30, "begins and ends"),  # 2.3 us of an elementwise kernel of BERT, on all SMs
        (17.8, 132, 1.0, 0.18, "begins and ends"),
        (13.2, 8192, 3.88, 0.20, "begins and ends"),
        (20.3, 16, 0.06, 0.89, "enough blocks"),
        (40.0, 1, 0.0, 0.99, "many blocks"),  # a wave is printed with two digits
        (24.4, 108, 0.20, 0.42, "enough blocks"),  # few warps on most SMs
        (15.0, 256, 0.22, 0.30, "enough blocks"),  # few warps on all
        (200.0, 2048, 0.97, 0.30, "unequal"),
        (200.0, 140, 1.06, 0.47, "last wave"),
    ],
)
def test_a_short_launch_is_not_told_of_blocks_that_fill_the_gpu(
    us: float, blocks: int, waves: float, idle: float, words: str
) -> None:
    values = {
        "sm__inst_executed": 30, "launch__waves_per_multiprocessor": waves, "launch__sm_count": 132,
        "sm__cycles_active.avg": 1000 * (1 - idle), "sm__cycles_elapsed.max": 1000,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 100 * min(waves, 0.6),
        "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 10,
    }  # fmt: skip
    one = limits_of(replace(kernel(values, duration_ns=1e3 * us), grid=(blocks, 1, 1), block=(128, 1, 1)))
    assert one is not None
    said = said_of(replace(one, shares={**one.shares, Cause.OCCUPANCY: idle, Cause.LATENCY: 0.0}))
    assert words in " ".join(said)
