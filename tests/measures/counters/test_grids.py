"""Why SMs have no block: a grid too small, a last wave, or blocks of unequal length; on reports of known plants."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.kernels.score import faults_in, unpacked

from timesink.measures.counters.limiter import KernelLimits, kernel_limits
from timesink.measures.counters.waste import Cause
from timesink.readers import read
from timesink.rules.ncu._family import explain_limiter, gain_ns

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
    said = explain_limiter(launches[name])
    assert launches[name].limiter is Cause.OCCUPANCY
    assert words in f"{said.because} {said.advice}"


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
        said = explain_limiter(one)
        assert one.limiter is not Cause.OCCUPANCY or "unequal" not in f"{said.because} {said.advice}"
        assert "last wave" not in f"{said.because} {said.advice}"
