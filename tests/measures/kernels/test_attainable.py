"""The bound of an operator against the time of its kernels, by hand on an H200."""

import json

import pytest

from timesink.measures.kernels.attainable import attainable
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, HOST_OPS
from timesink.model.trace import Trace

BF16 = "c10::BFloat16"
PRODUCT_NS = 2 * 8192**3 / (0.80 * 989.4e12) * 1e9
ADD_NS = 3 * 2 * 2**27 / (0.93 * 4.8e12) * 1e9


def trace(gpu: str) -> Trace:
    """One product of 8192 x 8192 x 8192 at half its bound, one addition of 2^27 elements at its bound."""
    ends = [1_000 + round(2 * PRODUCT_NS), 5_000_000 + round(ADD_NS)]
    ops = DEVICE_OPS.build(
        {
            "rank": 0, "device": 0, "process": 1, "stream": 7, "kind": "kernel",
            "name": ["nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "void at::native::vectorized_elementwise_kernel"],
            "start_ns": [1_000, 5_000_000], "end_ns": ends, "correlation": [1, 2],
        }
    )  # fmt: skip
    calls = API_CALLS.build(
        {
            "rank": 0, "process": 1, "thread": 1, "name": "cudaLaunchKernel",
            "start_ns": [10, 210], "end_ns": [20, 220], "correlation": [1, 2],
        }
    )  # fmt: skip
    host = HOST_OPS.build(
        {
            "rank": 0, "process": 1, "thread": 1, "name": ["aten::mm", "aten::add"],
            "start_ns": [0, 200], "end_ns": [100, 300],
            "input_shapes": [json.dumps([[8192, 8192], [8192, 8192]]), json.dumps([[2**27], [2**27]])],
            "input_dtypes": [json.dumps([BF16, BF16])] * 2,
        }
    )  # fmt: skip
    devices = DEVICES.build({"rank": [0], "device": [0], "name": [gpu]})
    return Trace("t", {DEVICE_OPS: ops, API_CALLS: calls, HOST_OPS: host, DEVICES: devices})


def test_each_operator_reaches_its_share_of_the_bound_that_limits_it() -> None:
    found = attainable(trace("NVIDIA H200"))
    rows = {row["name"]: row for row in found.operators.iter_rows(named=True)}
    assert rows["aten::mm"]["limiter"] == "compute"
    assert rows["aten::mm"]["attained_ratio"] == pytest.approx(0.5, rel=1e-6)
    assert rows["aten::add"]["limiter"] == "memory"
    assert rows["aten::add"]["attained_ratio"] == pytest.approx(1.0, rel=1e-5)
    assert found.covered_ratio == 1.0
    assert found.attained_ratio == pytest.approx((PRODUCT_NS + ADD_NS) / (2 * PRODUCT_NS + ADD_NS), rel=1e-5)


def test_a_gpu_without_known_peaks_has_no_bound() -> None:
    found = attainable(trace("A GPU of tomorrow"))
    assert found.operators.height == 0
    assert found.covered_ratio is None
    assert found.attained_ratio is None


def test_kernel_time_without_recorded_shapes_is_not_covered() -> None:
    whole = trace("NVIDIA H200")
    bare = {table: frame for table, frame in whole.tables.items() if table is not HOST_OPS}
    assert attainable(Trace("t", bare)).covered_ratio == 0.0
