"""What a program is told of kernels that only change a layout: channels last where convolutions convert, only there."""

from __future__ import annotations

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose

CAST = "at::native::direct_copy_kernel_cuda(c10::BFloat16)"
STRIDED = f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{CAST}>>"
PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
CONVOLUTION = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x128x64"
CONVERTERS = (
    "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>",
    "void cudnn::ops::nhwcToNchwKernel<__half, __half, float>",
    "batched_transpose_16x64_pack_4x4_ediv_1x2_half",
)


def advice(*names: str) -> str:
    """Of KRN102, for kernels of a millisecond each beside one of six."""
    rows = "\n".join(f"| k | `{name}` | {1000 * at} | {1000 * (at + 1)} |" for at, name in enumerate(names))
    end = 1000 * len(names)
    found = diagnose(
        trace_of(
            f"| device_ops | name | start_us | end_us |\n|-|-|-|-|\n{rows}\n"
            f"| k | `{PRODUCT}` | {end} | {end + 6000} |\n"
            "\n| host_ops | name | thread | start_us | end_us |\n|-|-|-|-|-|\n| o | `aten::copy_` | 1 | 0 | 10 |"
        )
    )
    return next(finding.advice for card, finding in found.findings if card.code == "KRN102")


@pytest.mark.parametrize("converter", CONVERTERS)
def test_a_network_that_converts_for_convolutions_is_told_of_channels_last(converter: str) -> None:
    assert advice(converter, CONVOLUTION).startswith("Use channels_last end to end")
    assert advice(converter, CONVOLUTION, converter, STRIDED).startswith("Use channels_last end to end")


@pytest.mark.parametrize("names", [(STRIDED,), (STRIDED, PRODUCT, STRIDED), (STRIDED, CONVERTERS[2], STRIDED)])
def test_other_programs_are_told_of_contiguous(names: tuple[str, ...]) -> None:
    assert "channels_last" not in advice(*names)
    assert advice(*names).startswith("Drop contiguous() before operators that take strides")
