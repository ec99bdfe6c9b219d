"""Counters sampled along the timeline are averaged over steps and over kernels, and stand as evidence.

Counters sampled on an H100 (benchmarks/lines/two_kernels.py): what each kernel was limited by.
"""

import lzma
from pathlib import Path

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Clear
from timesink.measures.counters.sampled import LEAST_SAMPLES, CounterMeans, counter_means, sampled, slow_clocks
from timesink.measures.kernels.facts import kernel_facts
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.readers import read

CAST = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>"
)


def metered(every_us: int = 20) -> Trace:
    """A cast from 0 to 2 ms, a product from 2 to 10 ms; counters sampled all along, another at its own scale too."""
    samples = []
    for at in range(every_us, 10_001, every_us):
        cast = at <= 2000
        samples += [
            f"| s | SMs Active [Throughput %] | {at} | {100 if cast else 75} |",
            f"| s | SMs Active [Cycles Active] | {at} | 900000 |",
            f"| s | Tensor Active [Throughput %] | {at} | {0 if cast else 50} |",
            f"| s | DRAM Read Bandwidth [Throughput %] | {at} | {80 if cast else 10} |",
        ]
    return trace_of(
        f"| device_ops | name | start_us | end_us |\n| k | `{CAST}` | 0 | 2000 |\n| k | gemm | 2000 | 10000 |\n\n"
        + "\n".join(["| gpu_metrics | name | time_us | value |", *samples])
    )


def test_a_mean_is_of_the_samples_that_end_inside() -> None:
    found = {mean.what: (mean.share, mean.samples) for mean in sampled(metered(), (0, 0), Intervals.one(0, 2_000_000))}
    assert found == {"SMs active": (1.0, 100), "tensor cores active": (0.0, 100), "DRAM read": (0.8, 100)}
    later = {mean.what: mean.share for mean in sampled(metered(), (0, 0), Intervals.one(2_000_000, 10_000_000))}
    assert later == {"SMs active": 0.75, "tensor cores active": 0.5, "DRAM read": 0.1}


def test_few_samples_and_other_devices_say_nothing() -> None:
    few = Intervals.one(0, (LEAST_SAMPLES - 1) * 20_000)
    assert sampled(metered(), (0, 0), few) == ()
    assert sampled(metered(), (0, 1), Intervals.one(0, 10_000_000)) == ()


def test_the_means_are_said_in_short_and_stand_beside_the_kernels_they_are_of() -> None:
    diagnosis = diagnose(metered())
    assert (
        "counters: on average over the 10.0 ms window, SMs active 80.0 %, tensor cores active 40.0 %, DRAM read 24.0 % "
        "(500 samples, GPU 0)"
    ) in diagnosis.statements
    (finding,) = (finding for card, finding in diagnosis.findings if card.code == "KRN101")
    facts = {fact.label: fact.measured.value for fact in finding.evidence if fact.table == "gpu_metrics"}
    assert facts == pytest.approx(
        {"SMs active while they run": 1.0, "tensor cores active while they run": 0.0, "DRAM read while they run": 0.8}
    )


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
