"""Short names of kernels: what they say, and that different kernels of a table keep different ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import examples

from timesink.knowledge.kernel_names import fused_operators, short_name, short_names
from timesink.knowledge.kernels import decode

ATEN = "void at::native::"
MUL = "at::native::binary_internal::MulFunctor<float>"
UNARY = f"at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, {MUL} >"
CUTLASS = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1::Params)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (f"{ATEN}vectorized_elementwise_kernel<8, {UNARY}, std::array<char*, 2ul> >(int)", "elementwise Mul bf16"),
        (CUTLASS, "gemm bf16 align1 128×128 (cutlass)"),
        (CUTLASS.replace("_128x128_", "_64x64_32x6_"), "gemm bf16 align1 64×64 (cutlass)"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm bf16 256×128 (nvjet)"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "gemm fp32 32×32 (cublas)"),
        ("volta_scudnn_128x64_relu_small_nn_v1", "conv fp32 128×64 (cudnn)"),
        (f"{ATEN}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
         "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}> >(int)",
         "elementwise copy fp32"),
        (f"{ATEN}(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
         "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>, "
         "float const*, double>(T1)", "foreach FusedAdam fp32"),
        (f"{ATEN}reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps<c10::BFloat16, float> >",
         "reduce Mean bf16"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)",
         "log_softmax forward fp32"),
        ("triton_poi_fused_add_cos_sin_0", "fused 0: add, cos, sin (triton)"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl AllReduce_Sum_f32_RING_LL"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16EEvPT0_", "add_rmsnorm_quant bf16"),
        ("my_own(int, float*)", "my_own fp32"),
    ],
)  # fmt: skip
def test_says_work_type_tile_and_library(name: str, short: str) -> None:
    assert short_name(name) == short


def test_kernels_that_share_a_short_name_are_told_apart_by_what_differs() -> None:
    names = [CUTLASS, CUTLASS.replace("_tn_", "_nn_"), "nvjet_sm90_tst_128x128_64x6_1x2_h_bz_NTT"]
    assert short_names(names) == {
        names[0]: "gemm bf16 align1 128×128 (cutlass) tn",
        names[1]: "gemm bf16 align1 128×128 (cutlass) nn",
        names[2]: "gemm bf16 128×128 (nvjet)",
    }


def test_operators_of_a_generated_kernel_are_told_apart_or_not_at_all() -> None:
    name = "triton_per_fused__softmax__softmax_backward_data__to_copy_masked_fill_native_layer_norm_view_10"
    told = ("_softmax", "_softmax_backward_data", "_to_copy", "masked_fill", "native_layer_norm", "view")
    assert fused_operators(name) == told
    assert fused_operators("triton_poi_fused_native_foo_norm_add_3") == ()  # sorted, it would begin with "add"
    assert short_name("triton_poi_fused_native_foo_norm_add_3") == "fused 3: native_foo_norm_add (triton)"
    assert short_name("triton_poi_fused_0") == "fused 0 (triton)"
    assert fused_operators("aten::add_mul_3") == ()


def test_kernels_that_differ_in_no_word_are_numbered() -> None:
    assert sorted(short_names(["f(int*)", "f(int *)", "f(int**)"]).values()) == ["f #1", "f #2", "f #3"]


def test_the_tile_is_that_of_the_block_and_not_of_the_stages() -> None:
    assert decode("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4").tile == (128, 128)


PARTS = st.sampled_from(
    [
        "void ",
        "at::native::",
        "elementwise_kernel<",
        "MulFunctor<float>",
        "gemm_",
        "128x64_",
        "tn",
        "(int)",
        ">",
        "_ZN3",
        "#1",
    ]
)


@given(st.sets(st.one_of(st.text(max_size=20), st.lists(PARTS, max_size=8).map("".join)), max_size=12))
@settings(max_examples=examples(200), derandomize=True, deadline=None)
def test_different_kernels_of_a_table_keep_different_names(names: set[str]) -> None:
    shown = short_names(names)
    assert set(shown) == names
    assert len(set(shown.values())) == len(names)
    assert shown == short_names(sorted(names, reverse=True))


HOSTILE = ("a" * 100_000, "<" * 50_000, "_ZN" + "9" * 10_000, "Functor<" * 20_000, "x_kernel" * 9_999)


@pytest.mark.parametrize("name", HOSTILE, ids=[name[:8] for name in HOSTILE])
def test_a_hostile_name_is_short_too(name: str) -> None:
    assert len(short_name(name)) <= 80
