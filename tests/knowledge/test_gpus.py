"""Datasheet peaks: a name without doubt gets its figures, any other name gets None."""

from __future__ import annotations

import pytest

from timesink.knowledge.gpus import ENTRIES, Precision, peaks


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("NVIDIA GH200 480GB", "GH200 96GB HBM3"),
        ("NVIDIA GB200", "GB200 (one GPU)"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
    ],
)
def test_a_driver_name_finds_its_product(name: str, product: str) -> None:
    found = peaks(name)
    assert found is not None
    assert found.product == product


@pytest.mark.parametrize(
    "name", ["", "NVIDIA A100", "NVIDIA H100 NVL", "NVIDIA L400", "NVIDIA H20", "llvmpipe", "T4000"]
)
def test_a_doubtful_name_is_unknown(name: str) -> None:
    assert peaks(name) is None


def test_the_ridge_is_rate_over_bandwidth() -> None:
    h100 = peaks("NVIDIA H100 PCIe")
    assert h100 is not None
    assert h100.ridge(Precision.FP16) == pytest.approx(756e12 / 2039e9)
    assert h100.ridge(Precision.FP4) is None


@pytest.mark.parametrize(
    ("name", "lanes", "ghz"),
    [("Tesla V100-SXM2-32GB", 64, 1.53), ("NVIDIA A100-SXM4-40GB", 64, 1.41), ("NVIDIA H200", 128, 1.98)],
)
def test_fp32_is_two_operations_per_lane_and_clock(name: str, lanes: int, ghz: float) -> None:
    found = peaks(name)
    assert found is not None
    assert found.flops_of(Precision.FP32) == pytest.approx(2 * lanes * found.sm_count * ghz * 1e9, rel=0.005)


def test_every_entry_has_a_source_and_dense_rates_double_from_16_to_8_bit() -> None:
    for _, entry in ENTRIES:
        assert entry.source
        half, eighth = entry.flops_of(Precision.FP16), entry.flops_of(Precision.FP8)
        if half and eighth:
            assert eighth == pytest.approx(2 * half, rel=0.02)


def test_the_memory_of_a_b200_is_as_wide_and_fast_as_the_device_says() -> None:
    b200 = peaks("NVIDIA B200")
    assert b200 is not None
    assert b200.dram_bytes_per_s == pytest.approx(7680 / 8 * 3996e6 * 2, rel=1e-3)
    assert "pytorch/ao" in b200.source
