"""Kernel names seen in real traces, and what they say."""

from __future__ import annotations

import pytest

from timesink.knowledge.kernels import KernelFamily as F
from timesink.knowledge.kernels import decode

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"


@pytest.mark.parametrize(
    ("name", "family", "math"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", F.GEMM, "bf16"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_TNN", F.GEMM, "fp16"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4", F.GEMM, "fp32"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute", F.GEMM, "tf32"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute", F.GEMM, "bf16"),
        ("ampere_sgemm_32x32_sliced1x4_tn", F.GEMM, "fp32"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>", F.GEMM, "bf16"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1", F.GEMM, "bf16"),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128>", F.GEMV, "bf16"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x128x64", F.ATTENTION, None),
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, cutlass::bfloat16_t>",
            F.ATTENTION,
            "bf16",
        ),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", F.ATTENTION, "bf16"),
        (
            "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16",
            F.CONVOLUTION,
            "tf32",
        ),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", F.CONVOLUTION, "fp32"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>", F.LAYOUT, "fp32"),
        (ELEMENTWISE + "AddFunctor<float>, at::detail::Array<char*, 3> >", F.POINTWISE, "fp32"),
        (ELEMENTWISE + "FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >", F.FILL, "bf16"),
        (ELEMENTWISE + "bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)", F.COPY, "bf16"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4> >", F.FOREACH, None),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>",
            F.NORM,
            "bf16",
        ),
        (
            "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, true>",
            F.SOFTMAX,
            "fp32",
        ),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>", F.SOFTMAX, "fp32"),
        (
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
            F.LOSS,
            "fp32",
        ),
        ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16>>", F.REDUCTION, "bf16"),
        ("triton_poi_fused_add_cos_sin_3", F.POINTWISE, None),
        ("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_0", F.REDUCTION, None),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true>", F.GEMM, "fp32"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", F.COMMUNICATION, None),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", F.COMMUNICATION, None),
        ("a_kernel_of_my_own", F.OTHER, None),
    ],
)
def test_a_real_name_says_its_family_and_arithmetic(name: str, family: F, math: str | None) -> None:
    decoded = decode(name)
    assert (decoded.family, decoded.math) == (family, math)


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT", (192, 208)),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4", (32, 32)),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align2>", (128, 64)),
        ("ampere_sgemm_128x64_nn", (128, 64)),
    ],
)
def test_tiles_are_read_from_gemm_names(name: str, tile: tuple[int, int]) -> None:
    assert decode(name).tile == tile


@pytest.mark.parametrize("name", ["hipMemcpyDtoH", "Memcpy PtoP", "triton_poi_fused_reduce_1", "cutlass_gemm"])
def test_copies_and_computation_are_not_communication(name: str) -> None:
    assert decode(name).family is not F.COMMUNICATION
