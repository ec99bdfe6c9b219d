"""Counters sampled on an H100 (benchmarks/lines/two_kernels.py): what each kernel was limited by."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Clear
from timesink.measures.counters.sampled import CounterMeans, counter_means, slow_clocks
from timesink.measures.kernels.facts import kernel_facts
from timesink.model.trace import Trace
from timesink.readers import read

CAPTURE = Path(__file__).parents[3] / "benchmarks/lines/captures/two_kernels.sqlite.xz"
BYTES = 4096 * 4096 * 4  # that a pass over memory reads, and writes
PEAK = 3.3523e12  # bytes per s that the driver states


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("counters") / "two_kernels.sqlite"
    path.write_bytes(lzma.decompress(CAPTURE.read_bytes()))
    return read([path])


@pytest.fixture(scope="module")
def by_family(trace: Trace) -> dict[str, dict[str, float]]:
    means: tuple[CounterMeans, ...] = counter_means(trace)
    return {mean.name: {part.what: part.share for part in mean.shares} for mean in means if mean.part == "kernels"}


def test_passes_over_memory_and_a_product_are_told_apart(by_family: dict[str, dict[str, float]]) -> None:
    memory, product = by_family["pointwise"], by_family["gemm"]
    assert memory["DRAM read"] + memory["DRAM written"] > 0.8
    assert product["DRAM read"] + product["DRAM written"] < 0.06
    assert min(memory["SMs active"], product["SMs active"]) > 0.9


def test_sampled_bandwidth_is_that_of_the_bytes_moved(trace: Trace, by_family: dict[str, dict[str, float]]) -> None:
    """Within five points: reads and writes of one pass, over its time, against the peak."""
    passes = kernel_facts(trace).on((0, 0)).filter(family="pointwise")["length"]
    moved = BYTES / (float(passes.mean()) * 1e-9) / PEAK  # type: ignore[arg-type]
    assert by_family["pointwise"]["DRAM read"] == pytest.approx(moved, abs=0.05)
    assert by_family["pointwise"]["DRAM written"] == pytest.approx(moved, abs=0.05)


def test_a_device_at_work_and_at_its_highest_clock_is_clear(trace: Trace) -> None:
    (clock,) = slow_clocks(trace)
    assert clock.clock_hz / clock.most_hz == pytest.approx(1.0, abs=0.01)
    for code in ("KRN112", "KRN113"):
        assert isinstance(find(code).verdict(trace), Clear), code
