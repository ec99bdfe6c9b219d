"""What one tensor instruction computes, against hand counts of PTX shapes."""

import polars as pl
import pytest
from tests.tables import trace_of

from timesink.knowledge.collectives import kind_of_kernel
from timesink.knowledge.gpus import Precision, TensorInstruction, tensor_instruction
from timesink.knowledge.op_class import communicates, op_class
from timesink.model.tables import DEVICE_OPS

COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
    "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 4>",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, true>",
    "multimem_all_reduce_kernel<c10::BFloat16, 16>",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
    "nvshmemi_transfer_rma_p",
    "mscclKernel_Sum_half_LL_false",
)
NO_COLLECTIVES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "hipMemcpyAsync",
    "void softmax_warp_forward<warpAllReduce<MaxOp>>",
    "void at::native::index_put_with_sort_kernel",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs",
    "moe_dispatch_kernel",
)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_communicate(name: str) -> None:
    assert communicates(pl.Series([name], dtype=pl.Categorical())).to_list() == [True]


@pytest.mark.parametrize(
    "name",
    [
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, true>(c10::BFloat16**)",
        "(anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16>(float**, unsigned long)",
        "void sglang::(anonymous namespace)::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)",
        "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_a_namespace_without_a_name_hides_no_kind(name: str) -> None:
    assert kind_of_kernel(name) == "allreduce"


@pytest.mark.parametrize("name", NO_COLLECTIVES)
def test_other_kernels_do_not(name: str) -> None:
    assert communicates(pl.Series([name], dtype=pl.Categorical())).to_list() == [False]


def test_only_kernels_communicate_and_only_copies_copy() -> None:
    ops = trace_of("""
        | device_ops  | kind   | name                | copy_kind | start_ns | end_ns |
        | kernel      | kernel | gemm                |           |        0 |      1 |
        | collective  | kernel | ncclDevKernel_X     |           |        1 |      2 |
        | to a peer   | copy   | Memcpy PtoP nccl    | p2p       |        2 |      3 |
        | memset      | set    | Memset              |           |        3 |      4 |
        | whole graph | graph  | nccl graph          |           |        4 |      5 |
        """)[DEVICE_OPS]
    assert op_class(ops).to_list() == ["compute", "communication", "copy", "compute", "compute"]


@pytest.mark.parametrize(
    ("opcode", "wanted"),
    [
        ("HMMA.16816.F32.BF16", (Precision.BF16, "mma", 2 * 16 * 8 * 16)),
        ("HMMA.16816.F16", (Precision.FP16, "mma", 2 * 16 * 8 * 16)),
        ("HMMA.1688.F32.TF32", (Precision.TF32, "mma", 2 * 16 * 8 * 8)),
        ("HMMA.SP.16832.F32.BF16", (Precision.BF16, "mma", 2 * 16 * 8 * 16)),
        ("HMMA.884.F32.F32.STEP0", (Precision.FP16, "mma", 8192 / 16)),  # 16 of them make a product of 16 x 16 x 16
        ("HMMA.884.F16.F16.STEP1", (Precision.FP16, "mma", 8192 / 8)),
        ("IMMA.16832.S8.S8.SAT", (Precision.INT8, "mma", 2 * 16 * 8 * 32)),
        ("IMMA.16864.S4.S4", (None, "mma", None)),
        ("DMMA.884", (Precision.FP64_TENSOR, "mma", 2 * 8 * 8 * 4)),
        ("DMMA.8x8x4", (Precision.FP64_TENSOR, "mma", 2 * 8 * 8 * 4)),
        ("HGMMA.64x128x16.F32.BF16", (Precision.BF16, "wgmma", 2 * 64 * 128 * 16 / 4)),
        ("QGMMA.64x256x32.F32.E4M3.E4M3", (Precision.FP8, "wgmma", 2 * 64 * 256 * 32 / 4)),
        ("IGMMA.64x64x32.S8.S8", (Precision.INT8, "wgmma", 2 * 64 * 64 * 32 / 4)),
        ("UTCHMMA.2CTA", (None, "tcgen05", None)),
        ("UTCQMMA", (Precision.FP8, "tcgen05", None)),
    ],
)
def test_operations_of_one_instruction(opcode: str, wanted: tuple[Precision | None, str, float | None]) -> None:
    assert tensor_instruction(opcode) == TensorInstruction(*wanted)


@pytest.mark.parametrize("opcode", ["FFMA", "UTMALDG.3D", "IMAD.MOV.U32", "HFMA2.MMA", "WARPGROUP.ARRIVE", ""])
def test_other_instructions_are_none(opcode: str) -> None:
    assert tensor_instruction(opcode) is None
