"""What a narrower type leaves of products that memory bounds, by hand."""

import pytest
from tests.tables import trace_of

from timesink.fixes.precisions import autocast
from timesink.measures.kernels.precision import four_byte_kernels, wide_kernels
from timesink.model.trace import Trace
from timesink.whatif import Case

PRODUCT = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>"
MOVED = 4 * (8192 * 64 + 64 * 64 + 8192 * 64)  # bytes: both operands are read, and the result written


def products(gpu: str) -> Trace:
    """A product of 8,192 rows in 10 us, one in 1 us, less than its bytes should take, and one without shapes."""
    return trace_of(f"""
| devices | name |
| gpu | {gpu} |

| device_ops | kind | name | start_us | end_us | correlation |
| long | kernel | `{PRODUCT}` | 0 | 10 | 1 |
| short | kernel | `{PRODUCT}` | 20 | 21 | 2 |
| unknown | kernel | `{PRODUCT}` | 30 | 40 | 3 |

| api_calls | name | start_us | end_us | correlation |
| long | cudaLaunchKernel | -40 | -39 | 1 |
| short | cudaLaunchKernel | -30 | -29 | 2 |
| unknown | cudaLaunchKernel | -20 | -19 | 3 |

| host_ops | name | start_us | end_us | input_shapes | input_dtypes |
| long | aten::mm | -42 | -38 | `[[8192,64],[64,64]]` | `["float","float"]` |
| short | aten::mm | -32 | -28 | `[[8192,64],[64,64]]` | `["float","float"]` |
""")


def test_the_bytes_of_a_product_take_a_share_of_its_time_that_no_rate_makes_shorter() -> None:
    """4.2 MB at 0.93 of 3,352 GB/s take 1.35 us: 14 % of ten, and all of one."""
    trace = products("NVIDIA H100 80GB HBM3")
    for (kernels,) in (wide_kernels(trace)["fp32"], four_byte_kernels(trace)["bf16"]):
        shares = dict(zip(kernels.rows.tolist(), kernels.usual.tolist(), strict=True))
        assert shares == pytest.approx(
            {0: MOVED / (0.93 * 3352e9) * 1e9 / 10_000, 1: 1.0, 2: float("nan")}, nan_ok=True
        )
    (unknown,) = wide_kernels(products("a GPU of no table"))["fp32"]
    assert unknown.usual.tolist() == pytest.approx([float("nan")] * 3, nan_ok=True)


@pytest.mark.parametrize(
    ("gpu", "kept"),
    [
        ("NVIDIA GeForce RTX 4090", 0.575),
        ("NVIDIA L40S", 0.289),
        ("NVIDIA H100 80GB HBM3", 0.17),
        ("of no table", 0.17),
    ],
)
def test_under_autocast_products_keep_what_the_peaks_of_their_gpu_say_where_these_are_near(
    gpu: str, kept: float
) -> None:
    """A 4090 computes 82.6 TFLOP/s in fp32 and 165.2 in bf16: 1.15 of a half; an L40S 91.6 and 362. The third product
    has no shapes."""
    (kernels,) = four_byte_kernels(products(gpu))["bf16"]
    assert autocast(kernels).kernels.keep[list(Case).index(Case.EXPECTED)][2] == pytest.approx(kept, abs=0.002)
