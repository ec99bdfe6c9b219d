"""Datasheet peaks: a name without doubt gets its figures, any other name gets None."""

import pytest

from timesink.knowledge.gpus import ENTRIES, Precision, matrix_types, peaks, plain_per_double


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
    "name", ["", "NVIDIA A100", "NVIDIA H100 NVL", "NVIDIA L400", "NVIDIA H20-3e", "llvmpipe", "T4000"]
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
    assert found.flops.get(Precision.FP32) == pytest.approx(2 * lanes * found.sm_count * ghz * 1e9, rel=0.005)


def test_every_entry_has_a_source_and_dense_rates_double_from_16_to_8_bit() -> None:
    for _, entry in ENTRIES:
        assert entry.source
        half, eighth = entry.flops.get(Precision.FP16), entry.flops.get(Precision.FP8)
        if half and eighth:
            assert eighth == pytest.approx(2 * half, rel=0.02)


def test_the_memory_of_a_b200_is_as_wide_and_fast_as_the_device_says() -> None:
    b200 = peaks("NVIDIA B200")
    assert b200 is not None
    assert b200.dram_bytes_per_s == pytest.approx(7680 / 8 * 3996e6 * 2, rel=1e-3)
    assert "pytorch/ao" in b200.source


@pytest.mark.parametrize(
    ("product", "capability", "types"),
    [
        ("Tesla V100-SXM2-16GB", (7, 0), "fp16"),
        ("NVIDIA TITAN V", (7, 0), "fp16"),
        ("Tesla T4", None, "fp16 int8"),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), "fp16 int8"),
        ("Quadro RTX 6000", (7, 5), "fp16 int8"),
        ("NVIDIA GeForce GTX 1660 Ti", (7, 5), ""),
        ("NVIDIA T1000 8GB", (7, 5), ""),
        ("Tesla P100-PCIE-16GB", (6, 0), ""),
        ("NVIDIA A100-SXM4-80GB", (8, 0), "fp16 bf16 tf32 int8 fp64"),
        ("NVIDIA GeForce RTX 3090", (8, 6), "fp16 bf16 tf32 int8"),
        ("NVIDIA L4", (8, 9), "fp16 bf16 tf32 fp8 int8"),
        ("NVIDIA H200", (9, 0), "fp16 bf16 tf32 fp8 int8 fp64"),
        ("NVIDIA B200", (10, 0), "fp16 bf16 tf32 fp8 fp4 int8"),
        ("NVIDIA GeForce RTX 5090", (12, 0), "fp16 bf16 tf32 fp8 fp4 int8"),
        ("AMD Instinct MI100", (9, 0), "fp16 bf16 int8"),
        ("AMD Instinct MI250X / MI250", (9, 0), "fp16 bf16 int8 fp64"),
        ("AMD Instinct MI300X", (9, 4), "fp16 bf16 tf32 fp8 int8 fp64"),
        ("AMD Instinct MI355X", (9, 5), "fp16 bf16 fp8 fp4 int8 fp64"),
        ("AMD Radeon RX 6900 XT", (10, 3), ""),
        ("AMD Radeon RX 7900 XTX", (11, 0), "fp16 bf16 int8"),
        ("gfx90a:sramecc+:xnack-", (9, 0), "fp16 bf16 int8 fp64"),
        ("gfx942:sramecc+:xnack-", (9, 4), "fp16 bf16 tf32 fp8 int8 fp64"),
        ("Intel(R) Data Center GPU Max 1550", None, "fp16 bf16 tf32 int8"),
        ("Intel(R) Arc(TM) A770 Graphics", None, "fp16 bf16 int8"),
    ],
)
def test_a_gpu_is_known_by_the_types_that_its_tensor_cores_compute(
    product: str, capability: tuple[int, int] | None, types: str
) -> None:
    assert matrix_types(product, capability) == frozenset(types.split())


@pytest.mark.parametrize("product", ["AMD Radeon Graphics", "a GPU of no table", "gfx1036", "MTT S4000"])
def test_what_an_unknown_gpu_computes_is_unknown(product: str) -> None:
    assert matrix_types(product, (9, 0)) is None


@pytest.mark.parametrize(
    ("product", "capability", "ratio"),
    [
        ("NVIDIA GeForce RTX 4070 Ti SUPER", (8, 9), 64),
        ("NVIDIA GeForce RTX 3070", (8, 6), 64),
        ("Tesla T4", (7, 5), 32),
        ("NVIDIA GeForce RTX 2060", (7, 5), 32),
        ("NVIDIA A100-PCIE-40GB", (8, 0), 2),
        ("NVIDIA H800", (9, 0), 64),
        ("NVIDIA H100 PCIe", (9, 0), 2),
        ("a GPU of no table", (9, 0), None),
        ("NVIDIA GeForce GTX 1080", (6, 1), None),
        ("", None, None),
    ],
)
def test_fp64_has_the_rate_that_all_known_of_a_chip_have(
    product: str, capability: tuple[int, int] | None, ratio: float | None
) -> None:
    """Of a GPU that its report tells nothing of, half the rate was said."""
    assert plain_per_double(product, capability) == ratio
